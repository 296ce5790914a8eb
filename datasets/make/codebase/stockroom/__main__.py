"""``python -m stockroom COMMAND ...`` runs the command line."""

import sys

from stockroom.cli import main

sys.exit(main(sys.argv[1:]))
