"""pytest leaves this folder alone: it is run as ``python tests/bench``, or ``nox -s bench``."""

collect_ignore_glob = ["*.py"]
