"""Extracted summaries: lines with the requests, actions and findings, without a model.

The summary is deterministic and bounded, and says how many lines it leaves out (after the design
note "Workspace-scoped sessions"). ``extract_structured_summary`` writes a structured summary
instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from ctxlab.messages.entities import find_entities
from ctxlab.messages.types import Message
from ctxlab.strategies.helpers.text import clip_text, single_line

_MAX_USER_CHARS, _MAX_ASSISTANT_CHARS, _MAX_CALL_CHARS, _MAX_RESULT_CHARS = 300, 160, 160, 120
_MAX_SCANNED_CHARS = 8000


def extract_summary(previous: str, messages: Sequence[Message], max_chars: int) -> str:
    r"""Extend a summary by lines for new messages, without a model.

    If the result is too long, lines in the middle are left out. A quarter of the room goes to the
    oldest lines, the rest to the newest.

    Parameters
    ----------
    previous : str
        The summary so far; empty if there is none.
    messages : sequence of Message
        Messages to add.
    max_chars : int
        Maximum length of the summary in characters.

    Returns
    -------
    str
        The new summary.

    Examples
    --------
    >>> said = [Message("user", "Fix the bug"), Message("assistant", "Done. It was easy.")]
    >>> extract_summary("", said, 400)
    '- user: Fix the bug\n- assistant: Done. It was easy.'
    """
    lines: list[str] = []
    gap = left_out = 0
    for line in previous.splitlines():
        if known := _OMITTED_PATTERN.fullmatch(line):
            gap, left_out = len(lines), int(known[1])
        elif line:
            lines.append(line)
    lines.extend(line for message in messages for line in _message_lines(message))
    return "\n".join(_fit_lines(lines, max_chars, gap, left_out))


_OMITTED_PATTERN = re.compile(r"- \[… (\d+) lines left out\]")
_OMITTED_LINE_CHARS = 28


def _fit_lines(lines: list[str], max_chars: int, gap: int, left_out: int) -> list[str]:
    """Return the lines that fit; ``left_out`` lines were already removed before ``lines[gap]``."""
    if not left_out and sum(map(len, lines)) + len(lines) <= max_chars:
        return lines
    room = max_chars - _OMITTED_LINE_CHARS
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
def _message_lines(message: Message) -> tuple[str, ...]:
    return tuple(_iter_lines(message))


def _iter_lines(message: Message) -> Iterator[str]:
    if message.role == "tool":
        if text := single_line(message.text, _MAX_RESULT_CHARS // 2):
            # Later calls use the names in a result, so list those outside the clipped text as well.
            found = find_entities(message.text[:_MAX_SCANNED_CHARS])
            named = ", ".join(entity.text for entity in found if entity.text not in text)
            names = clip_text(named, _MAX_RESULT_CHARS)
            yield f"  → {text} [{names}]" if names else f"  → {text}"
    elif message.role == "assistant":
        if text := single_line(message.text, _MAX_ASSISTANT_CHARS):
            yield f"- assistant: {text}"
        for call in message.tool_calls:
            leaves = (str(leaf) for _, leaf in call.argument_leaves())
            said = ", ".join(single_line(leaf, _MAX_CALL_CHARS // 2) for leaf in leaves)
            yield clip_text(f"- {call.name}({said}", _MAX_CALL_CHARS - 1) + ")"
    elif text := single_line(message.text, _MAX_USER_CHARS):
        yield f"- {message.role}: {text}"
