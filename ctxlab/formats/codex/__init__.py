"""Logs of Codex CLI."""
