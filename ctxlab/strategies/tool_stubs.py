"""Strategy that replaces tool results by stubs: one line of JSON with the outcome of the call.

A stub has the keys ``tool``, ``status``, ``summary``, and where they apply ``count``, ``files`` and
``error`` (after the design note "Hybrid session management"). The agent can repeat the call if it
needs the result.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ctxlab._utils.jsonio import dump_json, iter_leaves, parse_json
from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import BaseStrategy, rewrite_tool_results
from ctxlab.strategies.helpers.text import clip_text, shorten_to

STUB_KEY = "_compacted"
"""Key in ``Message.extra`` of a stub. It is never sent, and marks messages that are not stubbed
again."""

_MAX_SUMMARY_CHARS = 200
_MAX_FILES = 10
_FILE_KEYS = frozenset({"path", "file", "filename", "file_path", "filepath", "notebook_path"})
_ERROR_PREFIXES = ("error", "traceback", "exception", "fatal:", "command failed")


@dataclass(frozen=True, repr=False)
class tool_stubs(BaseStrategy):
    """Replaces tool results by stubs once the agent's turn is over.

    In a run with a single user message the turn never ends; set ``keep`` to count results instead.

    Source: design note "Hybrid session management" (tool compaction).

    Examples
    --------
    >>> from ctxlab.messages.types import Message, ToolCall
    >>> found = make_stub(Message("tool", "line of output " * 99), ToolCall("c1", "run"))
    >>> found.content[:47]
    '{"tool":"run","status":"success","summary":"lin'
    """

    keep: int | None = None
    "newest results to keep; None: all results of the current turn"

    def __call__(self, context: Context, /) -> Context:
        """Replace the tool results of earlier turns, or all but the newest, by stubs."""
        users, before = context.history.user_positions, context.history_length
        if self.keep is None:
            turns = bisect_left(users, before)
            before = users[turns - 1] if turns else 0
        return rewrite_tool_results(context, self, make_stub, Form.STUB, self.keep or 0, before)


def make_stub(message: Message, call: ToolCall | None) -> Message | None:
    """Return the stub of a tool result.

    Parameters
    ----------
    message : Message
        A tool result.
    call : ToolCall or None
        The call that it answers.

    Returns
    -------
    Message or None
        The stub; None if it would not be shorter or the message is a stub already.

    Examples
    --------
    >>> call = ToolCall("c1", "search_vault")
    >>> found = '{"results": [{"path": "Notes/foo.md", "text": "…"}, {"path": "Notes/bar.md"}]}'
    >>> make_stub(Message("tool", found + " " * 99, tool_call_id="c1"), call).content[:63]
    '{"tool":"search_vault","status":"success","summary":"2 results"'
    """
    text = message.text
    if STUB_KEY in message.extra:
        return None
    try:
        value = parse_json(text)
    except ValueError:
        value = None
    if not isinstance(value, (dict, list)):
        value = None
    error = _error_text(message, text, value)
    stub: dict[str, Any] = {"tool": call.name if call else message.name or "unknown"}
    stub["status"] = "error" if error else "success"
    if value is None:
        stub["summary"] = clip_text(text.strip(), _MAX_SUMMARY_CHARS)
    else:
        count = _count_results(value)
        stub["summary"] = f"{count} results" if count is not None else _describe_keys(value)
        if count is not None:
            stub["count"] = count
        if files := list(dict.fromkeys(_iter_files(value)))[:_MAX_FILES]:
            stub["files"] = files
        if error:
            stub["error"] = clip_text(error, _MAX_SUMMARY_CHARS)
    short = shorten_to(message, dump_json(stub))
    return short and short.replace(extra={**message.extra, STUB_KEY: True})


def _error_text(message: Message, text: str, value: Any) -> str | None:
    """Return the error text of a failed call, else None."""
    if isinstance(value, dict):
        said = value.get("error")
        if said or value.get("ok") is False or value.get("success") is False:
            return said if isinstance(said, str) else dump_json(said or value)
    failed = message.extra.get("is_error") or text[:40].lower().lstrip().startswith(_ERROR_PREFIXES)
    return text if failed else None


def _count_results(value: Any) -> int | None:
    """Return the length of the list, or of the only list in the object; else None."""
    if isinstance(value, list):
        return len(value)
    lists = [item for item in value.values() if isinstance(item, list)]
    return len(lists[0]) if len(lists) == 1 else None


def _describe_keys(value: dict[str, Any]) -> str:
    return clip_text("object with " + ", ".join(map(str, value)), _MAX_SUMMARY_CHARS)


def _iter_files(value: Any) -> Iterator[str]:
    for path, leaf in iter_leaves(value):
        key = path.rsplit(".", 1)[-1].split("[", 1)[0]
        if isinstance(leaf, str) and (key in _FILE_KEYS or key == "files"):
            yield leaf
