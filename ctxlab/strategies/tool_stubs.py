"""A stub says in one line of JSON what a tool call gave, so that the agent can call it again.

Source: seed design "Hybrid session management": after the agent's turn each tool result becomes
``{"tool", "status", "summary", "count", "files", "error"}``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ctxlab._utils.jsonio import (
    dump_json,
    leaves,
    parse_json,
)
from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import (
    Message,
    ToolCall,
)
from ctxlab.strategies.base import (
    Base,
    results_of,
    rewrite_results,
)
from ctxlab.strategies.helpers.text import (
    clip,
    is_text,
    with_text,
)

__all__ = ["MARKER", "stub_of", "tool_stubs"]

MARKER = "_compacted"
"""Set in ``Message.extra`` of a stub, which is never sent; what has it is not stubbed again."""

_SUMMARY = 200
_FILES = 10
_FILE_KEYS = frozenset({"path", "file", "filename", "file_path", "filepath", "notebook_path"})
_FAILURES = ("error", "traceback", "exception", "fatal:", "command failed")


@dataclass(frozen=True, repr=False)
class tool_stubs(Base):
    """Tool results become stubs once the agent's turn is over.

    In a run with a single user message the turn never ends; ``keep`` counts results instead.

    >>> from ctxlab.messages.types import Message, ToolCall
    >>> found = stub_of(Message("tool", "line of output " * 99), ToolCall("c1", "run"))
    >>> found.content[:47]
    '{"tool":"run","status":"success","summary":"lin'

    Source: seed design "Hybrid session management" (tool compaction).
    """

    keep: int | None = None
    "newest results that stay; None: all of the current turn, however many"

    def __call__(self, context: Context, /) -> Context:
        history = context.history
        if self.keep is None:
            newest = bisect_left(history.users, context.length) - 1
            upto = bisect_left(results_of(context), history.users[newest] if newest >= 0 else 0)
        else:
            upto = bisect_left(results_of(context), context.length) - self.keep
        rewrite_results(context, self, upto, stub_of, Form.STUB)
        return context


def stub_of(message: Message, call: ToolCall | None) -> Message | None:
    """The stub that stands for a tool result; None where it would not be shorter.

    >>> call = ToolCall("c1", "search_vault")
    >>> found = '{"results": [{"path": "Notes/foo.md", "text": "…"}, {"path": "Notes/bar.md"}]}'
    >>> stub_of(Message("tool", found + " " * 99, tool_call_id="c1"), call).content[:63]
    '{"tool":"search_vault","status":"success","summary":"2 results"'
    """
    text = message.text
    if MARKER in message.extra:
        return None
    try:
        value = parse_json(text)
    except ValueError:
        value = None
    if not isinstance(value, (dict, list)):
        value = None
    error = _error(message, text, value)
    stub: dict[str, Any] = {"tool": call.name if call else message.name or "unknown"}
    stub["status"] = "error" if error else "success"
    if value is None:
        stub["summary"] = clip(text.strip(), _SUMMARY)
    else:
        count = _count(value)
        stub["summary"] = f"{count} results" if count is not None else _keys(value)
        if count is not None:
            stub["count"] = count
        if files := list(dict.fromkeys(_files(value)))[:_FILES]:
            stub["files"] = files
    if error and value is not None:
        stub["error"] = clip(error, _SUMMARY)
    line = dump_json(stub)
    if len(line) >= len(text) and is_text(message):
        return None
    return with_text(message, line).replace(extra={**message.extra, MARKER: True})


def _error(message: Message, text: str, value: Any) -> str | None:
    """What went wrong, where something did."""
    if isinstance(value, dict):
        said = value.get("error")
        if said or value.get("ok") is False or value.get("success") is False:
            return said if isinstance(said, str) else dump_json(said or value)
    failed = message.extra.get("is_error") or text[:40].lower().lstrip().startswith(_FAILURES)
    return text if failed else None


def _count(value: Any) -> int | None:
    """How many results there are: the length of the list, or of the only list in the object."""
    if isinstance(value, list):
        return len(value)
    lists = [item for item in value.values() if isinstance(item, list)]
    return len(lists[0]) if len(lists) == 1 else None


def _keys(value: dict[str, Any]) -> str:
    return clip("object with " + ", ".join(map(str, value)), _SUMMARY)


def _files(value: Any) -> Iterator[str]:
    for path, leaf in leaves(value):
        key = path.rsplit(".", 1)[-1].split("[", 1)[0]
        if isinstance(leaf, str) and (key in _FILE_KEYS or key == "files"):
            yield leaf
