"""Sessions: stores of live conversations, their contents, titles and search.

Each name is loaded when it is first asked for: who only reads what a session is loads no store.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
