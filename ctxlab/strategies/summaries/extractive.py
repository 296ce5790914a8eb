"""A summary can be written without a model: the lines that say what was asked, done and found.

It is engine-written, as seed design "Workspace-scoped sessions" wants it: deterministic, bounded, and
never a placeholder. What it leaves out it says. ``digest`` is the structured one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from ctxlab.messages.entities import entities_in
from ctxlab.messages.types import Message
from ctxlab.strategies.helpers.text import clip

__all__ = ["extract"]

_ASKED, _SAID, _CALLED, _FOUND = 300, 160, 160, 120
_LOOKED = 8000


def extract(previous: str, messages: Sequence[Message], limit: int) -> str:
    """The summary so far with a line for each message, at most ``limit`` characters.

    Where that is too long, lines of the middle go: the oldest quarter says what it is all about, the
    newest say where it stands.

    >>> extract("", [Message("user", "Fix the bug"), Message("assistant", "Done. It was easy.")], 400)
    '- user: Fix the bug\\n- assistant: Done. It was easy.'
    """
    lines: list[str] = []
    gap = left_out = 0
    for line in previous.splitlines():
        if known := _GAP.fullmatch(line):
            gap, left_out = len(lines), int(known[1])
        elif line:
            lines.append(line)
    lines.extend(line for message in messages for line in _lines(message))
    return "\n".join(_bounded(lines, limit, gap, left_out))


_GAP = re.compile(r"- \[… (\d+) lines left out\]")
_GAP_SIZE = 28


def _bounded(lines: list[str], limit: int, gap: int, left_out: int) -> list[str]:
    """What fits of the lines; ``left_out`` lines have gone before, from in front of ``lines[gap]``."""
    if not left_out and sum(map(len, lines)) + len(lines) <= limit:
        return lines
    room = limit - _GAP_SIZE
    if room < 0:
        return []
    oldest, used = 0, 0
    while oldest < (gap or len(lines)) and used + len(lines[oldest]) < room // 4:
        used += len(lines[oldest]) + 1
        oldest += 1
    newest = len(lines)
    while newest > max(oldest, gap) and used + len(lines[newest - 1]) < room:
        newest -= 1
        used += len(lines[newest]) + 1
    count = left_out + newest - oldest
    return [*lines[:oldest], f"- [… {count} lines left out]", *lines[newest:]]


@lru_cache(maxsize=4096)
def _lines(message: Message) -> tuple[str, ...]:
    return tuple(_said(message))


def _said(message: Message) -> Iterator[str]:
    if message.role == "tool":
        if text := _line(message.text, _FOUND // 2):
            # What a result names is what later calls use, wherever in it that stands.
            named = (e.text for e in entities_in(message.text[:_LOOKED]) if e.text not in text)
            names = clip(", ".join(named), _FOUND)
            yield f"  → {text} [{names}]" if names else f"  → {text}"
    elif message.role == "assistant":
        if text := _line(message.text, _SAID):
            yield f"- assistant: {text}"
        for call in message.tool_calls:
            said = ", ".join(_line(str(leaf), _CALLED // 2) for _, leaf in call.leaves())
            yield clip(f"- {call.name}({said}", _CALLED - 1) + ")"
    elif text := _line(message.text, _ASKED):
        yield f"- {message.role}: {text}"


def _line(text: str, limit: int) -> str:
    """The beginning of a text on one line; what lies far behind it is not looked at."""
    return clip(" ".join(text[: 8 * limit].split()), limit)
