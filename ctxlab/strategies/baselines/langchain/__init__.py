"""Baselines of LangChain."""
