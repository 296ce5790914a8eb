"""Reader for session logs of GitHub Copilot CLI."""
