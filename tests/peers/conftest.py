"""Exclude this folder from pytest; run it with ``nox -s peers`` or ``python tests/peers``."""

collect_ignore_glob = ["*.py"]
