"""Baselines of Cline."""
