"""Render the tables and texts that commands print."""
