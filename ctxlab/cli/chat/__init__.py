"""The terminal of ctxlab chat."""
