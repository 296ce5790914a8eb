"""Build compactions from what each of them changed.

Logs describe a compaction as a change, such as "the messages before this one were summarised" or "these
tool results were cleared". A ``Compaction`` contains the whole context after the change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ctxlab.formats.base import SkipCallback, ignore_skip
from ctxlab.messages.types import CLEARED_RESULT_TEXT, Compaction, Message, Substitute


class CompactionBuilder:
    """Builder of the compactions of one conversation.

    The compactions must be added in the order in which they took place.

    Parameters
    ----------
    messages : sequence of Message
        Messages of the conversation. The list may grow until ``add_summary`` or ``add_clearing`` is
        called for a later position.
    skip : Callable, optional
        Called with a description of each clearing that is skipped.

    Examples
    --------
    >>> said = [Message("user", "hi"), Message("assistant", "hello"), Message("user", "go on")]
    >>> builder = CompactionBuilder(said)
    >>> builder.add_summary(3, "The user said hi.", kept=[2])
    >>> builder.compactions[0].sent_messages(said)[0].content
    'The user said hi.'
    """

    def __init__(self, messages: Sequence[Message], skip: SkipCallback = ignore_skip) -> None:
        self.compactions: list[Compaction] = []
        "the compactions that were added, in order"
        self._messages, self._skip = messages, skip

    def context_before(self, position: int) -> list[int | Substitute]:
        """Return the context at a position: that of the last compaction, and all messages since then.

        Parameters
        ----------
        position : int
            Position of a message.

        Returns
        -------
        list of int or Substitute
            Messages of the context, as in ``Compaction.context``.
        """
        if not self.compactions:
            return [*range(position)]
        last = self.compactions[-1]
        return [*last.context, *range(last.position, position)]

    def add_summary(
        self,
        position: int,
        summary: str | Sequence[Message] | None,
        kept: Iterable[int] = (),
        added: Sequence[Message] = (),
        **fields: Any,
    ) -> None:
        """Add a compaction that removed messages.

        System messages are always kept.

        Parameters
        ----------
        position : int
            Position of the first message after the compaction.
        summary : str, sequence of Message or None
            Text of the summary, or all messages that were added. They take the place of the first
            message that was removed.
        kept : iterable of int
            Positions of the messages that were kept. Messages that an earlier compaction removed
            return to the context.
        added : sequence of Message, optional
            Messages that were added at the end of the context.
        **fields : Any
            Other fields of the compaction.
        """
        if isinstance(summary, str):
            summary = [Message("user", summary)] if summary else []
        before, stayed = self.context_before(position), frozenset(kept)
        held = {_source(item) for item in before}
        stays = [self._is_system(item) or _source(item) in stayed for item in before]
        first = stays.index(False) if False in stays else 0
        if all(stays):  # nothing was removed: the summary stands before the conversation
            first = next((i for i, item in enumerate(before) if not self._is_system(item)), 0)
        rest = [item for item, stay in zip(before[first:], stays[first:], strict=True) if stay]
        restored = sorted({place for place in stayed if place < position} - held)
        rest = sorted([*rest, *restored], key=lambda item: _source(item) or 0)
        context = (*before[:first], *map(Substitute, summary or ()), *rest)
        context += tuple(map(Substitute, added))
        self.compactions.append(Compaction(position, context, **fields))

    def add_clearing(
        self, position: int, calls: Collection[str], text: str = CLEARED_RESULT_TEXT, **fields: Any
    ) -> None:
        """Add a compaction that replaced the contents of tool results by a text.

        Results that are not in the context are left out. If there is no other, the clearing is skipped.

        Parameters
        ----------
        position : int
            Position of the first message after the compaction.
        calls : collection of str
            Ids of the calls whose results were cleared.
        text : str, optional
            Text that replaced the contents.
        **fields : Any
            Other fields of the compaction.
        """
        context, ids = self.context_before(position), frozenset(calls)
        changed = False
        for index, item in enumerate(context):
            if isinstance(item, int) and self._messages[item].tool_call_id in ids:
                context[index] = Substitute(self._messages[item].replace(content=text), item)
                changed = True
        if changed:
            self.compactions.append(Compaction(position, tuple(context), "clear", **fields))
        else:
            self._skip("clearing of results that are not in the context")

    def _is_system(self, item: int | Substitute) -> bool:
        message = self._messages[item] if isinstance(item, int) else item.message
        return message.role == "system"


def _source(item: int | Substitute) -> int | None:
    """Return the position of the recorded message of an item; None for an added message."""
    return item if isinstance(item, int) else item.source
