"""Reader for logs of the evaluation framework Inspect AI."""
