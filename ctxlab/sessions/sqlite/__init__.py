"""Session store in the SQLite database of a workspace, with a full-text index."""
