"""Run the command line with ``python -m ctxlab``, for when the script ``ctxlab`` is not on the path."""

from ctxlab.cli.app import main

if __name__ == "__main__":
    raise SystemExit(main())
