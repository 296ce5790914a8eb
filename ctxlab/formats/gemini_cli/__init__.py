"""Sessions of Gemini CLI."""
