"""The defaults of litellm."""
