"""The Agent Trajectory Interchange Format."""
