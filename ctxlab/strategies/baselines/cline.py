"""Baselines of Cline: summaries of earlier turns, and a digest without a model."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.messages.types import Message
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common import compaction
from ctxlab.strategies.baselines.settings import Setting, unavailable

INPUT_SHARE = 0.9
"Share of the context window that is used as the input limit of models without a stated limit."

_MAX_ITEMS = 50
_COMMAND_KEYS = ("command", "commands", "cmd")
_PATH_KEYS = ("path", "file_path", "target_file", "new_file_path", "old_file_path")


class _Turn(NamedTuple):
    """The entries ``[begin, end)`` after a user message, up to the next user message."""

    begin: int
    end: int
    rejected_stop: int = 0
    "end of the entries whose digest was rejected because it was not shorter; 0: none"


@dataclass(frozen=True, repr=False)
class user_digest(compaction.CompactingStrategy):
    """Keeps all user messages, and replaces the agent's older messages by a digest.

    The newest turn keeps its newest messages, and each earlier turn keeps its last reply, if they fit
    the target size. The other messages of a turn are replaced by one digest: a user message with the
    files and commands of the tool calls, and the text of the last three assistant messages. No model
    is called.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    >>> step = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    >>> step += [{"role": "tool", "content": "a line of text " * 9, "tool_call_id": "c"}]
    >>> talk = [{"role": "user", "content": "Fix it"}, *8 * step]
    >>> sent = build_messages(None, talk, strategy=user_digest(), limit=300, reserve=0)
    >>> [m["role"] for m in sent], sent[1]["content"]
    (['user', 'user', 'assistant', 'tool', 'assistant', 'tool'], 'Tool activity left out here.')
    """

    threshold_ratio: float = 0.9
    "share of the input limit at which compaction starts; the input limit is 0.9 of the window"
    target_ratio: float = 0.5
    "share of the input limit that the request may take after compaction"

    def __call__(self, context: Context, /) -> Context:
        """Replace the agent's older messages by digests."""
        limit = INPUT_SHARE * compaction.window_tokens(context)
        if not self.should_compact(context, self.threshold_ratio * limit):
            return context
        turns, fixed_tokens = self._open_turns(context)
        room = self.target_ratio * limit - fixed_tokens - context.budget.overhead
        before = context.tokens
        left: list[tuple[_Turn, int]] = []
        for turn in reversed(turns):
            stop, room = _find_gap(context, turn, room)
            gone = 0
            if stop and stop != turn.rejected_stop:
                going = context.entries[turn.begin : stop]
                message = build_activity_digest(going)
                if context.history.counter.count_message(message) < sum(e.tokens for e in going):
                    context.fold(turn.begin, stop, message)
                    gone = stop - turn.begin - 1
                    fixed_tokens += context.entries[turn.begin].tokens
                    fixed_tokens -= sum(e.tokens for e in going if e.form is Form.SUMMARY)
                else:
                    turn = turn._replace(rejected_stop=stop)
            left.append((turn, gone))
        self._save_turns(context, left[::-1], fixed_tokens)
        if context.tokens == before:
            self.postpone(context)
        else:
            context.report("digest")
        return context

    def _open_turns(self, context: Context) -> tuple[list[_Turn], int]:
        """Return the turns that can be shortened, oldest first, and the total tokens of fixed messages.

        Fixed messages are user messages and digests. A turn that already consists of a digest only
        is not returned.
        """
        state = context.strategy_state.get((self, "turns"))
        if state is None or state[0] != context.version:  # another strategy has edited the context
            state = None, 0, (), 0
        _, seen, known, fixed_tokens = state
        turns: list[_Turn] = list(known)
        entries, first = context.entries, compaction.body_start(context)
        for index in range(seen, len(entries)):
            said = compaction.is_user_message(entries[index])
            if said or entries[index].form is Form.SUMMARY:
                fixed_tokens += entries[index].tokens
            if said and index >= first:
                turns[-1:] = [turn._replace(end=index) for turn in turns[-1:]]
                turns.append(_Turn(index + 1, len(entries)))
        turns[-1:] = [turn._replace(end=len(entries)) for turn in turns[-1:]]
        return turns, fixed_tokens

    def _save_turns(
        self, context: Context, remaining: Sequence[tuple[_Turn, int]], fixed: int
    ) -> None:
        """Save the new range of entries of each turn after older messages were replaced.

        ``remaining`` contains the turns, each with the number of its entries that were removed.
        """
        turns: list[_Turn] = []
        shift = 0
        for turn, gone in remaining:
            begin, vain = turn.begin - shift, turn.rejected_stop and turn.rejected_stop - shift
            shift += gone
            end = turn.end - shift
            digests = all(entry.form is Form.SUMMARY for entry in context.entries[begin:end])
            closed = digests and (end - begin < 2 or context.is_safe_cut(end))
            if not closed or end == len(context.entries):
                turns.append(_Turn(begin, end, 0 if gone else vain))
        state = context.version, len(context.entries), tuple(turns), fixed
        context.strategy_state[self, "turns"] = state


