"""ctxlab replays recorded conversations through context strategies and measures what each does.

>>> import ctxlab
>>> ctxlab.count_tokens("hello world", "gpt-4o")
2

Importing it prints, reads and fetches nothing, and loads a part of it only when it is asked for. What it
offers is listed in ``__init__.pyi``.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
