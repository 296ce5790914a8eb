"""Recorded conversations of many systems are read as one: ``load`` streams ``Recording``s.

A format is one file here, called after it, and one line in ``registry``. It says how its content is
recognised, how it is read and, for some, how it is written: ``write``. A product with too much for one
file has a folder: a Codex rollout, say, is read by ``codex/reader`` with ``codex/rollout``.

What readers share, from the file up:

- bytes and JSON: ``io/files``, ``io/zip_archive``, ``io/head``, ``io/json_array``,
  ``common/json_files``; ``Source`` in ``base``
- values that may be there, and those that must: ``fields``
- messages, in ``common``: ``chat_format``, ``assistant_message``, ``usage``, ``anthropic_blocks``;
  ``api_calls``, ``api_messages``, ``api_content`` and ``api_tools`` where a log mixes APIs
- conversations from logged requests, in ``common``: ``request_log``, ``traces``, ``stitch``,
  ``alignment``

``load``, ``filters``, ``write`` and ``unsupported`` stand above the formats.
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
