"""Extract a summary from messages without a model.

The summary has one or more lines for each message: user requests, tool calls, tool results and
replies. It is deterministic, has a maximum length, and states how many lines were omitted, as
described in the design note "Workspace-scoped sessions". For a summary with sections, see
``extract_structured_summary``.
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
    r"""Append lines for new messages to a summary, without a model.

    If the result is too long, lines in the middle are omitted. The oldest lines may take a quarter
    of the maximum length, and the newest lines take the rest.

    Parameters
    ----------
    previous : str
        Summary to extend, as returned by this function; empty to start a new summary.
    messages : sequence of Message
        Messages to add to the summary.
    max_chars : int
        Maximum length of the summary in characters.

    Returns
    -------
    str
        The extended summary.

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
    """Return the lines that fit, with a line that states the number of omitted lines.

    ``left_out`` is the number of lines that were omitted earlier, directly before ``lines[gap]``.
    """
    if not left_out and sum(map(len, lines)) + len(lines) <= max_chars:
        return lines
    room = max_chars - _OMITTED_LINE_CHARS
    if room < 0:
        return []
    oldest, used = 0, 0
    # If lines were omitted earlier, those after the gap are not among the oldest, even if gap is 0.
    last_oldest = gap if left_out else len(lines)
    while oldest < last_oldest and used + len(lines[oldest]) < room // 4:
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
            # Later calls may use names from the result, so also list names outside the clipped text.
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
            yield single_line(f"- {call.name}({said}", _MAX_CALL_CHARS - 1) + ")"
    elif text := single_line(message.text, _MAX_USER_CHARS):
        yield f"- {message.role}: {text}"
