"""Exclude this folder from pytest; run it with ``nox -s bench`` or ``python tests/bench``."""

collect_ignore_glob = ["*.py"]
