"""Sessions stored by ctxlab, read as recordings."""
