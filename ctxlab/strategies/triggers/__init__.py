"""Wrappers that decide when another strategy edits the context."""
