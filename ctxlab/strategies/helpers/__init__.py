"""Functions shared by strategies: grouping messages, ranking messages, and shortening text."""
