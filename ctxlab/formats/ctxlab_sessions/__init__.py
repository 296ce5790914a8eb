"""Sessions of ctxlab's own stores, read as recordings."""
