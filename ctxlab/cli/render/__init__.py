"""Render results as the tables, notes and JSON that the commands print."""
