"""Read a tool result of a conversation page by page, by the number of its message.

A strategy such as ``offload`` replaces a long tool result by a preview, but the history always keeps the
full result. The agent reads it with the tool ``read_result``. Messages are numbered from 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ctxlab.context.history import History
from ctxlab.messages.types import ToolCall

PAGE_CHARS = 6000
"""Maximum number of characters of the text on a page, about 1,500 tokens of English text or code."""

READ_RESULT_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "read_result",
        "description": (
            "Reads a tool result of this conversation that is shown only in part, by its number. "
            "Gives one page of lines from a start line, or the lines that contain a text."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "number": {"type": "integer", "description": "number of the result"},
                "start": {"type": "integer", "description": "first line, counted from 1"},
                "search": {
                    "type": "string",
                    "description": "text to search for, in upper or lower case",
                },
            },
            "required": ["number"],
        },
    },
}
"""Definition, in OpenAI's format, of the tool that reads a stored tool result."""

_MAX_LINE_CHARS = 300


class Page(NamedTuple):
    """Part of a text: some of its lines. A line that is longer than a page is divided."""

    start: int
    "number of the first line, counted from 1"
    stop: int
    "number after the last line"
    text: str
    "text of the lines, with their line breaks"


def message_number(history: History, position: int) -> int:
    """Return the number of a message in its conversation.

    Parameters
    ----------
    history : History
        History of the conversation.
    position : int
        Position of the message in the history.

    Returns
    -------
    int
        Number of the message, counted from 1. If the history begins in the middle of a conversation
        that was resumed, earlier messages are counted too.
    """
    return position + 1 + history.message_offset


def split_pages(text: str) -> list[Page]:
    r"""Divide a text into pages at line breaks.

    Parameters
    ----------
    text : str
        Text of a tool result.

    Returns
    -------
    list of Page
        Pages of at most ``PAGE_CHARS`` characters, which together are the text; at least one.

    Examples
    --------
    >>> [(page.start, page.stop, len(page.text)) for page in split_pages("a line\n" * 1000)]
    [(1, 858, 5999), (858, 1001, 1001)]
    """
    pages: list[Page] = []
    first, held, size = 1, list[str](), 0
    for line in _divide_lines(text):
        if held and size + len(line) > PAGE_CHARS:
            pages.append(Page(first, first + len(held), "".join(held)))
            first, held, size = first + len(held), [], 0
        held.append(line)
        size += len(line)
    return [*pages, Page(first, first + len(held), "".join(held))]


def read_call(number: int, start: int, call_id: str = "read") -> ToolCall:
    """Return the tool call that reads a page.

    Parameters
    ----------
    number : int
        Number of the result.
    start : int
        Number of the first line.
    call_id : str, default "read"
        Id of the call.

    Returns
    -------
    ToolCall
        Call of ``read_result``.

    Examples
    --------
    >>> read_call(7, 81)
    ToolCall(id='read', name='read_result', arguments='{"number":7,"start":81}')
    """
    return ToolCall(call_id, "read_result", f'{{"number":{number},"start":{start}}}')


def read_page(number: int, text: str, start: int = 1, search: str | None = None) -> str:
    r"""Return what the tool ``read_result`` answers.

    Parameters
    ----------
    number : int
        Number of the result, which is shown in the answer.
    text : str
        Text of the result.
    start : int, default 1
        Number of the first line to read.
    search : str, optional
        Text to search for; upper and lower case do not matter. None reads all lines.

    Returns
    -------
    str
        A line that says which lines follow and how to continue, and then at most ``PAGE_CHARS``
        characters: lines of the text, or matching lines with their numbers.

    Examples
    --------
    >>> print(read_page(7, "one\ntwo\nthree", 2))
    [Result 7, lines 2-3 of 3]
    two
    three
    >>> print(read_page(7, "one\ntwo\nthree", search="T"))
    [Result 7, lines of 3 that contain 'T']
    2: two
    3: three
    """
    lines = list(_divide_lines(text))
    first = min(max(start, 1), max(len(lines), 1))
    if search:
        return _search(number, lines, first, search)
    page = split_pages("".join(lines[first - 1 :]))[0]
    stop = first + page.stop - page.start
    more = f"; continue with start={stop}" if stop <= len(lines) else ""
    return f"[Result {number}, lines {first}-{stop - 1} of {len(lines)}{more}]\n{page.text}"


def _search(number: int, lines: list[str], first: int, search: str) -> str:
    wanted, room = search.casefold(), PAGE_CHARS
    found: list[str] = []
    more = ""
    for place, line in enumerate(lines[first - 1 :], first):
        at = line.casefold().find(wanted)
        if at < 0:
            continue
        begin = max(0, min(at, len(line) - _MAX_LINE_CHARS)) if len(line) > _MAX_LINE_CHARS else 0
        shown = f"{place}: {line[begin : begin + _MAX_LINE_CHARS].rstrip()}"
        room -= len(shown) + 1
        if room < 0:
            more = f"; continue with start={place}"
            break
        found.append(shown)
    head = f"[Result {number}, lines of {len(lines)} that contain {search!r}{more}]"
    return "\n".join([head, *(found or ["(no line)"])])


def _divide_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text with their line breaks; parts of lines that are longer than a page."""
    start = 0
    while start < len(text):
        stop = text.find("\n", start, start + PAGE_CHARS) + 1 or start + PAGE_CHARS
        yield text[start:stop]
        start = stop
