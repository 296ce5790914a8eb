"""Helpers that do not depend on messages: JSON, numbers, progress, signals, tables, private files."""
