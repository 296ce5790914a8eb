"""Replay recordings through strategies, measure every request, and compare what came of it."""
