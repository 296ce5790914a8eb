"""Logs of OpenHands."""
