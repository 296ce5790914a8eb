"""Baselines of Claude Code, based on its logs, documentation and users' threads.

Its source code is not public.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form, History
from ctxlab.messages.file_access import (
    COMMAND_KEYS,
    is_tool_error,
    normalize_tool_name,
    parse_file_access,
)
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import BaseStrategy, Strategy, tool_result_positions
from ctxlab.strategies.baselines.base import Baseline, ComposedStrategy
from ctxlab.strategies.baselines.common.compaction import (
    MAX_SUMMARY_TOKENS,
    body_start,
    fresh_start,
    window_tokens,
)
from ctxlab.strategies.baselines.settings import Setting, unavailable
from ctxlab.strategies.observation_mask import observation_mask
from ctxlab.strategies.offload import offload_results
from ctxlab.strategies.triggers.idle import idle

_SUMMARY_ROOM = 20_000
"Tokens that Claude Code reserves for the summary, before it applies a percentage."
_SMALLEST_WINDOW = 200_000
"Smallest window of the models of Claude Code. In smaller windows, ctxlab scales numbers of tokens."
_MAX_GREP_CHARS = 20_000
_MAX_OTHER_CHARS = 50_000


@dataclass(frozen=True, repr=False)
class large_outputs(BaseStrategy):
    r"""Replaces long tool results by their beginning; the agent can read the whole result.

    The results of reading files are never replaced. Results of a search with the tool Grep may have
    20,000 characters, and those of tools that are neither the shell nor Grep 50,000.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> call = {"id": "c1", "type": "function",
    ...         "function": {"name": "Bash", "arguments": '{"command": "make"}'}}
    >>> talk = [{"role": "user", "content": "Build it."}]
    >>> talk += [{"role": "assistant", "content": None, "tool_calls": [call]}]
    >>> talk += [{"role": "tool", "tool_call_id": "c1", "content": "compiling\n" * 4000}]
    >>> sent = build_messages(None, talk, strategy=large_outputs(preview=20))
    >>> print(sent[-1]["content"][:50])
    compiling
    compiling
    [3998 of 4000 lines are left o
    """

    chars: int = 30_000
    "maximum number of characters of the output of a shell command"
    preview: int = 2_000
    "number of characters that are shown"

    def __call__(self, context: Context, /) -> Context:
        """Replace the long tool results that were appended since the last request."""
        return offload_results(context, self, self._is_long, head=self.preview, tail=0)

    def _is_long(self, entry: Entry, call: ToolCall | None) -> bool:
        return len(entry.message.text) > self._max_chars(call)

    def _max_chars(self, call: ToolCall | None) -> float:
        if call is None:
            return _MAX_OTHER_CHARS
        access, arguments = parse_file_access(call), call.parse_arguments()
        if access is not None and access.operation == "read":
            return math.inf
        if isinstance(arguments, dict) and not arguments.keys().isdisjoint(COMMAND_KEYS):
            return self.chars
        is_grep = normalize_tool_name(call.name) == "grep"
        return _MAX_GREP_CHARS if is_grep else _MAX_OTHER_CHARS


@dataclass(frozen=True, repr=False)
class compact_near_limit(fresh_start):
    """Replaces everything except the system prompt by one summary when little of the window is free.

    In windows of less than 200,000 tokens, the numbers of tokens are scaled in proportion to the
    window, so that compaction starts at the same share as in a window of 200,000 tokens.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> roles = ("user", "assistant")
    >>> talk = [{"role": r, "content": f"{r} {i} " + "word " * 30} for i in range(12) for r in roles]
    >>> for limit in (1000, 1200):
    ...     sent = build_messages(None, talk, strategy=compact_near_limit(), limit=limit, reserve=0)
    ...     print(len(sent))
    1
    24
    """

    trigger: float = 1.0
    "share of the window, less 20,000 tokens for the summary, at which compaction starts"
    headroom: int = 33_000
    "compaction starts at the latest when fewer than this number of tokens of the window are free"

    def _find_limit(self, context: Context) -> float:
        """Return the number of tokens at which compaction starts."""
        window = window_tokens(context)
        scale = min(1.0, window / _SMALLEST_WINDOW)
        early = self.trigger * (window - scale * _SUMMARY_ROOM)
        return min(early, window - scale * self.headroom)


class _File(NamedTuple):
    """Positions in the history of the newest tool results about a file; -1: there is none."""

    edited: int = -1
    "result of the newest edit or write"
    source: int = -1
    "newest result from which the content of the file is known: of a read or a write"


@dataclass(frozen=True, repr=False)
class reread_files(BaseStrategy):
    """Inserts the files that were last used after a summary that was made for this request.

    Files that were edited come first, the newest edit first, and then those that were only read. The
    content is that of the newest read or write; later edits are not applied, because ctxlab does not
    have the file. A file that is too long, or whose content is unknown, is only named.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> call = {"id": "c1", "type": "function",
    ...         "function": {"name": "Read", "arguments": '{"file_path": "src/io.py"}'}}
    >>> talk = [{"role": "user", "content": "Why does it fail? " * 160}]
    >>> talk += [{"role": "assistant", "content": None, "tool_calls": [call]}]
    >>> talk += [{"role": "tool", "tool_call_id": "c1", "content": "x = 1"}]
    >>> strategy = fresh_start(trigger=0.5) | reread_files()
    >>> print(build_messages(None, talk, strategy=strategy, limit=1000, reserve=0)[1]["content"])
    The file src/io.py, as it was last read or written:
    x = 1
    """

    files: int = 5
    "maximum number of files"
    tokens: int = 5_000
    "maximum tokens of a file, limited to a fortieth of the context window"

    def __call__(self, context: Context, /) -> Context:
        """Insert the files after a summary that was made for this request."""
        first, entries = body_start(context), context.entries
        summary = entries[first] if first < len(entries) else None
        if summary is None or summary.form is not Form.SUMMARY:
            return context
        done, files, followed = context.strategy_state.get(self, (0, {}, -1))
        if summary.since != context.request_index or followed == context.request_index:
            return context
        results = tool_result_positions(context)
        stop = bisect_left(results, context.history_length)
        files = {**files, **_find_files(context.history, results[done:stop], files)}
        newest = sorted(files.items(), key=lambda item: item[1], reverse=True)[: self.files]
        for place, (path, file) in enumerate(newest, first + 1):
            context.insert(place, self._show_file(context, path, file.source), Form.REWRITTEN)
        context.strategy_state[self] = stop, files, context.request_index
        return context

    def _show_file(self, context: Context, path: str, source: int) -> Message:
        """Return a message with the content of a file, or with its path if it is too long."""
        if source >= 0:
            content = _read_content(context.history, source)
            message = Message(
                "user", f"The file {path}, as it was last read or written:\n{content}"
            )
            most = min(self.tokens, window_tokens(context) // 40)
            if context.history.counter.count_message(message) <= most:
                return message
        return Message("user", f"The file {path} was used before the summary. Read it if needed.")


def _find_files(
    history: History, results: Sequence[int], known: Mapping[str, _File]
) -> dict[str, _File]:
    """Return the files that tool results are about, with the newest results about each."""
    found: dict[str, _File] = {}
    for position in results:
        call = history.calls_by_result.get(position)
        access = parse_file_access(call) if call is not None else None
        if access is None or access.operation == "list" or is_tool_error(history[position]):
            continue
        file = found.get(access.path) or known.get(access.path) or _File()
        if access.operation != "read":
            file = file._replace(edited=position)
        if access.operation != "edit":
            file = file._replace(source=position)
        found[access.path] = file
    return found


def _read_content(history: History, position: int) -> str:
    """Return the content of a file from the result of a read, or from the arguments of a write."""
    call = history.calls_by_result[position]
    access = parse_file_access(call)
    if access is None or access.operation == "read":
        return history[position].text
    texts = (leaf for _, leaf in call.argument_leaves() if isinstance(leaf, str))
    return max(texts, key=len, default="")


@dataclass(frozen=True, repr=False)
class tiered_compaction(ComposedStrategy):
    """Stores long outputs, compacts before the window is full or after a pause, and reads files again.

    Examples
    --------
    >>> tiered_compaction(keep_results=3).compose()
    large_outputs() | idle(fresh_start(trigger=200000), minutes=54.0) \
| idle(observation_mask(keep=3)) | compact_near_limit() | reread_files()
    """

    trigger: float = 1.0
    """share of the window, less 20,000 tokens for the summary, at which compaction starts, if that is
    earlier than ``headroom``"""
    headroom: int = 33_000
    """compaction starts when fewer than this number of tokens of the window are free; in a window of
    less than 200,000 tokens, when 16.5 % are free"""
    idle_tokens: int = 200_000
    "minimum size of a request that is compacted after a pause"
    idle_minutes: float = 54.0
    "minutes without a request after which the conversation is compacted"
    clear_minutes: float = 60.0
    "minutes without a request after which older tool results are cleared"
    keep_results: int = 5
    "number of newest tool results that are not cleared"
    files: int = 5
    "maximum number of files that are read again after a compaction"
    file_tokens: int = 5_000
    "maximum tokens of such a file, limited to a fortieth of the window; longer files are only named"
    output_chars: int = 30_000
    "maximum number of characters of the output of a shell command; longer outputs are stored"
    preview_chars: int = 2_000
    "number of characters that are shown of a stored output"
    summary_tokens: int = MAX_SUMMARY_TOKENS
    "maximum number of tokens of the summary, limited to a tenth of the context window"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def compose(self) -> Strategy:
        """Return the steps as a pipeline.

        Returns
        -------
        Strategy
            Pipeline of the steps.
        """
        most, model = self.summary_tokens, self.model
        return (
            large_outputs(self.output_chars, self.preview_chars)
            | idle(fresh_start(self.idle_tokens, most, model), self.idle_minutes)
            | idle(observation_mask(self.keep_results), self.clear_minutes)
            | compact_near_limit(self.trigger, most, model, headroom=self.headroom)
            | reread_files(self.files, self.file_tokens)
        )


_ENVIRONMENT = 'environment, or "env" in ~/.claude/settings.json'
_PERCENT_SETTING = Setting(
    "trigger",
    "environment",
    _ENVIRONMENT,
    "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE",
    "{percent}",
    note="1 to 100; a value above the default threshold has no effect",
    threshold="share",
)
_SETTINGS = (
    _PERCENT_SETTING,
    *unavailable(
        "headroom",
        note="fixed; autoCompactWindow in ~/.claude/settings.json sets a smaller window",
    ),
    Setting(
        "idle_tokens",
        "environment",
        _ENVIRONMENT,
        "CLAUDE_CODE_IDLE_COMPACT_MIN_TOKENS",
        alternatives=(100_000,),
    ),
    *unavailable(
        "idle_minutes",
        note='fixed; "idleCompaction": false in ~/.claude/settings.json turns it off',
    ),
    *unavailable("clear_minutes", "keep_results", note="set by the server"),
    *unavailable("files", "file_tokens", "preview_chars", note="fixed"),
    Setting(
        "output_chars",
        "environment",
        _ENVIRONMENT,
        "BASH_MAX_OUTPUT_LENGTH",
        note="at most 150,000; users report that it is ignored. MCP tools: MAX_MCP_OUTPUT_TOKENS",
        alternatives=(),
    ),
    *unavailable("summary_tokens", "model", note="of ctxlab"),
)


MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "claude_code",
        tiered_compaction(),
        "Claude Code 2.1.310, as documented on 2026-11-26 and described in users' threads",
        "https://code.claude.com/docs/en/context-window",
        "One summary replaces the whole conversation when fewer than 33,000 tokens of the window are "
        "free (in recorded sessions since 2.1.25), and from 200,000 tokens on also after about 54 idle "
        "minutes (since 2.1.299; ctxlab makes it at the next request). Up to five files are then read "
        "again, the last edited first; a file of more than 5,000 tokens is only named. After 60 idle "
        "minutes, all but the 5 newest tool results are cleared; users report that the server decides "
        "for which accounts. Outputs of more than 30,000 characters (Grep 20,000, other tools 50,000, "
        "files never) are stored, and 2,000 characters are shown. In windows below 200,000 tokens, "
        "which the models of Claude Code do not have, ctxlab scales the sizes of compaction and files. "
        "Not implemented: instructions, skills and plans, which are read again too, and edits of the "
        "server's cache.",
        settings=_SETTINGS,
        formats=("claude-code", "claude-code-stream"),
        window=_SMALLEST_WINDOW,
        caches_summaries=True,
    ),
    Baseline(
        "claude_code.v2_1_20",
        fresh_start(trigger=0.775),
        "Claude Code 2.1.5 to 2.1.20, from recorded sessions",
        "https://code.claude.com/docs/en/context-window",
        "One summary replaces the whole conversation, even during a turn. In recorded sessions of "
        "these versions, Claude Code compacted automatically from 155,031 of 200,000 tokens on and "
        "kept no message; later versions compact from 167,000 tokens on. The threshold is not "
        "documented. Not implemented: Claude Code also clears older tool results before the "
        "compaction, and reads recent files again after it. If the clearing was logged, recorded() "
        "repeats it.",
        settings=(_PERCENT_SETTING, *unavailable("summary_tokens", "model", note="of ctxlab")),
        superseded_by="claude_code",
        caches_summaries=True,
    ),
)
