"""Reader for tables of conversations and of messages."""