def _find_gap(context: Context, turn: _Turn, room: float) -> tuple[int, float]:
    """Find the entries of a turn to replace by a digest, so that the other entries fit in ``room``.

    Returns the end index of the entries to replace (0 if there are none), and the tokens of
    ``room`` that are still free.
    """
    entries, begin, end = context.entries, turn.begin, turn.end
    while begin < end and entries[begin].form is Form.SUMMARY:
        begin += 1  # digest of an earlier compaction
    newest = end == len(entries)
    kept, most = end, end - begin if newest else 1
    while kept > begin and end - kept < most and room >= entries[kept - 1].tokens:
        kept -= 1
        room -= entries[kept].tokens
    kept = context.next_safe_cut(kept)
    if not newest and kept < end and entries[kept].message.role != "assistant":
        kept = end
    return (min(kept, end) if begin < kept else 0), room


def build_activity_digest(entries: Sequence[Entry]) -> Message:
    r"""Return a digest of an agent's messages, made without a model.

    The digest lists the newest 50 files and the newest 50 commands in the arguments of tool calls.
    It also contains the text of the last three assistant messages. The contents of earlier digests
    among the entries are included.

    Parameters
    ----------
    entries : sequence of Entry
        Entries of the messages to replace.

    Returns
    -------
    Message
        Digest as a user message.

    Examples
    --------
    >>> build_activity_digest([Entry(Message("assistant", "Done."), 4, Form.VERBATIM, 1, 2)]).text
    'Tool activity left out here.\nDone.'
    """
    files: list[str] = []
    commands: list[str] = []
    texts: list[str] = []
    for message in (entry.message for entry in entries):
        files += message.extra.get("files", ())
        commands += message.extra.get("commands", ())
        texts += message.extra.get("texts", ())
        for call in message.tool_calls:
            for path, leaf in call.argument_leaves():
                key = path.rsplit(".", 1)[-1].split("[", 1)[0]
                if isinstance(leaf, str) and leaf:
                    files += [f"{call.name} {leaf}"] if key in _PATH_KEYS else []
                    commands += [leaf] if key in _COMMAND_KEYS else []
        if message.role == "assistant" and message.text:
            texts.append(message.text)
    files, commands = ([*dict.fromkeys(each)][-_MAX_ITEMS:] for each in (files, commands))
    lines = ["Tool activity left out here."]
    lines += ["Files: " + ", ".join(files)] if files else []
    lines += ["Commands:", *commands] if commands else []
    extra = {"files": files, "commands": commands, "texts": texts[-3:]}
    return Message("user", "\n".join((*lines, *texts[-3:])), extra=extra)


