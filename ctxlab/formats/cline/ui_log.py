"""Read the billed requests and context changes from the log of the user interface.

``ui_messages.json`` contains what the user saw, and some data that the history of the model lacks:

- ``api_req_started``: one row per request, with its tokens and cost as JSON in ``text``. In Cline,
  ``conversationHistoryIndex`` is the index of the newest history message when the row was written.
  The prompt of the request is the next message of the history.
- ``conversationHistoryDeletedRange`` (Cline): first and last index of the history messages that
  Cline no longer sends.
- ``condense_context`` and ``sliding_window_truncation`` (Roo Code, Kilo Code): the time of a
  compaction, its id, and the number of tokens before it.

``tokensIn`` has three meanings. In Cline, it excludes cached tokens, except for providers whose
handler passes the prompt tokens of OpenAI's API unchanged. In Roo Code since 3.29.5 (November 2025),
it includes cached tokens. Before, it excluded them for Anthropic's API and included them for others.
Roo Code stores the kind of API as ``apiProtocol``; Cline does not have this key. If ``tokensIn`` is
smaller than the cached tokens, it excludes them.

References
----------
github.com/cline/cline ``src/shared/ExtensionMessage.ts`` at 0014234, ``src/core/task/message-state.ts``
at 04e151d and ``src/core/api/providers/openai.ts`` at 0162b82; github.com/RooCodeInc/Roo-Code
``packages/types/src/message.ts`` at 02785b9 and
``packages/core/src/message-utils/consolidateTokenUsage.ts`` at 1ad5afb.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from ctxlab.formats.base import Source
from ctxlab.formats.common.usage import UsageShape
from ctxlab.formats.fields import (
    get_count,
    get_in,
    get_list,
    get_number,
    get_objects,
    get_text,
    parse_if_json,
    require_object,
)
from ctxlab.messages.types import Usage

_Row: TypeAlias = dict[str, Any]

_COUNT_KEYS = ("tokensIn", "tokensOut", "cacheReads", "cacheWrites")
_ROO_TOTALS_SINCE = 1_761_955_200  # 2025-11-01; Kilo Code followed eleven days later
_COMPACTION_KEYS = {"contextCondense": "condenseId", "contextTruncation": "truncationId"}

INCLUSIVE_PROVIDERS = frozenset(
    {"openai", "litellm", "doubao", "fireworks", "hicap", "lmstudio", "qwen", "xai", "zai"}
)
"""Providers of Cline whose input tokens include cached tokens."""


class UiRequest(NamedTuple):
    """A request to the model."""

    usage: Usage | None
    "the billed tokens; None if no tokens were billed"
    cost: float | None
    "the cost in dollars"
    time: float | None
    "start of the request, in seconds since 1970"
    newest_row: int | None
    "index of the newest history message when the request was started; None if it is unknown"
    model: str | None
    "name of the model"


class UiCompaction(NamedTuple):
    """Time and size of a compaction that the history contains."""

    time: float | None
    "time of the compaction, in seconds since 1970"
    tokens_before: int | None
    "number of tokens before the compaction"


class DeletedRange(NamedTuple):
    """A range of history messages that Cline no longer sends."""

    newest_row: int
    "index of the newest history message when the range was first logged"
    first: int
    "index of the first deleted message"
    last: int
    "index of the last deleted message"


@dataclass(frozen=True)
class UiLog:
    """The data of ``ui_messages.json`` that belong to the history of the model."""

    requests: tuple[UiRequest, ...] = ()
    "the requests, in order"
    ranges: tuple[DeletedRange, ...] = ()
    "the changes of the deleted range, in order"
    compactions: dict[str, UiCompaction] = field(default_factory=dict)
    "id of a compaction → its time and size"


def is_ui_log(value: Any) -> bool:
    """Check whether a value is the beginning of ``ui_messages.json``.

    Parameters
    ----------
    value : Any
        A JSON value.

    Returns
    -------
    bool
        True if the value is a list, and its first element has a time and the type say or ask.
    """
    rows = get_objects(value)[:1]
    return any(row.get("type") in ("say", "ask") and "ts" in row for row in rows)


def read_ui_log(file: Source) -> UiLog:
    """Read ``ui_messages.json``.

    Parameters
    ----------
    file : Source
        The file.

    Returns
    -------
    UiLog
        The billed requests and the context changes. Other rows repeat the history for display.

    Raises
    ------
    ReadError
        If the file is malformed and ``on_error`` is ``"raise"``.
    """
    requests: list[UiRequest] = []
    ranges: list[DeletedRange] = []
    compactions: dict[str, UiCompaction] = {}
    for number, value in file.read_json_array():
        with file.handle_errors(number, "element"):
            row = require_object(value, "a row of the user interface")
            if row.get("say") == "api_req_started":
                requests.append(_parse_request(row))
            elif row.get("say") == "subagent_usage":
                file.skip("usage of subagents")
            last = ranges[-1].last if ranges else -1
            if (deleted := _parse_range(row)) and deleted.last > last:
                ranges.append(deleted)
            compactions |= _parse_compactions(row)
    return UiLog(tuple(requests), tuple(ranges), compactions)


def includes_cached(counts: Iterable[int], provider: str | None) -> bool:
    """Check whether the input tokens that Cline logged include the cached tokens.

    Parameters
    ----------
    counts : iterable of int
        The input tokens, followed by the numbers of cached tokens.
    provider : str or None
        Id of the provider, such as ``openai``.

    Returns
    -------
    bool
        True if the handler of the provider counts cached tokens as input tokens.

    Examples
    --------
    >>> includes_cached([9, 4], "openai"), includes_cached([9, 4], "anthropic")
    (True, False)
    """
    sent, *cached = counts
    return provider in INCLUSIVE_PROVIDERS and sent >= sum(cached)


def _parse_request(row: _Row) -> UiRequest:
    info = parse_if_json(row.get("text"))
    if isinstance(info, dict) and "apiProtocol" not in info and "apiProtocol" in row:
        info = info | {"apiProtocol": row["apiProtocol"]}
    time = _seconds(row, "ts")
    usage = _parse_usage(info, time, get_text(row, "modelInfo", "providerId"))
    cost, model = get_number(info, "cost"), get_text(row, "modelInfo", "modelId")
    return UiRequest(usage, cost, time, _history_index(row), model)


def _parse_usage(info: Any, time: float | None, provider: str | None) -> Usage | None:
    sent, _, read, written = (get_count(info, key) for key in _COUNT_KEYS)
    protocol = get_text(info, "apiProtocol")
    if protocol is None:
        inclusive = includes_cached((sent, read, written), provider)
    else:
        old = protocol == "anthropic" and time is not None and time < _ROO_TOTALS_SINCE
        inclusive = sent >= read + written and not old
    return UsageShape(*_COUNT_KEYS, includes_cache=inclusive).parse_billed(info)


def _parse_range(row: _Row) -> DeletedRange | None:
    index, bounds = _history_index(row), get_list(row, "conversationHistoryDeletedRange")
    if index is None or len(bounds) != 2 or not all(map(_is_index, bounds)):
        return None
    return DeletedRange(index, *bounds)


def _parse_compactions(row: _Row) -> dict[str, UiCompaction]:
    found = {}
    for key, id_key in _COMPACTION_KEYS.items():
        if id := get_text(row, key, id_key):
            tokens = get_count(row, key, "prevContextTokens") or None
            found[id] = UiCompaction(_seconds(row, "ts"), tokens)
    return found


def _history_index(row: _Row) -> int | None:
    index = row.get("conversationHistoryIndex")
    return index if _is_index(index) or index == -1 else None


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _seconds(row: _Row, key: str) -> float | None:
    milliseconds = get_number(get_in(row, key))
    return None if milliseconds is None else milliseconds / 1000
