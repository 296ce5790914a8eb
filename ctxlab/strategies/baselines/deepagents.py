"""Baseline of deepagents, which truncates arguments, then summarises, when the window is nearly full."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common.compaction import body_start, newest_that_fit
from ctxlab.strategies.baselines.common.parts import object_arguments
from ctxlab.strategies.baselines.common.summaries import summarize_entries
from ctxlab.strategies.baselines.langchain import summarization as sizes
from ctxlab.strategies.baselines.langchain.summarization import ContextSize
from ctxlab.strategies.helpers.text import rewrite_calls, with_text

_MAX_LINE_CHARS, _PREVIEW_LINES, _MAX_ID_CHARS, _MAX_READ_CHARS = 1000, 5, 32, 4000

_STUB_TEMPLATE = """\
Tool result too large, the result of this tool call {call} was saved in the filesystem at this path: \
{path}

You can read the result from the filesystem by using the read_file tool, but make sure to only read \
part of the result at a time.

You can do this by specifying an offset and limit in the read_file tool call. For example, to read the \
first 100 lines, you can use the read_file tool with offset=0 and limit=100.

{note}:

{shown}
"""
_WHOLE_NOTE = "Here is a preview of the result"
_HEAD_AND_TAIL_NOTE = "Here is a preview showing the head and tail of the result"
_GAP_TEMPLATE = "... [{} lines truncated] ..."
_OMITTED_CAVEAT = "lines of the form `{}` indicate omitted lines in the middle of the content"
_LONG_LINES_CAVEAT = (
    f"the output contains lines longer than {_MAX_LINE_CHARS} characters; this preview shows only "
    f"their first {_MAX_LINE_CHARS} characters"
)
_CUT_TEMPLATE = (
    "\n\n[Output was truncated due to context window size limits. The full content is at {path}. \
Use read_file with offset and limit parameters to retrieve specific portions. For example, to read the \
first 100 lines, call read_file with file_path='{path}', offset=0, limit=100.]"
)


def stub_saved_result(message: Message, call: ToolCall | None) -> Message:
    r"""Replace a tool result by a stub that names a file with the full result.

    The stub contains the first and last five lines of the result. If the result is that of a
    ``read_file`` call, the stub contains its first 4,000 characters and names the file that was read.

    Parameters
    ----------
    message : Message
        Tool result to replace.
    call : ToolCall or None
        Tool call that the result answers; None if it is unknown.

    Returns
    -------
    Message
        Tool result with the stub as its text.

    Examples
    --------
    >>> result = Message("tool", "\n".join(map(str, range(40))), tool_call_id="c1")
    >>> for line in stub_saved_result(result, None).text.splitlines()[-8:]:
    ...     print(line)
    4  3
    5  4
    ... [30 lines truncated] ...
    36  35
    37  36
    38  37
    39  38
    40  39
    """
    text = message.text
    path = (object_arguments(call) or {}).get("file_path") if call is not None else None
    if call is not None and call.name == "read_file" and isinstance(path, str) and path:
        return with_text(message, text[:_MAX_READ_CHARS] + _CUT_TEMPLATE.format(path=path))
    name = message.tool_call_id or ""
    path = f"/large_tool_results/{_safe_file_name(name)}"
    visible = f"{name[:_MAX_ID_CHARS]}..." if len(name) > _MAX_ID_CHARS else name
    note, shown = _preview_lines(text.splitlines())
    stub = _STUB_TEMPLATE.format(call=visible, path=path, note=note, shown=shown)
    parts = message.content if isinstance(message.content, tuple) else ()
    if others := [part for part in parts if part.get("type") != "text"]:
        return message.replace(content=({"type": "text", "text": stub}, *others))
    return with_text(message, stub)


def find_call(messages: Sequence[Message], call_id: str | None) -> ToolCall | None:
    """Return the newest tool call with a given id.

    Parameters
    ----------
    messages : sequence of Message
        Messages to search, in order.
    call_id : str or None
        Id of the call. None and the empty string match no call.

    Returns
    -------
    ToolCall or None
        Newest call with this id; None if there is none.
    """
    calls = (call for message in reversed(messages) for call in reversed(message.tool_calls))
    return next((call for call in calls if call_id and call.id == call_id), None)


def _safe_file_name(call_id: str) -> str:
    safe = call_id.replace(".", "_").replace("/", "_").replace("\\", "_")
    if len(safe.encode("utf-8")) > 128:
        return f"call-{sha256(call_id.encode('utf-8')).hexdigest()}"
    return safe


def _preview_lines(lines: list[str]) -> tuple[str, str]:
    """Return a note that introduces a preview of a result, and the preview as numbered lines."""
    gap = len(lines) - 2 * _PREVIEW_LINES
    head, tail = (lines, []) if gap <= 0 else (lines[:_PREVIEW_LINES], lines[-_PREVIEW_LINES:])
    shown = _number_lines(head, 1)
    caveats = []
    if tail:
        marker = _GAP_TEMPLATE.format(gap)
        shown = f"{shown}\n{marker}\n{_number_lines(tail, len(lines) - _PREVIEW_LINES + 1)}"
        caveats.append(_OMITTED_CAVEAT.format(_GAP_TEMPLATE.format("N")))
    if any(len(line) > _MAX_LINE_CHARS for line in (*head, *tail)):
        caveats.append(_LONG_LINES_CAVEAT)
    note = _HEAD_AND_TAIL_NOTE if tail else _WHOLE_NOTE
    return f"{note} ({'; '.join(caveats)})" if caveats else note, shown


def _number_lines(lines: Sequence[str], first: int) -> str:
    width, clipped = len(str(first + len(lines) - 1)), (line[:_MAX_LINE_CHARS] for line in lines)
    return "\n".join(f"{number:>{width}}  {line}" for number, line in enumerate(clipped, first))


_WRITE_TOOLS = ("write_file", "edit_file")
_KEPT_CHARS, _TRUNCATION_MARKER = 20, "...(argument truncated)"
_MAX_WINDOW_SHARE = 0.95
_SUMMARY_PREFIX = """\
You are in the middle of a conversation that has been summarized.

