"""The defaults of Microsoft's Agent Framework."""
