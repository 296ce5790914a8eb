"""Types of messages and recordings, and functions that convert, validate and search messages."""
