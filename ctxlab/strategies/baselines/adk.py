"""Baselines of Google's ADK: one sends only the current turn, the other summarises older turns."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.messages.types import Message
from ctxlab.strategies.baselines.base import Baseline, BaselineStrategy
from ctxlab.strategies.baselines.common import summaries
from ctxlab.strategies.baselines.common.compaction import body_start
from ctxlab.strategies.baselines.common.parts import object_arguments, split_parts
from ctxlab.strategies.baselines.settings import Setting
from ctxlab.strategies.helpers.text import with_text

_MAX_RESULT_CHARS = 2000
_CUT_TEMPLATE = "{}... [truncated {} chars]"


class _AdkStrategy(BaselineStrategy):
    """Base class that leaves out what ADK sends in no request.

    These are user and assistant messages with neither text nor tool calls, results without a call,
    and calls without a result. A call may be answered later, so it is left out of a single request.
    """

    def _leave_out(self, context: Context, begin: int = 0) -> Context:
        """Drop messages from position ``begin`` on, and return the context of the request."""
        key = self, "pairs"
        state = context.strategy_state.get(key)
        if state is None or state["begin"] != begin:
            state = {"begin": begin, "next": begin, "called": set(), "answered": set(), "open": {}}
            context.strategy_state[key] = state
        for position in range(state["next"], context.history_length):
            if not _is_sent(context.history[position], position, state):
                index = context.find_index(position)
                if index is not None:
                    context.drop(index, index + 1)
        state["next"] = context.history_length
        sent = context
        for position in sorted({*state["open"].values()}, reverse=True):
            sent = _without_open_calls(sent, position, state["open"])
        return sent


def _is_sent(message: Message, position: int, state: dict[str, Any]) -> bool:
    """Return False if ADK never sends a message, and remember its calls and its result."""
    if message.role == "tool":
        if message.tool_call_id:
            if message.tool_call_id not in state["called"]:
                return False
            state["answered"].add(message.tool_call_id)
            state["open"].pop(message.tool_call_id, None)
        return True
    for call in message.tool_calls:
        state["called"].add(call.id)
        if call.id and call.id not in state["answered"]:
            state["open"][call.id] = position
    return bool(message.content or message.tool_calls or message.role == "system")


def _without_open_calls(context: Context, position: int, unanswered: Iterable[str]) -> Context:
    """Return a copy of the context without the unanswered calls of one message."""
    index = context.find_index(position)
    if index is None or not context.entries[index].message.tool_calls:
        return context
    old = context.entries[index]
    calls = tuple(call for call in old.message.tool_calls if call.id not in unanswered)
    made = []
    if calls or old.message.content:
        message = old.message.replace(tool_calls=calls)
        tokens = context.history.counter.count_message(message)
        made = [
            Entry(message, tokens, Form.REWRITTEN, position, position + 1, context.request_index)
        ]
    return context.fork_with(index, index + 1, made)


@dataclass(frozen=True, repr=False)
class adk_current_turn(_AdkStrategy):
    """Drops everything before the newest user message, except the system prompt.

    Messages with neither text nor tool calls, calls without a result and results without a call are
    left out too.

    Source: Google ADK, ``LlmAgent(include_contents="none")``.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> talk = [Message("user", "Hello"), Message("assistant", "Hi"), Message("user", "Bye")]
    >>> context = Context(Budget(1000), History(TokenCounter("gpt-4o"), talk))
    >>> context.advance(3)
    >>> [m.content for m in adk_current_turn()(context).messages]
    ['Bye']
    """

    def __call__(self, context: Context, /) -> Context:
        """Drop everything before the newest user message, except the system prompt."""
        history = context.history
        newest = bisect_left(history.user_positions, context.history_length) - 1
        while newest >= 0 and not history[history.user_positions[newest]].content:
            newest -= 1  # an empty message begins no turn
        start, turn = body_start(context), context.history_length
        if newest >= 0:
            turn = history.user_positions[newest]
        stop = context.index_at_or_after(turn)
        if start < stop:
            context.drop(start, stop)
        return self._leave_out(context, turn) if newest >= 0 else context


@dataclass(frozen=True, repr=False)
class adk_compaction(_AdkStrategy):
    """Replaces every ``compaction_interval`` completed turns by a summary.

    The summary also covers the ``overlap_size`` turns before these turns. Each compaction adds
    another summary, as a message of the assistant. Turns are compacted up to the last message at
    which all tool calls have results. They are not compacted if they are smaller than the last
    summary. The summariser gets at most 2,000 characters of a tool result. The task is in the first
    turn and is summarised like other messages.

    Source: Google ADK, ``EventsCompactionConfig``.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> talk = [Message("user", f"Question {i}, which is long. " * 9) for i in range(4)]
    >>> context = Context(Budget(1000), History(TokenCounter("gpt-4o"), talk))
    >>> context.advance(len(talk))
    >>> [m.role for m in adk_compaction()(context).messages]
    ['assistant', 'user']
    """

    positive = ("compaction_interval",)
    compaction_interval: int = 3
    "number of completed turns that one summary replaces"
    overlap_size: int = 1
    "number of earlier turns that the summary also covers"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Replace every ``compaction_interval`` completed turns by a summary."""
        sent = self._leave_out(context)
        # A turn is completed when the next user message has arrived.
        over = bisect_left(context.history.user_positions, context.history_length) - 1
        seen: int = context.strategy_state.get(self, 0)
        if over <= seen:
            return sent
        for turn in range(seen, over):
            self._compact(context, turn)
        context.strategy_state[self] = over
        return self._leave_out(context)

    def _compact(self, context: Context, turn: int) -> None:
        """Compact after the end of a turn, if there are enough new turns."""
        history, turns = context.history, context.history.user_positions
        made: list[tuple[int, int, int]]
        made = context.strategy_state.setdefault((self, "made"), [])
        done = made[-1][1] if made else 0
        first = max(0, bisect_right(turns, done) - 1)  # the oldest turn with new messages
        if turn + 1 - first < self.compaction_interval:
            return
        begin = turns[max(0, first - self.overlap_size)]
        stop = begin + _complete_length(history[begin : turns[turn + 1]], turns[turn] - begin)
        new = range(max(begin, done), stop)
        replaced = [each for each in made if each[0] >= begin]
        saved = sum(content_chars(block) for block in _blocks(history[new.start : new.stop]))
        saved += sum(chars for *_, chars in replaced) - content_chars(())
        if not new or saved <= (made[-1][2] if made else 0):
            return
        start, end = map(context.index_at_or_after, (new.start, new.stop))
        start -= len(replaced)
        if start >= end:
            return
        told = [_shorten_result(message) for message in history[begin:stop]]
        source_tokens = history.tokens_before[stop] - history.tokens_before[new.start]
        most = summaries.limit_tokens(source_tokens, self.model)
        text = summaries.write_unchecked_summary(context, "", told, most, self.model)
        if not text.strip():
            return  # a provider rejects an empty message
        summary = Message("assistant", text)
        context.fold(start, end, summary)
        context.report("summary")
        kept = made[: len(made) - len(replaced)]
        context.strategy_state[self, "made"] = [*kept, (begin, stop, content_chars((summary,)))]


