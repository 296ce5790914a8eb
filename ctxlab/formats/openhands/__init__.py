"""Readers for the model call logs, the event logs and the Agent SDK conversations of OpenHands."""
