"""The defaults of LangChain."""
