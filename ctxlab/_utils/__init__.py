"""Helpers that know nothing of messages: JSON, numbers, progress, signals, tables, files."""
