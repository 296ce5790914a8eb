"""Functions shared by strategies: message blocks, ranking of messages, and shortening of text."""
