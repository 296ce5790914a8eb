"""Store, list, search and resume sessions, which are the conversations of ctxlab's own agent.

``LogLibrary`` also lists and searches recordings from log files. Each public name is imported when
it is first accessed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
