"""Reader for rollouts, the session logs of Codex CLI."""
