"""Logs of Gemini CLI."""
