"""Agent Trajectory Interchange Format (ATIF)."""
