"""Model call logs and saved events of OpenHands."""
