"""Replay recordings through context strategies, measure each request, and compare the results."""
