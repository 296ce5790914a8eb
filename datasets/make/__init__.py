"""Code that generates the bundled recordings; run it with ``python -m datasets.make``."""
