"""Session store of JSONL chunks: each file has a limited number of messages; only the last grows."""
