"""Recorded conversations of many systems are read as one: ``load`` streams ``Recording``s.

A format is one file here, called after it, and one line in ``table``. It says how its content is
recognised, how it is read and, for some, how it is written: ``write``. A Codex rollout, say, is read by
``codex``; what is too much for one file goes into files that begin alike (``codex_turns``).

What readers share, from the file up:

- bytes and JSON: ``places``, ``zipped``, ``head``, ``elements``, ``json_files``; ``Source`` in ``base``
- values that may be there, and those that must: ``loose``, ``required``
- messages: ``chat_shape``, ``answer``, ``usage``, ``anthropic_blocks``; ``any_call``, ``any_messages``,
  ``any_content`` and ``any_tools`` where a log mixes APIs
- conversations from logged requests: ``request_bodies``, ``traced_calls``, ``stitch``, ``alignment``;
  what a compaction kept: ``found_again``

``loading``, ``choosing``, ``writing`` and ``losses`` stand above the formats.
"""

from ctxlab.formats.base import (
    Format,
    OnError,
    Source,
)
from ctxlab.formats.io.head import Head
from ctxlab.formats.load import (
    OnSkip,
    load,
)
from ctxlab.formats.registry import (
    FORMATS,
    register,
    sniff,
)
from ctxlab.formats.write import write

__all__ = [
    "FORMATS",
    "Format",
    "Head",
    "OnError",
    "OnSkip",
    "Source",
    "load",
    "register",
    "sniff",
    "write",
]
