"""Sessions in the SQLite database of a workspace, with their words in an index."""
