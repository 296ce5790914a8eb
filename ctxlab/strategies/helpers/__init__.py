"""What several strategies share: message blocks, ranking, texts."""
