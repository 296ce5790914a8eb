"""Reader for evaluation logs of Inspect."""
