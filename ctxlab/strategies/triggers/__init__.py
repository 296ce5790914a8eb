"""When a strategy edits: wrappers that combine with any strategy."""
