"""Session store that splits each session into JSONL files with a limited number of messages."""
