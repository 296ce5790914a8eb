"""Reader and writer for the Agent Trajectory Interchange Format (ATIF)."""
