"""Stock, prices and orders of a small dealer in bicycle parts."""

__version__ = "3.4.1"
