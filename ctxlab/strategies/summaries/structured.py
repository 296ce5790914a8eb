"""A structured summary can be written without a model: what was asked, decided, touched, run and named.

Prose loses paths, commands and numbers, which are what an agent must get exactly right; a digest keeps
them as they were written. Its text is all that it remembers: the next digest reads it and goes on, and
so it does with a structured summary that a model wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from ctxlab.messages.entities import (
    entities_in,
    entities_of_leaf,
)
from ctxlab.messages.file_access import (
    failed,
    touches,
)
from ctxlab.messages.types import (
    Message,
    ToolCall,
)
from ctxlab.strategies.helpers.text import clip

__all__ = ["SECTIONS", "Section", "digest"]


class Section(NamedTuple):
    """A heading, and how much may stand below it."""

    heading: str
    share: float
    "of the digest's room, where all sections are full; what one does not need goes to the others"
    most: int | None = None
    "lines at most, the newest; None: any number"


SECTIONS: tuple[Section, ...] = (
    Section("Goal", 0.10),
    Section("Decisions", 0.10),
    Section("Files edited", 0.10),
    Section("Files read", 0.15),
    Section("Commands", 0.10),
    Section("Names used", 0.20),
    Section("Names seen", 0.15),
    Section("Open problems", 0.05, most=5),
    Section("Next step", 0.05, most=1),
)
"""In the order in which they are written. Prose and commands have a dash, paths and names stand bare."""

_BARE = ("Files edited", "Files read", "Names used", "Names seen")
_OTHER = "Decisions"  # what stands under no heading that is known: another summariser wrote it

_MORE = "[… {} more]"
_LEFT_OUT = re.compile(r"\[… (\d+) more\]")
_SHORTEST = 40  # characters below which the beginning of a line says nothing

_ASKED, _DECIDED, _RAN, _FAILED = 300, 160, 120, 160
_LOOKED = 2500  # characters of a text that are looked at; more are slower and hardly better
_NAMES = 30  # of one message: a listing must not push out everything else
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_DECIDES = re.compile(
    r"\b(I'll|I will|let's|we'll|we should|decided?|instead of|rather than|turns out|must|need to"
    r"|root cause|the (issue|problem|bug|cause|fix) is)\b",
    re.IGNORECASE,
)
_ERROR = re.compile(r"\b\w*(Error|Exception)\b:|\bFAILED\b|\b(fatal|error): ")
_ERRORS = (
    "Error",
    "Exception",
    "FAILED",
    "fatal: ",
    "error: ",
)  # without one of them it does not match
_ADDRESS = re.compile(r"\w{2,}:/")  # what a browser opens is a name, not a file
_COMMANDS = frozenset({"command", "cmd", "script", "code"})


def digest(previous: str, messages: Sequence[Message], limit: int) -> str:
    """The digest so far, extended by what the messages did, in at most ``limit`` characters.

    Newest lines stay; how many older ones went is said above them. A line that comes again is new again.

    >>> call = ToolCall("c1", "edit", '{"path": "src/io.py", "old": "a", "new": "b"}')
    >>> talk = [Message("user", "Now fix the writer"), Message("assistant", None, tool_calls=(call,))]
    >>> print(digest("", talk, 400))
    ## Goal
    - Now fix the writer
    ## Files edited
    src/io.py
    """
    found = _read(previous)
    for message in messages:
        for heading, line in _noted(message):
            found[heading].add(line)
    better: set[str] = set()
    for heading in _BARE:  # a name is said once, where it says most
        lines = found[heading].lines
        for line in better & lines.keys():
            del lines[line]
        better |= lines.keys()
    return _written(found, limit)


class _Lines:
    """The lines below a heading, oldest first, and how many went before."""

    def __init__(self) -> None:
        self.lines: dict[str, None] = {}
        self.left_out = 0

    def add(self, line: str) -> None:
        self.lines.pop(line, None)
        self.lines[line] = None

    def fitting(self, room: int, bare: bool) -> list[str]:
        """The newest lines that have room, below the number of those that went."""
        lines = list(self.lines)
        start, used = len(lines), 0
        while start and used + len(lines[start - 1]) < room:
            start -= 1
            used += len(lines[start]) + 1
        gone = self.left_out + start
        if start == len(lines) and lines and room > _SHORTEST and not bare:
            lines[-1] = clip(lines[-1], room - 1)
            start, gone = start - 1, gone - 1
        kept = lines[start:]
        return [_MORE.format(gone), *kept] if kept and gone else kept


def _read(text: str) -> dict[str, _Lines]:
    found = {section.heading: _Lines() for section in SECTIONS}
    heading = _OTHER
    for line in text.split("\n"):
        if line.startswith("## "):
            said = line[3:].strip()
            heading = said if said in found else _OTHER
        elif known := _LEFT_OUT.fullmatch(line):
            found[heading].left_out += int(known[1])
        elif heading in _BARE:
            if name := line.removeprefix("- ").strip().strip("`"):
                found[heading].add(name)
        elif line.strip():
            found[heading].add(line)
    return found


def _written(found: dict[str, _Lines], limit: int) -> str:
    for section in SECTIONS:
        if section.most is not None:
            below = found[section.heading].lines
            for line in list(below)[: -section.most]:
                del below[line]
    used = [section for section in SECTIONS if found[section.heading].lines]
    overhead = sum(len(section.heading) + len("## ") + len(_MORE) + 8 for section in used)
    room = limit - overhead
    if room <= 0:
        return ""
    wanted = [sum(map(len, lines)) + len(lines) for lines in (found[s.heading].lines for s in used)]
    given = [
        min(size, int(section.share * room)) for size, section in zip(wanted, used, strict=True)
    ]
    spare = room - sum(given)
    text: list[str] = []
    for section, size, own in zip(used, wanted, given, strict=True):
        more = min(size - own, spare)
        spare -= more
        if lines := found[section.heading].fitting(own + more, section.heading in _BARE):
            text += [f"## {section.heading}", *lines]
    return "\n".join(text)


@lru_cache(maxsize=4096)
def _noted(message: Message) -> tuple[tuple[str, str], ...]:
    """``(heading, line)`` of what a message adds."""
    return tuple(dict.fromkeys(_notes(message)))


def _notes(message: Message) -> Iterator[tuple[str, str]]:
    text = message.text
    for entity in entities_in(text[:_LOOKED], _NAMES):
        yield "Names seen", entity.text
    if message.role == "tool":
        if line := _error(message):
            yield "Open problems", _prose(line, _FAILED)
    elif message.role == "assistant":
        if decides := next((s for s in _SENTENCE.split(text[:_LOOKED]) if _DECIDES.search(s)), ""):
            yield "Decisions", _prose(decides, _DECIDED)
        for call in message.tool_calls:
            yield from _called(call)
        if text.strip():
            yield "Next step", _prose(text, _ASKED)
    elif text.strip():
        yield "Goal", _prose(text, _ASKED)


def _called(call: ToolCall) -> Iterator[tuple[str, str]]:
    touch = touches(call)
    if touch and _can_stand(touch.path) and not _ADDRESS.match(touch.path):
        yield "Files edited" if touch.verb in ("write", "edit") else "Files read", touch.path
    for path, leaf in call.leaves():
        key = path.rsplit(".", 1)[-1]
        if key in _COMMANDS and isinstance(leaf, str) and leaf.strip():
            yield "Commands", _prose(leaf, _RAN)
        looked = leaf[:_LOOKED] if isinstance(leaf, str) else leaf
        for entity in entities_of_leaf(looked)[:_NAMES]:
            if _can_stand(entity.text):
                yield "Names used", entity.text


def _error(message: Message) -> str | None:
    """The last line of a result that says that something went wrong; the first where all of it does."""
    end = message.text[-_LOOKED:]
    if failed(message):
        return next((line for line in end.splitlines() if line.strip()), None)
    if not any(word in end for word in _ERRORS):
        return None
    return next((line for line in reversed(end.splitlines()) if _ERROR.search(line)), None)


def _prose(text: str, limit: int) -> str:
    return "- " + clip(" ".join(text[: 8 * limit].split()), limit)


def _can_stand(name: str) -> bool:
    """Whether a name stays the line that it is when the digest is read again."""
    return "\n" not in name and not name.startswith(("## ", "- ", "[… "))
