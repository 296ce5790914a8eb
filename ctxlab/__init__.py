"""Replay recorded conversations through context strategies and measure the effect of each strategy.

>>> import ctxlab
>>> ctxlab.count_tokens("hello world", "gpt-4o")
2

Importing the package prints nothing, reads no data and makes no network request. A submodule is imported
when one of its names is first used. ``__init__.pyi`` lists the public names.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
