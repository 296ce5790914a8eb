"""The command line: each command parses its options, calls one function and prints the result."""

from ctxlab.cli.app import app, main

__all__ = ["app", "main"]
