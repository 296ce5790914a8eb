"""Strategy that replaces older messages by a numbered table of contents.

Each step becomes one line of at most 100 characters. The agent can fetch a step or a turn in full by
its label. The lines are written by a model or extracted from the steps, as described in the design
note "Session Table of Contents".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.context.turns import (
    GET_TURN_TOOL,
    MAX_HEADLINE_CHARS,
    TurnLabel,
    contents_label,
    headline,
    step_at,
    steps_between,
    turn_span,
)
from ctxlab.errors import ModelUnavailable
from ctxlab.llm.base import Request
from ctxlab.messages.types import Message, message_text
from ctxlab.strategies.base import BaseStrategy, summaries_end
from ctxlab.strategies.helpers.text import clip_text
from ctxlab.strategies.summaries.llm import load_prompt
from ctxlab.tokens.models import find_model

_Steps: TypeAlias = Mapping[TurnLabel, Sequence[Message]]
"label of a step → messages of the step"

_Lines: TypeAlias = Mapping[TurnLabel, str]
"label of a step → line of the step in the table of contents"

_HEADER = "Contents of earlier turns; get_turn(turn) gives one in full:"
_UNLISTED_PREFIX = "Earlier turns that are no longer listed: "
_LABELLED_LINE = re.compile(
    r"[-*\s]*(?:(?:turn|step)\s+)?(\d{1,9}(?:\.\d{1,9})?)(?:\s*[.):]\s*|\s+)(.+)", re.IGNORECASE
)
_MAX_STEP_CHARS, _MAX_MESSAGE_CHARS = 1200, 400
_LINE_TOKENS, _REASONING_TOKENS = 50, 2000
_MAX_WINDOW_SHARE = 0.8  # share of the model's context window for prompt and reply


@dataclass(frozen=True, repr=False)
class contents(BaseStrategy):
    """Replaces older messages by a table of contents, from which the agent can fetch turns and steps.

    A step is one reply of the model with its tool calls and their results. A turn is a user message
    with all steps that answer it. When the context fills up, all messages before a recent window are
    replaced by a block, which is one message with a line for each step. The line begins with the label
    of the step, such as ``3.2``. If a turn is complete and has only one step, its line begins with the
    number of the turn, such as ``3.``. Later compactions append further blocks and leave earlier blocks
    unchanged, so a prompt cache stays valid up to the new block. When the blocks exceed a share
    ``share`` of the available tokens, the oldest are replaced by a line that says which turns are no
    longer listed.
    The agent needs the tool ``get_turn(turn)``. ``ctxlab.context.turns.GET_TURN_TOOL`` is the
    definition of the tool, and ``ContextManager.get_turn`` answers its calls.

    Source: design note "Session Table of Contents and Interaction Summaries".

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> talk = [Message("system", "Be brief.")]
    >>> for what in ("the parser", "the tests", "the docs", "the build"):
    ...     talk += [Message("user", f"Fix {what}"), Message("assistant", "Done. " + "It works. " * 30)]
    >>> context = Context(Budget(400), History(TokenCounter("gpt-4o"), talk))
    >>> context.advance(8)
    >>> print(contents(share=0.2)(context).messages[2].content)
    Contents of earlier turns; get_turn(turn) gives one in full:
    1. Fix the parser
    2. Fix the tests
    3. Fix the docs
    """

    needs_tool: ClassVar[str] = GET_TURN_TOOL["function"]["name"]
    "name of the tool with which the agent reads a turn or a step"

    trigger: float = 0.8
    "share of the available tokens above which compaction starts"
    target: float = 0.5
    "share of the available tokens that the request may take after compaction"
    share: float = 0.1
    "maximum share of the available tokens for all blocks together; included in ``target``"
    model: str | None = None
    """model that writes the lines, with one call per block; None: the lines are extracted without a
    model"""
    prompt: str = "contents"
    "prompt of the model: ``contents`` or the path of a file"

    def __post_init__(self) -> None:
        """Raise SpecError if a parameter is invalid or the prompt is unknown."""
        super().__post_init__()
        load_prompt(self.prompt)

    def __call__(self, context: Context, /) -> Context:
        """List older messages in a block if the request exceeds ``trigger`` of the available tokens."""
        if context.tokens <= self.trigger * context.available:
            return context
        first = summaries_end(context)
        start = self._window_start(context, first)
        if start > first:
            self._list_steps(context, first, start)
        return context

    def _window_start(self, context: Context, first: int) -> int:
        """Return the index of the first entry of the recent window.

        The window fits ``target`` and begins at the start of a step if possible.
        """
        entries, head = context.entries, context.first_droppable
        history, begin = context.history, entries[first].start if first < len(entries) else 0
        steps = len(steps_between(history, begin, context.history_length))
        lines = _LINE_TOKENS * steps + sum([entry.tokens for entry in entries[head:first]])
        room = self.target * context.available - min(lines, self.share * context.available)
        room -= sum([entry.tokens for entry in entries[:head]])
        start = len(entries)
        while start > first and entries[start - 1].tokens <= room:
            start -= 1
            room -= entries[start].tokens
        tail = context.last_unit_start
        later = (i for i in range(min(start, tail), tail + 1) if _begins_step(context, i))
        return next(later, min(context.next_safe_cut(start), tail))

    def _list_steps(self, context: Context, block_start: int, window_start: int) -> None:
        """Replace entries ``[block_start, window_start)`` by a block with a line for each step.

        The lines may take a share ``share`` of the available tokens. If not all lines fit, only
        the newest steps are listed.
        """
        entries, limit = context.entries, int(self.share * context.available)
        end = entries[window_start - 1].stop
        labels = _step_labels(context, entries[block_start:window_start])
        # A model call is not worth its cost if the lines would hardly be shorter than the steps.
        before = sum([entry.tokens for entry in entries[block_start:window_start]])
        worth = before > max(limit, _LINE_TOKENS * len(labels))
        lines = self._step_lines(context, labels, end, worth)
        count = context.history.counter.count_text
        room, kept = limit - count(_HEADER) - 8, len(labels)
        while kept and (cost := count(lines[labels[kept - 1]]) + 1) <= room:
            room -= cost
            kept -= 1
        listed = labels[kept:]
        middle = block_start
        if kept:
            begin = turn_span(context.history, listed[0])[0] if listed else end
            cut = max(block_start, context.index_at_or_after(begin))
            middle = min(context.next_safe_cut(cut), window_start)
        block = Message("user", "\n".join([_HEADER, *(lines[label] for label in listed)]))
        if middle < window_start:
            after = context.history.counter.count_message(block)
            if after >= sum([entry.tokens for entry in entries[middle:window_start]]):
                context.report("contents rejected: not shorter than the messages they replace")
                return
            context.fold(middle, window_start, block, Form.POINTER)
            context.report("contents")
        oldest = block_start
        while oldest > context.first_droppable and _is_contents_block(context.entries[oldest - 1]):
            oldest -= 1
        keep = middle
        if middle == block_start:  # all steps are listed: keep the older blocks that fit
            used = context.entries[middle].tokens
            while keep > oldest and (used := used + context.entries[keep - 1].tokens) <= limit:
                keep -= 1
        if keep > oldest:
            self._unlist(context, oldest, keep)

    def _unlist(self, context: Context, start: int, stop: int) -> None:
        """Replace entries ``[start, stop)`` by a line that names the turns no longer listed."""
        going = context.entries[start:stop]
        steps = steps_between(context.history, going[0].start, going[-1].stop) or [TurnLabel(0)]
        first, last = (_label(context, step) for step in (steps[0], steps[-1]))
        message = Message("user", f"{_UNLISTED_PREFIX}{first} to {last}.")
        if context.history.counter.count_message(message) < sum([entry.tokens for entry in going]):
            context.fold(start, stop, message)
            context.report("contents: the oldest turns are no longer listed")

    # --- the lines -----------------------------------------------------------------------------

    def _step_lines(
        self, context: Context, labels: Sequence[TurnLabel], stop: int, ask: bool
    ) -> _Lines:
        """Return a labelled line for each step, made from its messages before position ``stop``.

        If ``ask`` is True and a model is set, the model writes the lines. Lines that the model
        does not return are extracted from the steps.
        """
        history = context.history
        spans = {label: turn_span(history, label) for label in labels}
        steps = {label: history[start : min(end, stop)] for label, (start, end) in spans.items()}
        written: _Lines = {}
        if self.model is not None and ask:
            written = self._request_lines(context, self.model, steps)
        return {
            label: f"{_line_start(context, label)} {written.get(label) or headline(step)}"
            for label, step in steps.items()
        }

    def _request_lines(self, context: Context, model: str, steps: _Steps) -> _Lines:
        """Let a model write the lines. Drop lines that are too long or have an unknown label."""
        request = self._build_request(context, model, steps)
        if request is None:
            context.report(f"contents fallback: {len(steps)} steps are too many for {model}")
            return {}
        try:
            reply = context.ask(request)
        except ModelUnavailable as error:
            context.report(f"contents fallback: {error}")
            return {}
        shown = {str(_label(context, step)): step for step in steps}
        known = ((shown[name], line) for name, line in _parse_lines(reply.text) if name in shown)
        found = {label: line for label, line in known if len(line) <= MAX_HEADLINE_CHARS}
        if missing := len(steps) - len(found):
            what = f"{missing} of {len(steps)} lines missing or too long"
            context.report(f"contents fallback: {what}")
        return found

    def _build_request(self, context: Context, model: str, steps: _Steps) -> Request | None:
        """Return the request to the model, with steps clipped so that they fit its context window.

        Return None if there are too many steps for one request.
        """
        known, each = find_model(model), _MAX_STEP_CHARS
        wanted = _LINE_TOKENS * len(steps) + _REASONING_TOKENS
        reply = min(wanted, known.max_output, known.limit // 4)
        room = int(_MAX_WINDOW_SHARE * known.limit) - reply
        rules = Message("system", load_prompt(self.prompt))
        while each >= MAX_HEADLINE_CHARS:
            shown = (
                f"Turn {_label(context, n)}\n{_format_step(step)}" for n, step in steps.items()
            )
            asked = (rules, Message("user", "\n\n".join(clip_text(text, each) for text in shown)))
            used = context.history.counter.count_request(asked)
            if used <= room:
                return Request(model, asked, max_tokens=reply)
            each = min(each * room // used, each * 9 // 10)
        return None


def _is_contents_block(entry: Entry) -> bool:
    return entry.form is Form.POINTER or entry.message.text.startswith(_UNLISTED_PREFIX)


def _begins_step(context: Context, index: int) -> bool:
    if index >= len(context.entries):
        return False
    position = context.entries[index].start
    begin = turn_span(context.history, step_at(context.history, position))[0]
    return begin == position and context.is_safe_cut(index)


def _step_labels(context: Context, entries: Iterable[Entry]) -> list[TurnLabel]:
    """Return the labels of the steps to which entries belong, in ascending order."""
    found: dict[TurnLabel, None] = {}
    for entry in entries:  # an inserted entry has an empty range and belongs to no step
        found.update(dict.fromkeys(steps_between(context.history, entry.start, entry.stop)))
    return list(found)


def _label(context: Context, step: TurnLabel) -> TurnLabel:
    return contents_label(context.history, step, context.history_length)


def _line_start(context: Context, step: TurnLabel) -> str:
    """Return the beginning of a step's line: ``3.`` for a turn, or ``3.2`` for a step."""
    label = _label(context, step)
    return str(label) if label.step else f"{label}."


def _format_step(step: Sequence[Message]) -> str:
    said = ((m.role, message_text(m).strip()) for m in step)
    return "\n".join(f"{role}: {clip_text(text, _MAX_MESSAGE_CHARS)}" for role, text in said)


def _parse_lines(text: str) -> Iterable[tuple[str, str]]:
    for line in text.splitlines():
        if match := _LABELLED_LINE.fullmatch(line.strip()):
            yield match[1], " ".join(match[2].split())
