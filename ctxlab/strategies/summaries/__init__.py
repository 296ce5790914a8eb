"""Summaries of older messages, extracted by rules or written by a model."""
