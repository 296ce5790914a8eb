"""``python -m ctxlab`` is the command line, where its script is not on the path."""

from ctxlab.cli.app import main

if __name__ == "__main__":
    raise SystemExit(main())
