"""The command line ``ctxlab``. A command parses its options, calls the library and prints results."""

from ctxlab.cli.app import app, main

__all__ = ["app", "main"]
