"""Cline summarises up to a message of the user's; without a model it keeps what the user said."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ctxlab.context import Context
from ctxlab.conversation import Message
from ctxlab.history import Entry, Form
from ctxlab.strategies.base import Base
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.compacting import (
    body,
    compact,
    is_said_by_user,
    ready,
    rejected,
    window,
)

__all__ = ["FAMILY", "digest", "earlier_turns", "user_digest"]

_INPUT = 0.9  # of the window, where a model does not say how much input it takes
_MOST = 50
_PATHS = ("path", "file_path", "target_file", "new_file_path", "old_file_path")


@dataclass(frozen=True, repr=False)
class earlier_turns(Base):
    """Everything before the user's last message becomes a summary, but for the newest tokens.

    It cuts where the user speaks. While an agent works on its first request there is no such place, and
    nothing is done.

    >>> from ctxlab import build_messages
    >>> roles = ("user", "assistant")
    >>> talk = [{"role": r, "content": f"{r} {i} " + "word " * 30} for i in range(12) for r in roles]
    >>> turns = earlier_turns(preserve_recent_tokens=100)
    >>> sent = build_messages(None, talk[:23], strategy=turns, limit=900, reserve=0)
    >>> [m["content"][:14] for m in sent]
    ['Summary of the', 'user 10 word w', 'assistant 10 w', 'user 11 word w']
    """

    threshold_ratio: float = 0.9
    "share of the input tokens at which it compacts; they are 0.9 of the window"
    preserve_recent_tokens: int = 20_000
    "newest tokens that stay at least; no more than what it aims at"
    target_ratio: float = 0.7
    "share of the trigger that it aims at"
    summary_tokens: int = 4_096
    "of the summary at most, and at most a tenth of the window"
    model: str | None = None
    "model that writes the summary; None: its lines are extracted and no model is called"

    def __call__(self, context: Context, /) -> Context:
        trigger = self.threshold_ratio * _INPUT * window(context)
        start = body(context)
        newest = bisect_left(context.history.users, context.length) - 1
        if newest < 0 or not ready(context, self, trigger):
            return context
        cut = context.index_from(context.history.users[newest])
        room = min(self.preserve_recent_tokens, self.target_ratio * trigger)
        index = len(context.entries)
        while index > start and room > 0:
            index -= 1
            room -= context.entries[index].tokens
        cut = min(cut, index)
        while cut > start and not (is_said_by_user(context.entries[cut]) and context.is_cut(cut)):
            cut -= 1
        if cut > start:
            compact(context, self, start, cut, self.summary_tokens, self.model)
        return context


@dataclass(frozen=True, repr=False)
class user_digest(Base):
    """All that the user said stays; of what the agent did, a list of files and commands.

    The newest turn keeps its newest steps and earlier turns their last answer, as far as they fit. Each
    gap becomes a note with the last three texts of the agent in it. No model is called.

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
    "share of the input tokens at which it compacts; they are 0.9 of the window"
    target_ratio: float = 0.5
    "share of the input tokens that it aims at"

    def __call__(self, context: Context, /) -> Context:
        limit = _INPUT * window(context)
        if not ready(context, self, self.threshold_ratio * limit):
            return context
        entries, start = context.entries, body(context)
        turns = [i for i in range(start, len(entries)) if is_said_by_user(entries[i])]
        always = [e.tokens for e in entries if is_said_by_user(e) or e.form is Form.SUMMARY]
        room = self.target_ratio * limit - sum(always) - context.budget.fixed
        gaps: list[tuple[int, int]] = []
        for turn, end in reversed(list(pairwise([*turns, len(entries)]))):
            begin = turn + 1
            while begin < end and entries[begin].form is Form.SUMMARY:
                begin += 1  # the note of what was left out before
            kept, most = end, 1 if end < len(entries) else end - begin
            while kept > begin and end - kept < most and room >= entries[kept - 1].tokens:
                kept -= 1
                room -= entries[kept].tokens
            kept = context.next_cut(kept)
            if end < len(entries) and kept < end and entries[kept].message.role != "assistant":
                kept = end
            if begin < kept:
                gaps.append((turn + 1, min(kept, end)))
        before = context.tokens
        for begin, end in gaps:
            message = digest(entries[begin:end])
            if context.history.counter.message(message) < sum(e.tokens for e in entries[begin:end]):
                context.fold(begin, end, message)
        if context.tokens == before:
            rejected(context, self)
        else:
            context.report("digest")
        return context


def digest(entries: Sequence[Entry]) -> Message:
    """What an agent did, in a few lines: files, commands, and its last three texts.

    A digest among the entries goes into it. The newest ``_MOST`` files and commands stay.

    >>> digest([Entry(Message("assistant", "Done."), 4, Form.VERBATIM, 1, 2)]).text
    'Tool activity left out here.\\nDone.'
    """
    files: dict[str, None] = {}
    commands: dict[str, None] = {}
    texts: list[str] = []
    for entry in entries:
        message = entry.message
        for known, found in ((files, "files"), (commands, "commands")):
            known.update(dict.fromkeys(message.extra.get(found, ())))
        texts += message.extra.get("texts", ())
        for call in message.tool_calls:
            for path, leaf in call.leaves():
                key = path.rsplit(".", 1)[-1].split("[", 1)[0]
                if isinstance(leaf, str) and leaf:
                    if key in _PATHS:
                        files[f"{call.name} {leaf}"] = None
                    elif key in ("command", "commands", "cmd"):
                        commands[leaf] = None
        if message.role == "assistant" and message.text:
            texts.append(message.text)
    extra = {"files": [*files][-_MOST:], "commands": [*commands][-_MOST:], "texts": texts[-3:]}
    lines = ["Tool activity left out here."]
    lines += ["Files: " + ", ".join(extra["files"])] if files else []
    lines += ["Commands:", *extra["commands"]] if commands else []
    return Message("user", "\n".join((*lines, *extra["texts"])), extra=extra)


_DOCUMENT = "https://github.com/cline/cline/tree/main/sdk/packages/core/src/extensions/context"
_READ = "Cline SDK, its description of compaction and compaction-shared.ts at 03297ec; "

FAMILY: tuple[Baseline, ...] = (
    Baseline(
        "cline",
        earlier_turns(),
        _READ + "strategy agentic, its default",
        _DOCUMENT,
        "At 0.81 of the window everything before the user's last message becomes a summary, but for"
        " the newest 20,000 tokens. Where the user has spoken once it does nothing: Cline then cuts"
        " texts to make the request fit, which is not imitated. Its tokens are characters / 3; lists"
        " of files in the summary are the extractive writer's or the model's here.",
    ),
    Baseline(
        "cline.basic",
        user_digest(),
        _READ + "strategy basic",
        _DOCUMENT,
        "Without a model: all that the user said, the newest steps, and a digest of the rest. The"
        " digest is attached to the user's message there and follows it here; that it aims at 0.5 of"
        " the input is Cline's rule for five turns or more. It lists 50 files and commands here.",
    ),
)
