"""Replay recordings through strategies, measure each request, and compare the results."""
