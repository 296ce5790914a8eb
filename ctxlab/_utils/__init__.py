"""Helpers for JSON, numbers, progress bars, signals, text tables and private files."""
