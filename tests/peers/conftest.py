"""pytest leaves this folder alone: it is run as ``python tests/peers``, or ``nox -s peers``."""

collect_ignore_glob = ["*.py"]
