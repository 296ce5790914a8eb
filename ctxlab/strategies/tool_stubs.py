"""Strategy that replaces tool results by stubs.

A stub is a JSON object on one line that describes the outcome of a tool call. It has the keys
``tool``, ``status`` and ``summary``, and, if they apply, ``count``, ``files`` and ``error``, as
described in the design note "Hybrid session management". The agent can repeat the call if it needs
the full result.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.jsonio import dump_json, iter_leaves, parse_json
from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import BaseStrategy, rewrite_tool_results
from ctxlab.strategies.helpers.text import clip_text, shorten_to
from ctxlab.tokens.images import image_parts

STUB_KEY = "_compacted"
"""Key in ``Message.extra`` that marks a message as a stub, so that it is not replaced again. The key
is not sent to the model."""

OUTCOME_KEY = "outcome"
"""Key in ``Message.extra`` of a tool result with what a stub says: ``summary``, and, if they apply,
``count``, ``files`` and ``error``. The tools of ctxlab's own agents set it, and ``tool_result_cap`` for
results in JSON, which cannot be parsed once they are cut. It is not sent to the model."""

_OUTCOME_KEYS = ("summary", "count", "files", "error")
_MAX_SUMMARY_CHARS = 200
_MAX_FILES = 10
_FILE_KEYS = frozenset({"path", "file", "filename", "file_path", "filepath", "notebook_path"})
_ERROR_PREFIXES = ("error", "traceback", "exception", "fatal:", "command failed")


@dataclass(frozen=True, repr=False)
class tool_stubs(BaseStrategy):
    """Replaces tool results by one-line stubs once the next user message has arrived.

    Set ``keep`` for a conversation with a single user message, because otherwise none of its
    results is replaced.

    Source: design note "Hybrid session management" (tool compaction).

    Examples
    --------
    >>> from ctxlab.messages.types import Message, ToolCall
    >>> found = make_stub(Message("tool", "line of output " * 99), ToolCall("c1", "run"))
    >>> found.content[:47]
    '{"tool":"run","status":"success","summary":"lin'
    """

    keep: int | None = None
    "number of newest tool results to keep; None: keep all results since the newest user message"

    def __call__(self, context: Context, /) -> Context:
        """Replace older tool results by stubs."""
        users, before = context.history.user_positions, context.history_length
        if self.keep is None:
            turns = bisect_left(users, before)
            before = users[turns - 1] if turns else 0
        return rewrite_tool_results(context, self, make_stub, Form.STUB, self.keep or 0, before)


def make_stub(message: Message, call: ToolCall | None) -> Message | None:
    """Create the stub of a tool result.

    Parameters
    ----------
    message : Message
        Message with the tool result.
    call : ToolCall or None
        Tool call that produced the result, if it is known.

    Returns
    -------
    Message or None
        The stub; None if it would not be shorter than the result or if the message is already a
        stub.

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
    outcome = message.extra.get(OUTCOME_KEY)
    if not isinstance(outcome, dict):
        said = text.strip()
        if not said and (images := image_parts(message)):
            said = pluralize(len(images), "image")
        outcome = describe_json(message) or {"summary": clip_text(said, _MAX_SUMMARY_CHARS)}
    failed = "error" in outcome or message.extra.get("is_error")
    if failed is None:  # most recordings do not tell
        failed = text[:40].lower().lstrip().startswith(_ERROR_PREFIXES)
    stub: dict[str, Any] = {"tool": call.name if call else message.name or "unknown"}
    stub["status"] = "error" if failed else "success"
    stub |= {key: outcome[key] for key in _OUTCOME_KEYS if key in outcome}
    short = shorten_to(message, dump_json(stub))
    return short and short.replace(extra={**message.extra, STUB_KEY: True})


def describe_json(message: Message) -> dict[str, Any] | None:
    """Describe a tool result in JSON.

    Parameters
    ----------
    message : Message
        Message with the tool result.

    Returns
    -------
    dict or None
        What a stub says of the result: ``summary``, and, if they apply, ``count``, ``files`` and
        ``error``. None if the text is not a JSON object or array.

    Examples
    --------
    >>> describe_json(Message("tool", '{"hits": [{"path": "a.md"}, {"path": "b.md"}]}'))
    {'summary': '2 results', 'count': 2, 'files': ['a.md', 'b.md']}
    """
    text = message.text
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        value = parse_json(text)
    except ValueError:
        return None
    count = _count_results(value)
    found: dict[str, Any] = {
        "summary": f"{count} results" if count is not None else _describe_keys(value)
    }
    if count is not None:
        found["count"] = count
    if files := list(dict.fromkeys(_iter_files(value)))[:_MAX_FILES]:
        found["files"] = files
    if error := _error_text(value) or (message.extra.get("is_error") and text):
        found["error"] = clip_text(error, _MAX_SUMMARY_CHARS)
    return found


def _error_text(value: Any) -> str | None:
    """Return the error text of the result of a failed call; None if the call succeeded."""
    if isinstance(value, dict):
        said = value.get("error")
        failed = value.get("ok") is False or value.get("success") is False
        if value.get("status") == "error":
            said, failed = said or value.get("message"), True
        if said or failed:
            return said if isinstance(said, str) else dump_json(said or value)
    return None


def _count_results(value: Any) -> int | None:
    """Return the length of a list, or of the only list among the values of an object.

    Return None if the value is an object without a list or with several lists.
    """
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
