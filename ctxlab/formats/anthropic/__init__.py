"""Requests and request logs of Anthropic's Messages API."""
