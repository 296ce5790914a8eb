"""Strategies that wrap another strategy and decide when it runs."""
