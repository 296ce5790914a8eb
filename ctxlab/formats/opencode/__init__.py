"""Readers for sessions of the coding agent opencode."""
