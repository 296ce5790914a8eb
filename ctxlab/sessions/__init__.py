"""Stores of live sessions, with their table of contents, titles and search.

Each name is loaded on first access.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
