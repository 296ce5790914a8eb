"""Sessions of pi."""
