"""Plain text for terminals: slugs, columns and wrapped paragraphs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

LIGATURES = {"ß": "ss", "æ": "ae", "ø": "o", "œ": "oe", "ł": "l"}


def fold(text: str) -> str:
    """Lower case without accents: what two spellings of one word have in common."""
    lowered = text.lower()
    for mark, plain in LIGATURES.items():
        lowered = lowered.replace(mark, plain)
    decomposed = unicodedata.normalize("NFKD", lowered)
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def slug(text: str) -> str:
    """A name for an address: folded, words joined with hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", fold(text)).strip("-")


def words(text: str) -> list[str]:
    """The folded words of a text in their order; digits count as letters."""
    return re.findall(r"[a-z0-9]+", fold(text))


def shorten(text: str, width: int) -> str:
    """At most ``width`` characters, the last three of them dots where something was cut."""
    if len(text) <= width:
        return text
    return text[: max(0, width - 3)].rstrip() + "..."


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Columns as wide as their widest cell; the columns in ``right`` are flush right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = []
    for row in [header, ["-" * width for width in widths], *rows]:
        cells = [
            cell.rjust(widths[i]) if i in right else cell.ljust(widths[i])
            for i, cell in enumerate(row)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def wrap(text: str, width: int = 72) -> list[str]:
    """Lines of at most ``width`` characters; a longer word stands alone."""
    lines: list[str] = []
    current = ""
    for word in text.split():
        if current and len(current) + 1 + len(word) > width:
            lines.append(current)
            current = word
        else:
            current = f"{current} {word}".strip()
    return [*lines, current] if current else lines


def plural(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun."""
    return f"{count} {one if count == 1 else many or one + 's'}"
