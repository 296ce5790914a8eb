"""Reader for session logs of Gemini CLI."""
