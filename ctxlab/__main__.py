"""Run the command line with ``python -m ctxlab``, if the script ``ctxlab`` is not on the ``PATH``."""

from ctxlab.cli.app import main

if __name__ == "__main__":
    raise SystemExit(main())
