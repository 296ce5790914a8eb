"""Describe the messages of one request of a replay, and compare them with another request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from ctxlab.context.history import Entry
from ctxlab.messages.types import Message
from ctxlab.tokens.images import shown_text

_MESSAGE_COLUMNS = ("role", "form", "first", "last", "tokens", "tool", "text")
_DIFFERENCE_COLUMNS = (
    "first", "last", "role", "form", "other_form", "tokens", "other_tokens", "text", "other_text",
)  # fmt: skip
_TYPES = {"first": "Int64", "last": "Int64", "tokens": "int64", "other_tokens": "int64"}


@dataclass(frozen=True)
class SentRequest:
    """Messages of one request, with what each of them stands for in the recording.

    Examples
    --------
    >>> import ctxlab
    >>> recording = next(iter(ctxlab.load("bundled:coding-agent")))
    >>> sent = ctxlab.replay(recording, "rolling_summary() | panic()", 8000).sent(40)
    >>> sent
    <request 40 of rolling_summary() | panic(): 12 messages, 4,333 tokens>
    >>> list(sent.table.columns)
    ['role', 'form', 'first', 'last', 'tokens', 'tool', 'text']
    >>> sent.table["form"].value_counts().to_dict()
    {'verbatim': 11, 'summary': 1}
    """

    strategy: str
    "text form of the strategy that built the request"
    request: int
    "number of the request in the recording, from 0"
    position: int
    "position in the recording of the message that answers the request"
    entries: tuple[Entry, ...]
    "messages of the request with their forms, source positions and tokens"
    tokens: int
    "tokens of the request, with the tool definitions"

    @cached_property
    def messages(self) -> list[Message]:
        """Messages of the request, in order."""
        return [entry.message for entry in self.entries]

    @cached_property
    def table(self) -> pd.DataFrame:
        """Table with one row per message.

        ``form`` says how the message differs from the recording (see ``ctxlab.Form``). ``first`` and
        ``last`` are the positions of the recorded messages that it stands for; they are missing if it
        was added. ``tool`` is the tool whose result the message is, or the tools that it calls.
        """
        rows = [
            (each.message.role, each.form.value, *_span(each), each.tokens, _tools(each.message),
             shown_text(each.message))
            for each in self.entries
        ]  # fmt: skip
        return _make_table(rows, _MESSAGE_COLUMNS).rename_axis("message")

    def diff(self, other: SentRequest) -> pd.DataFrame:
        """Compare the request with another request for the same reply.

        Parameters
        ----------
        other : SentRequest
            Request that another strategy built, or that has the full history.

        Returns
        -------
        pandas.DataFrame
            One row per message that is not the same in both requests. ``first`` and ``last`` are the
            positions of the recorded messages that it stands for. ``form`` is its form in this request,
            ``other_form`` in the other one: a form of ``ctxlab.Form``; ``covered`` if another message,
            such as a summary, stands for it; ``dropped``; or ``absent`` if it is a summary or another
            message that only one request has. ``tokens``, ``other_tokens``, ``text`` and
            ``other_text`` are what each request has in its place. The differences of the tokens add up
            to the difference of the requests.

        Raises
        ------
        ValueError
            If the requests are before different messages.
        """
        if other.position != self.position:
            raise ValueError(
                f"Expected two requests before message {self.position}, got one before message "
                f"{other.position}; compare requests with the same number"
            )
        sides = (_by_span(self.entries), _by_span(other.entries))
        rows = []
        for span in sorted({*sides[0], *sides[1]}):
            mine, theirs = (side.get(span, []) for side in sides)
            if [each.message for each in mine] == [each.message for each in theirs]:
                continue
            for here, there in _pair(mine, theirs):
                either = here or there
                assert either is not None
                rows.append((
                    *_span(either), either.message.role,
                    _form(here, span, self.entries), _form(there, span, other.entries),
                    here.tokens if here else 0, there.tokens if there else 0,
                    shown_text(here.message) if here else "",
                    shown_text(there.message) if there else "",
                ))  # fmt: skip
        return _make_table(rows, _DIFFERENCE_COLUMNS)

    def __repr__(self) -> str:
        """Return a string with the number of the request, the strategy, the messages and the tokens."""
        size = f"{len(self.entries)} messages, {self.tokens:,} tokens"
        return f"<request {self.request} of {self.strategy}: {size}>"

    def _repr_html_(self) -> str:
        from ctxlab.evaluation.replay_html import sent_html

        return sent_html(self)


def _make_table(rows: Sequence[tuple[Any, ...]], columns: Sequence[str]) -> pd.DataFrame:
    # Strings stay objects, because texts of logs may contain lone surrogates.
    frame = pd.DataFrame(rows, columns=list(columns), dtype=object)
    return frame.astype({name: kind for name, kind in _TYPES.items() if name in columns})


def _span(entry: Entry) -> tuple[int | None, int | None]:
    """Return the first and the last position that an entry stands for; None if it was added."""
    return (entry.start, entry.stop - 1) if entry.stop > entry.start else (None, None)


def _tools(message: Message) -> str:
    return message.name or ", ".join(call.name for call in message.tool_calls)


def _by_span(entries: Sequence[Entry]) -> dict[tuple[int, int], list[Entry]]:
    found = defaultdict(list)
    for each in entries:
        found[each.start, each.stop].append(each)
    return dict(found)


def _pair(
    mine: Sequence[Entry], theirs: Sequence[Entry]
) -> list[tuple[Entry | None, Entry | None]]:
    """Pair the entries for the same positions; there are several only if they were added."""
    longer = max(len(mine), len(theirs))
    pad = [None] * longer
    pairs = zip([*mine, *pad][:longer], [*theirs, *pad][:longer], strict=True)
    return [(a, b) for a, b in pairs if a is None or b is None or a.message != b.message]


def _form(entry: Entry | None, span: tuple[int, int], entries: Sequence[Entry]) -> str:
    """Return the form of an entry, or what became of its positions if it is None."""
    if entry is not None:
        return entry.form.value
    start, stop = span
    if stop - start != 1:
        return "absent"
    covered = any(each.start <= start and stop <= each.stop for each in entries)
    return "covered" if covered else "dropped"
