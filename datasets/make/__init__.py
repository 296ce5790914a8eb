"""The makers of the bundled recordings; ``python -m datasets.make`` runs them all."""