@dataclass(frozen=True, repr=False)
class earlier_turns(compaction.CompactingStrategy):
    """Summarises earlier turns, except the newest ``preserve_recent_tokens`` tokens.

    The kept messages always start with a user message. During the first turn there is only one user
    message, so nothing is summarised.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> roles = ("user", "assistant")
    >>> talk = [{"role": r, "content": f"{r} {i} " + "word " * 30} for i in range(12) for r in roles]
    >>> turns = earlier_turns(preserve_recent_tokens=100)
    >>> sent = build_messages(None, talk[:23], strategy=turns, limit=900, reserve=0)
    >>> [m["content"][:14] for m in sent]
    ['Summary of the', 'user 10 word w', 'assistant 10 w', 'user 11 word w']
    """

    threshold_ratio: float = 0.9
    "share of the input limit at which compaction starts; the input limit is 0.9 of the window"
    preserve_recent_tokens: int = 20_000
    "minimum tokens of the newest messages that are kept, limited by ``target_ratio``"
    target_ratio: float = 0.7
    "maximum of ``preserve_recent_tokens``, as a share of the tokens at which compaction starts"
    summary_tokens: int = 8_192
    "maximum number of tokens of the summary, limited to a tenth of the context window"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Summarise earlier turns, except the newest ``preserve_recent_tokens`` tokens."""
        trigger = self.threshold_ratio * INPUT_SHARE * compaction.window_tokens(context)
        start = compaction.body_start(context)
        newest = bisect_left(context.history.user_positions, context.history_length) - 1
        if newest < 0 or not self.should_compact(context, trigger):
            return context
        cut = context.index_at_or_after(context.history.user_positions[newest])
        room = min(self.preserve_recent_tokens, self.target_ratio * trigger)
        entries = context.entries
        index = compaction.start_of_recent(entries, room, start, len(entries))
        for stop in range(min(cut, index), start, -1):
            if compaction.is_user_message(context.entries[stop]) and context.is_safe_cut(stop):
                self.compact(context, start, stop)
                break
        return context


_URL = "https://unpkg.com/@cline/core@0.0.86/dist/extensions/context/compaction-shared.d.ts"
_VERSION = "Cline SDK 0.0.86 (npm @cline/core) and compaction-shared.ts at 03297ec; "
_PLACE = "@cline/core"
_CONFIG = "createAgent.compaction"
_FIXED = "fixed in the source"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "cline",
        earlier_turns(),
        _VERSION + "strategy agentic, its default",
        _URL,
        "At 0.81 of the window, a summary replaces everything before the last user message, except "
        "the newest 20,000 tokens. If there is only one user message, nothing is summarised. Cline "
        "then truncates texts until the request fits; this is not implemented. Cline estimates "
        "tokens as characters / 3; ctxlab counts them. Cline appends lists of files to its "
        "summary; in ctxlab only the summary itself may name files.",
        settings=(
            Setting(
                "preserve_recent_tokens",
                "typescript",
                _PLACE,
                _CONFIG,
                "{ enabled: true, preserveRecentTokens: {json} }",
            ),
            *unavailable("threshold_ratio", "target_ratio", note=_FIXED),
            *unavailable("summary_tokens", "model", note="of ctxlab; Cline: compaction.summarizer"),
        ),
        formats=("cline",),
    ),
    Baseline(
        "cline.basic",
        user_digest(),
        _VERSION + "strategy basic",
        _URL,
        "Works without a model. It keeps all user messages, the agent's newest messages, and a "
        "digest of the agent's other messages. Cline appends the digest to the user message; in "
        "ctxlab it is a separate user message. Messages are removed until the request takes 0.5 of "
        "the input limit, Cline's value for conversations of five turns or more. In ctxlab the "
        "digest lists up to 50 files and 50 commands. All user messages stay, so a long "
        "conversation eventually exceeds any window.",
        settings=unavailable("threshold_ratio", "target_ratio", note=_FIXED),
    ),
)
