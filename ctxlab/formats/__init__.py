"""Readers and writers for recorded conversations; ``load`` streams them as ``Recording`` objects.

Each format is one module here, named after the format, and one line in ``registry``. The module
defines how to recognise the content, how to read it and, for some formats, how to write it
(``write``). A product that needs more than one file has a folder: ``codex/reader`` uses
``codex/rollout`` to read a Codex rollout.

Helpers that readers share, from low level to high level:

- Bytes and JSON: ``io/files``, ``io/zip_archive``, ``io/head``, ``io/json_array``, and ``Source``
  in ``base``.
- Optional and required JSON fields: ``fields``.
- Messages, in ``common``: ``chat_format``, ``usage``, ``anthropic_blocks``. Logs that mix APIs use
  ``api_messages`` and ``api_content``.
- Conversations from logged requests, in ``common``: ``request_log``, ``traces``, ``stitch``,
  ``alignment``.

``load``, ``filters`` and ``write`` build on the formats.
"""

from ctxlab.formats.base import Format, OnError, Source
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.load import OnSkip, load
from ctxlab.formats.registry import FORMATS, detect_format, register_format
from ctxlab.formats.write import write

__all__ = [
    "FORMATS",
    "FileHead",
    "Format",
    "OnError",
    "OnSkip",
    "Source",
    "detect_format",
    "load",
    "register_format",
    "write",
]
