"""Recordings that the project makes itself, and the code that makes them."""
