"""Summaries of older messages: extracted, structured, or written by a model."""
