"""What would be sent now, and every edit of it."""
