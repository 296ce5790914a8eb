"""Stores of live sessions, with tables of contents, titles and search.

Each public name is imported on first access.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
