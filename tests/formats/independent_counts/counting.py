"""What the scripts of this folder share: reading files, and adding up counts. It does not use ctxlab."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]

KINDS = (
    *("system", "user", "assistant", "tool", "calls", "usages", "billed"),
    *("cache_read", "cache_write", "cache_write_1h", "output"),
    *("compactions", "recordings", "subagents"),
)
"""Names of all counts. ``billed`` is the sum of all input tokens of the answers, and ``output`` that of
their output tokens."""


def start_totals() -> Counter[str]:
    return Counter(dict.fromkeys(KINDS, 0))


def read_text(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".zst":
        content = decompress(content)
    return content.decode(errors="replace")


def decompress(content: bytes) -> bytes:
    try:
        from compression import zstd
    except ImportError:
        from backports import zstd
    return zstd.decompress(content)


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the objects of a JSONL file. A line may contain several; broken ones are left out."""
    decoder = json.JSONDecoder()
    for line in read_text(path).split("\n"):
        rest = line.strip()
        while rest:
            try:
                row, end = decoder.raw_decode(rest)
            except ValueError:
                break
            if isinstance(row, dict):
                yield row
            rest = rest[end:].strip()


def print_counts(count_file: Callable[[Path], dict[str, int]]) -> None:
    """Print the counts of the files that the command line names."""
    for name in sys.argv[1:]:
        print(json.dumps({"file": name} | count_file(Path(name))))
