"""Read recorded conversations of many formats as ``Recording`` objects, and write some formats.

Each format has a module in this package, named after the format, and one line in ``registry``. The
module defines how to recognise a file, how to read it and, for some formats, how to write it. A
format that needs several modules has a folder: ``codex/reader`` uses ``codex/rollout`` to read a
Codex rollout.

Readers share these helper modules, listed from low level to high level:

- Bytes and JSON: ``io/files``, ``io/zip_archive``, ``io/head``, ``io/json_array``, and ``Source``
  in ``base``.
- Optional and required JSON fields: ``fields``.
- Parsing messages: ``chat_format``, ``usage`` and ``anthropic_blocks`` in ``common``. Logs that mix
  several APIs use ``api_messages`` and ``api_content``.
- Joining logged requests into conversations: ``request_log``, ``traces``, ``stitch`` and
  ``alignment`` in ``common``.

The modules ``load``, ``filters`` and ``write`` contain the public functions, which work with every
format.
"""

from ctxlab.formats.base import Format, OnError, Source
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.load import OnSkip, load
from ctxlab.formats.load_report import FileReport, LoadReport
from ctxlab.formats.registry import FORMATS, detect_format, register_format
from ctxlab.formats.table.dataset import to_dataset
from ctxlab.formats.write import write

__all__ = [
    "FORMATS",
    "FileHead",
    "FileReport",
    "Format",
    "LoadReport",
    "OnError",
    "OnSkip",
    "Source",
    "detect_format",
    "load",
    "register_format",
    "to_dataset",
    "write",
]
