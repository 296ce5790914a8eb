"""Readers for the sessions that ctxlab's own agent stores."""
