"""Logs of pi."""
