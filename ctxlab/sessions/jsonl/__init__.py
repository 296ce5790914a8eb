"""Session store of JSONL chunks: files of a limited number of messages, of which only the last grows."""
