"""The defaults of LangChain's Deep Agents."""
