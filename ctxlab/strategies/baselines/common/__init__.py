"""Helpers shared by the baselines of several products."""
