"""What baselines of several products share."""
