"""The terminal interface of ``ctxlab chat``."""
