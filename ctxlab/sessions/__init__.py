"""Sessions: stores of live conversations, their contents, titles and search."""