def _blocks(messages: Iterable[Message]) -> list[tuple[Message, ...]]:
    """Group messages into events of ADK: a message, or several consecutive tool results."""
    blocks: list[tuple[Message, ...]] = []
    for message in messages:
        if message.role == "tool" and blocks and blocks[-1][0].role == "tool":
            blocks[-1] += (message,)
        elif message.role != "system":
            blocks.append((message,))
    return blocks


def _complete_length(messages: Sequence[Message], last_turn: int) -> int:
    """Return the length of the longest beginning that has the result of each of its calls.

    Calls of earlier turns than the last, which begins at ``last_turn``, are ignored if they have no
    result at all.
    """
    answered = {message.tool_call_id for message in messages if message.role == "tool"}
    unanswered: set[str] = set()
    safe, ignoring = 0, 0
    open_calls: set[str] = set()
    for index, message in enumerate(messages):
        if message.role == "tool":
            open_calls.discard(message.tool_call_id or "")
        calls = {call.id for call in message.tool_calls if call.id}
        open_calls |= calls
        if index < last_turn:
            unanswered |= calls - answered
        more = index + 1 < len(messages) and messages[index + 1].role == message.role == "tool"
        if not open_calls and not more:
            safe = index + 1
        if not open_calls - unanswered and not more:
            ignoring = index + 1
    if safe and safe < len(messages) and messages[safe].role == "user":
        return safe  # what is left out begins a turn
    return max(safe, ignoring)


