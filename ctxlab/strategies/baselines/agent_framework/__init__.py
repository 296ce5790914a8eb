"""Baselines of Microsoft Agent Framework."""
