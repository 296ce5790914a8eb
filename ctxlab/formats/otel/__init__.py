"""Reader for OpenTelemetry spans of model calls (GenAI conventions)."""
