"""Readers for the model call logs and the event logs of OpenHands."""
