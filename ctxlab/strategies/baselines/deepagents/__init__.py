"""Baselines of LangChain's Deep Agents."""
