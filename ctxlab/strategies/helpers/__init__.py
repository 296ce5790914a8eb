"""Helpers shared by strategies: message blocks, ranking and text."""