The full conversation history has been saved to /conversation_history/session.md should you need to \
refer back to it for details.

A condensed summary follows:

<summary>
"""
_SUMMARY_SUFFIX = "\n</summary>"


@dataclass(frozen=True, repr=False)
class summarize_near_the_end(BaseStrategy):
    """Truncates arguments of older file writes, then summarises, when the window is nearly full.

    Arguments are truncated in each request; the stored conversation keeps them in full. If the
    request then still reaches ``trigger``, everything except the newest messages is replaced by a
    summary. The summary is a user message that names a file with the full conversation. If the
    request still takes more than 0.95 of the window, the newest tool results are replaced by stubs
    that name a file with the full result. If the request still does not fit, deepagents fails, and
    ctxlab sends the request unchanged.

    Source: deepagents, ``SummarizationMiddleware`` as ``create_deep_agent`` sets it up.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user", f"This is the message with the number {i}") for i in range(60)]
    >>> context = Context(Budget(600), History(TokenCounter("gpt-4o"), said))
    >>> context.advance(60)
    >>> [m.text[-9:] for m in summarize_near_the_end(summary_tokens=99)(context).messages[:2]]
    ['/summary>', 'number 56']
    """

    trigger: ContextSize | tuple[ContextSize, ...] = ("fraction", 0.85)
    "size of the request at which messages are summarised; if there are several, any one is enough"
    keep: ContextSize = ("fraction", 0.1)
    "size of the newest messages, which are not summarised"
    truncate_trigger: ContextSize = ("fraction", 0.85)
    "size of the request at which arguments are truncated"
    truncate_keep: ContextSize = ("fraction", 0.1)
    "size of the newest messages, whose arguments are not truncated"
    max_length: int = 2000
    "maximum number of characters of an argument that is not truncated"
    summary_tokens: int = 1000
    "target number of tokens of the summary; a longer summary of a model is used unchanged"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Truncate arguments of older file writes, then summarise if that is not enough."""
        limit, entries = context.available, context.entries
        head = body_start(context)
        before = sum(entry.tokens for entry in entries[:head])
        count, tokens = len(entries) - head, context.tokens - before
        most = int(limit * _MAX_WINDOW_SHARE)
        cuts = sizes.is_triggered(self.truncate_trigger, count, context.tokens, limit)
        fits = context.tokens <= most
        if fits and not cuts and not self._is_triggered(context.tokens, count, limit):
            return context
        rest: Sequence[Entry] = entries[head:]
        if cuts:
            rest = self._shorten_arguments(context, rest)
            tokens = sum(entry.tokens for entry in rest)
        if before + tokens <= most and not self._is_triggered(before + tokens, count, limit):
            return self._fork_if_changed(context, head, rest)
        cut = sizes.find_cutoff(rest, 0, self.keep, limit)
        made: list[Entry] = []
        if cut:
            around = _SUMMARY_PREFIX, _SUMMARY_SUFFIX
            said = summarize_entries(context, rest[:cut], self.summary_tokens, self.model, *around)
            message = Message("user", said.strip().join(around))
            size = context.history.counter.count_message(message)
            made = [Entry(message, size, Form.SUMMARY, rest[0].start, rest[cut - 1].stop)]
        made += rest[cut:]
        room = most - before - sum(entry.tokens for entry in made)
        small = self._stub_newest_results(context, made) if room < 0 else {}
        room -= sum(entry.tokens - made[index].tokens for index, entry in small.items())
        if room < 0:
            context.report("deepagents fails: the request is too long even after the compaction")
            return context
        for index, entry in small.items():
            where = head + (cut - 1 if cut else 0) + index
            context.replace(where, entry.message, Form.POINTER)
            made[index] = context.entries[where]
        if cut:
            context.fold(head, head + cut, made[0].message)
            context.report("summary")
            made[0] = context.entries[head]
        return self._fork_if_changed(context, head, made)

    def _is_triggered(self, tokens: int, count: int, limit: int) -> bool:
        return sizes.is_triggered(self.trigger, count, tokens, limit)

    def _stub_newest_results(self, context: Context, entries: Sequence[Entry]) -> dict[int, Entry]:
        """Return stubs of the tool results at the end of ``entries``, by index."""
        messages, small = [entry.message for entry in entries], {}
        index = len(entries) - 1
        while index >= 0 and messages[index].role == "tool":
            call = find_call(messages, messages[index].tool_call_id)
            message = stub_saved_result(messages[index], call)
            tokens, old = context.history.counter.count_message(message), entries[index]
            small[index] = Entry(message, tokens, Form.POINTER, old.start, old.stop)
            index -= 1
        return small

    def _fork_if_changed(self, context: Context, start: int, rest: Sequence[Entry]) -> Context:
        """Return a copy of the context whose entries from ``start`` on are replaced by ``rest``.

        If the entries are already the same, the context itself is returned.
        """
        if all(new is old for new, old in zip(rest, context.entries[start:], strict=True)):
            return context
        return context.fork_with(start, len(context.entries), rest)

    def _shorten_arguments(self, context: Context, rest: Sequence[Entry]) -> Sequence[Entry]:
        stop = self._recent_start(rest, context.available)
        if stop == len(rest):
            return rest
        rewrites = context.history.get_rewrite_cache(self.shorten)
        made: list[Entry] = []
        for entry in rest[:stop]:
            message, tokens = rewrites.apply(entry) if entry.message.tool_calls else (None, 0)
            if message is not None:
                place = entry.start, entry.stop, context.request_index
                entry = Entry(message, tokens, Form.TRUNCATED, *place)
            made.append(entry)
        return [*made, *rest[stop:]]

    def _recent_start(self, rest: Sequence[Entry], limit: int) -> int:
        kind, value = self.truncate_keep
        if kind == "messages":
            return len(rest) - int(value) if len(rest) > value else len(rest)
        return newest_that_fit(rest, max(1, int(sizes.size_tokens(self.truncate_keep, limit))))

    def shorten(self, message: Message, _: ToolCall | None) -> Message | None:
        """Truncate long arguments of the file writes of a message.

        Parameters
        ----------
        message : Message
            Message with tool calls.
        _ : ToolCall or None
            Not used.

        Returns
        -------
        Message or None
            Message with truncated arguments; None if no argument is too long.
        """
        return rewrite_calls(message, self._shorten_call)

    def _shorten_call(self, call: ToolCall) -> ToolCall:
        if call.name not in _WRITE_TOOLS or len(call.arguments) <= self.max_length:
            return call
        arguments = object_arguments(call) or {}
        cut = arguments | {
            key: value[:_KEPT_CHARS] + _TRUNCATION_MARKER
            for key, value in arguments.items()
            if isinstance(value, str) and len(value) > self.max_length
        }
        if cut == arguments:
            return call
        return ToolCall(call.id, call.name, json.dumps(cut, ensure_ascii=False))


_REPOSITORY_URL = "https://github.com/langchain-ai/deepagents/blob/deepagents%3D%3D0.7.32"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "deepagents",
        summarize_near_the_end(),
        "deepagents 0.7.32",
        _REPOSITORY_URL + "/libs/deepagents/deepagents/middleware/summarization.py",
        "At 0.85 of the window, arguments of more than 2,000 characters in older write_file and "
        "edit_file calls are truncated to 20 characters. If that is not enough, everything except "
        "the newest 0.1 of the window is summarised. If more than 0.95 of the window is still in "
        "use, the newest tool results are saved to files, and only their first and last lines are "
        "sent. If that is not enough, deepagents fails; ctxlab sends the request unchanged. Not "
        "implemented: other tools, prompts and result limits of deepagents.",
        (
            "model='gpt-5-mini'",
            "trigger=('tokens', 6000), keep=('messages', 6), truncate_trigger=('messages', 20), "
            "truncate_keep=('messages', 8), max_length=300, model='gpt-5-mini'",
        ),
    ),
)
