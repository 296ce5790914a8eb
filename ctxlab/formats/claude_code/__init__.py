"""Reader for session logs of Claude Code."""
