"""Baselines of litellm."""
