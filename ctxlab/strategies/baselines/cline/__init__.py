"""The defaults of Cline."""
