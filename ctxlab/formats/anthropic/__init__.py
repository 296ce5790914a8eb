"""Requests and logs of Anthropic's Messages API."""
