"""Extract a summary with sections from messages, without a model.

The sections list goals, decisions, files, commands and names. Such a summary is called a digest. It
contains paths, commands and numbers verbatim, because an agent needs them exactly and summaries in
prose lose them. To extend a digest, its text is parsed; no other state is stored. A structured
summary that was written by a model can be extended in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from ctxlab.messages.entities import find_entities, find_entities_in_value
from ctxlab.messages.file_access import is_tool_error, parse_file_access
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.helpers.text import clip_text, find_decision, single_line


class DigestSection(NamedTuple):
    """Heading and maximum size of one section of a digest."""

    heading: str
    "heading of the section"
    share: float
    """share of the maximum length of the digest that is reserved for the section; other sections
    can use the part that it does not need"""
    max_lines: int | None = None
    "maximum number of lines; the newest lines are kept; None: no maximum"


SECTIONS: tuple[DigestSection, ...] = (
    DigestSection("Goal", 0.10),
    DigestSection("Decisions", 0.10),
    DigestSection("Files edited", 0.10),
    DigestSection("Files read", 0.15),
    DigestSection("Commands", 0.10),
    DigestSection("Names used", 0.20),
    DigestSection("Names seen", 0.15),
    DigestSection("Open problems", 0.05, max_lines=5),
    DigestSection("Next step", 0.05, max_lines=1),
)
"Sections in the order of the digest."

# Sections with one path or name per line. In the other sections each line starts with a dash.
_BARE_SECTIONS = ("Files edited", "Files read", "Names used", "Names seen")
# Section for lines under an unknown heading, as a model may write it.
_DEFAULT_SECTION = "Decisions"

_OMITTED_LINE = "[… {} more]"
_OMITTED_PATTERN = re.compile(r"\[… (\d+) more\]")
_MIN_CLIPPED_CHARS = 40  # minimum length of a clipped line

_MAX_GOAL_CHARS, _MAX_DECISION_CHARS, _MAX_COMMAND_CHARS, _MAX_ERROR_CHARS = 300, 160, 120, 160
_MAX_SCANNED_CHARS = 2500  # per text; scanning more is slower and hardly better
_MAX_NAMES = 30  # per message, so that a long listing does not displace other names
_ERROR_PATTERN = re.compile(r"\b\w*(Error|Exception)\b:|\bFAILED\b|\b(fatal|error): ")
# Quick check: _ERROR_PATTERN can match only a text with one of these words.
_ERROR_WORDS = ("Error", "Exception", "FAILED", "fatal: ", "error: ")
_URL_PATTERN = re.compile(r"\w{2,}:/")  # a URL is a name, not a file
_COMMAND_KEYS = frozenset({"command", "cmd", "script", "code"})


def extract_structured_summary(previous: str, messages: Sequence[Message], max_chars: int) -> str:
    """Extend a digest, which is a summary with sections, by new messages, without a model.

    If a section is too long, its oldest lines are omitted and their number is stated. A line that
    occurs again moves to the end of its section.

    Parameters
    ----------
    previous : str
        Digest to extend, as returned by this function; empty to start a new digest.
    messages : sequence of Message
        Messages to add to the digest.
    max_chars : int
        Maximum length of the digest in characters.

    Returns
    -------
    str
        The extended digest.

    Examples
    --------
    >>> call = ToolCall("c1", "edit", '{"path": "src/io.py", "old": "a", "new": "b"}')
    >>> talk = [Message("user", "Now fix the writer"), Message("assistant", None, tool_calls=(call,))]
    >>> print(extract_structured_summary("", talk, 400))
    ## Goal
    - Now fix the writer
    ## Files edited
    src/io.py
    """
    found = _parse_digest(previous)
    for message in messages:
        for heading, line in _message_notes(message):
            found[heading].add(line)
    better: set[str] = set()
    for heading in _BARE_SECTIONS:  # keep a name only in the most specific section
        lines = found[heading].lines
        for line in better & lines.keys():
            del lines[line]
        better |= lines.keys()
    return _format_digest(found, max_chars)


class _SectionLines:
    """Lines of one section, oldest first, with the number of lines that were omitted before them."""

    def __init__(self) -> None:
        self.lines: dict[str, None] = {}
        self.omitted = 0

    def add(self, line: str) -> None:
        """Append a line, or move it to the end if the section already contains it."""
        self.lines.pop(line, None)
        self.lines[line] = None

    def fit(self, max_chars: int, bare: bool) -> list[str]:
        """Return the newest lines that fit. If lines are omitted, the first line states how many.

        If no line fits, the newest line is clipped, unless ``bare`` is True. ``bare`` marks a section
        with one path or name per line, because a clipped path or name is useless.
        """
        lines = list(self.lines)
        start, used = len(lines), 0
        while start and used + len(lines[start - 1]) < max_chars:
            start -= 1
            used += len(lines[start]) + 1
        gone = self.omitted + start
        if start == len(lines) and lines and max_chars > _MIN_CLIPPED_CHARS and not bare:
            lines[-1] = clip_text(lines[-1], max_chars - 1)
            start, gone = start - 1, gone - 1
        kept = lines[start:]
        return [_OMITTED_LINE.format(gone), *kept] if kept and gone else kept


def _parse_digest(text: str) -> dict[str, _SectionLines]:
    found = {section.heading: _SectionLines() for section in SECTIONS}
    heading = _DEFAULT_SECTION
    for line in text.split("\n"):
        if line.startswith("## "):
            said = line[3:].strip()
            heading = said if said in found else _DEFAULT_SECTION
        elif known := _OMITTED_PATTERN.fullmatch(line):
            found[heading].omitted += int(known[1])
        elif heading in _BARE_SECTIONS:
            if name := line.removeprefix("- ").strip().strip("`"):
                found[heading].add(name)
        elif line.strip():
            found[heading].add(line)
    return found


def _format_digest(found: dict[str, _SectionLines], max_chars: int) -> str:
    for section in SECTIONS:
        if section.max_lines is not None:
            below = found[section.heading].lines
            for line in list(below)[: -section.max_lines]:
                del below[line]
    used = [section for section in SECTIONS if found[section.heading].lines]
    overhead = sum(len(section.heading) + len("## ") + len(_OMITTED_LINE) + 8 for section in used)
    room = max_chars - overhead
    if room <= 0:
        return ""
    wanted = [sum(map(len, lines)) + len(lines) for lines in (found[s.heading].lines for s in used)]
    granted = [min(size, int(s.share * room)) for size, s in zip(wanted, used, strict=True)]
    spare = room - sum(granted)
    text: list[str] = []
    for section, size, own in zip(used, wanted, granted, strict=True):
        more = min(size - own, spare)
        spare -= more
        if lines := found[section.heading].fit(own + more, section.heading in _BARE_SECTIONS):
            text += [f"## {section.heading}", *lines]
    return "\n".join(text)


@lru_cache(maxsize=4096)
def _message_notes(message: Message) -> tuple[tuple[str, str], ...]:
    """Return the lines that a message adds to a digest, as ``(heading, line)`` pairs."""
    return tuple(dict.fromkeys(_iter_notes(message)))


def _iter_notes(message: Message) -> Iterator[tuple[str, str]]:
    text = message.text
    for entity in find_entities(text[:_MAX_SCANNED_CHARS], _MAX_NAMES):
        yield "Names seen", entity.text
    if message.role == "tool":
        if line := _find_error_line(message):
            yield "Open problems", _bullet(line, _MAX_ERROR_CHARS)
    elif message.role == "assistant":
        if decides := find_decision(text[:_MAX_SCANNED_CHARS]):
            yield "Decisions", _bullet(decides, _MAX_DECISION_CHARS)
        for call in message.tool_calls:
            yield from _call_notes(call)
        if text.strip():
            yield "Next step", _bullet(text, _MAX_GOAL_CHARS)
    elif text.strip():
        yield "Goal", _bullet(text, _MAX_GOAL_CHARS)


def _call_notes(call: ToolCall) -> Iterator[tuple[str, str]]:
    touch = parse_file_access(call)
    if touch and _is_safe_line(touch.path) and not _URL_PATTERN.match(touch.path):
        yield "Files edited" if touch.operation in ("write", "edit") else "Files read", touch.path
    for path, leaf in call.argument_leaves():
        key = path.rsplit(".", 1)[-1]
        if key in _COMMAND_KEYS and isinstance(leaf, str) and leaf.strip():
            yield "Commands", _bullet(leaf, _MAX_COMMAND_CHARS)
        looked = leaf[:_MAX_SCANNED_CHARS] if isinstance(leaf, str) else leaf
        for entity in find_entities_in_value(looked)[:_MAX_NAMES]:
            if _is_safe_line(entity.text):
                yield "Names used", entity.text


def _find_error_line(message: Message) -> str | None:
    """Return the line of a tool result that describes an error; None if there is none.

    Only the end of a long result is scanned. If the whole result is an error, the first line of the
    scanned text is returned, otherwise the last line that looks like an error message.
    """
    end = message.text[-_MAX_SCANNED_CHARS:]
    if is_tool_error(message):
        return next((line for line in end.splitlines() if line.strip()), None)
    if not any(word in end for word in _ERROR_WORDS):
        return None
    return next((line for line in reversed(end.splitlines()) if _ERROR_PATTERN.search(line)), None)


def _bullet(text: str, limit: int) -> str:
    return "- " + single_line(text, limit)


def _is_safe_line(name: str) -> bool:
    """Return True if the name can be a line of a digest without being parsed as something else."""
    return "\n" not in name and not name.startswith(("## ", "- ", "[… "))
