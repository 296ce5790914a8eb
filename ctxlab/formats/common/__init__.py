"""Helper modules that are used by several readers."""