def _shorten_result(message: Message) -> Message:
    text, most = message.text, _MAX_RESULT_CHARS
    if message.role != "tool" or len(text) <= most:
        return message
    return with_text(message, _CUT_TEMPLATE.format(text[:most], len(text) - most))


def content_parts(block: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the parts of the content with which ADK stores a message.

    Parameters
    ----------
    block : sequence of Message
        One message, or several consecutive tool results.

    Returns
    -------
    list of dict
        Parts in the JSON form of the Gemini API.

    Examples
    --------
    >>> content_parts([Message("user", "Hello")])
    [{'text': 'Hello'}]
    """
    return [part for message in block for part in _message_parts(message)]


def _message_parts(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        named = {"id": message.tool_call_id or "", "name": message.name or "tool"}
        return [{"function_response": {**named, "response": {"result": message.text}}}]
    said = split_parts(message) if message.content or message.tool_calls else [(False, "")]
    parts: list[dict[str, Any]] = [
        {"file_data": {"file_uri": value}} if is_image else {"text": value}
        for is_image, value in said
    ]
    for call in message.tool_calls:
        arguments = object_arguments(call)
        args = {"arguments": call.arguments} if arguments is None else arguments
        parts.append({"function_call": {"id": call.id, "name": call.name, "args": args}})
    return parts


def content_chars(block: Sequence[Message]) -> int:
    """Return the length of a message as ADK measures it: in characters of the stored JSON.

    Parameters
    ----------
    block : sequence of Message
        One message, several consecutive tool results, or nothing.

    Returns
    -------
    int
        Number of characters.

    Examples
    --------
    >>> content_chars([Message("user", "Hello")])
    42
    """
    role = "model" if not block or block[0].role == "assistant" else "user"
    content = {"parts": content_parts(block), "role": role}
    return len(json.dumps(content, ensure_ascii=False, separators=(",", ":")))


_SOURCE_URL = "https://github.com/google/adk-python/blob/v2.13.0/src/google/adk/"
_VERSION = "google-adk 2.13.0"
_CONFIG = "google.adk.apps.app", "EventsCompactionConfig"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "adk.include_contents_none",
        adk_current_turn(),
        _VERSION,
        _SOURCE_URL + "flows/llm_flows/context/_contents.py",
        "Sends the system prompt and the current turn, which starts with the newest user message. "
        "Calls without a result and results without a call are left out.",
        ("",),
    ),
    Baseline(
        "adk.compaction",
        adk_compaction(),
        _VERSION,
        _SOURCE_URL + "apps/compaction.py",
        "Replaces every 3 completed turns by a summary, which also covers the turn before them. "
        "ADK has no default values; these are from its documentation. If the conversation has a "
        "single user message, nothing is compacted. Not implemented: compaction at a number of "
        "tokens (`token_threshold`).",
        (
            "model='scripted'",
            "compaction_interval=1, overlap_size=0, model='scripted'",
            "compaction_interval=2, overlap_size=3, model='scripted'",
        ),
        settings=(
            Setting(
                "compaction_interval", "python", _CONFIG[0], f"{_CONFIG[1]}.compaction_interval"
            ),
            Setting("overlap_size", "python", _CONFIG[0], f"{_CONFIG[1]}.overlap_size"),
            Setting(
                "model",
                "python",
                _CONFIG[0],
                f"{_CONFIG[1]}.summarizer",
                "LlmEventSummarizer(llm=Gemini(model={value}))",
                note="of ctxlab: without a summarizer, ADK uses the model of the agent",
            ),
        ),
    ),
)
