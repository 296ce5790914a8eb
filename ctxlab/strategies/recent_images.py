"""Strategy that replaces older images, such as screenshots, by a placeholder text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.tokens.images import image_parts, is_image_part

_PLACEHOLDER = {"type": "text", "text": "[image left out]"}


@dataclass(frozen=True, repr=False)
class recent_images(BaseStrategy):
    r"""Replaces older images by a placeholder text and keeps the other parts of their messages.

    Source: Anthropic's computer-use demo (``only_n_most_recent_images``). The demo inserts no
    placeholder for a removed image. Its parameter ``min_removal_threshold`` is ``chunk`` in ctxlab; the
    demo sets it to the number of images to keep.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> shot = {"type": "image_url", "image_url": {"url": "https://ex.org/a.png"}}
    >>> said = [Message("user", ({"type": "text", "text": name}, shot)) for name in "abc"]
    >>> context = Context(Budget(9000), History(TokenCounter("gpt-4o"), said))
    >>> context.advance(3)
    >>> [m.text for m in recent_images(keep=1)(context).messages]
    ['a\n[image left out]', 'b\n[image left out]', 'c']
    """

    keep: int = 3
    "number of newest images to keep"
    chunk: int = 1
    """number of images to replace at a time, so that up to ``keep + chunk - 1`` images stay; a larger
    number changes earlier messages less often, and the prompt cache stays valid longer"""

    def __post_init__(self) -> None:
        """Raise SpecError if a parameter is invalid."""
        super().__post_init__()
        if self.chunk < 1:
            raise SpecError("recent_images: expected a chunk of 1 or more, got 0")

    def __call__(self, context: Context, /) -> Context:
        """Replace all images except for the ``keep`` newest."""
        looked, seen, gone = context.strategy_state.get(self, (0, (), 0))
        if looked < context.history_length:
            new = context.history.entries[looked : context.history_length]
            # An image is identified by the position of its message.
            seen += tuple(e.start for e in new for _ in image_parts(e.message))
        going = len(seen) - self.keep
        going -= (gone + going) % self.chunk if going > 0 else 0
        going = max(0, going)
        for position, count in Counter(seen[:going]).items():
            index = context.find_index(position)
            if index is None or context.entries[index].is_aggregate:
                continue
            if made := _remove_images(context.entries[index].message, count):
                form = Form.STUB if made.role == "tool" else Form.TRUNCATED
                context.replace(index, made, form)
        context.strategy_state[self] = context.history_length, seen[going:], gone + going
        return context


def _remove_images(message: Message, count: int) -> Message | None:
    """Replace the first ``count`` images of a message. Return None if the message has no images."""
    if not isinstance(message.content, tuple) or not image_parts(message):
        return None
    parts = list(message.content)
    for index in [i for i, part in enumerate(parts) if is_image_part(part)][:count]:
        parts[index] = _PLACEHOLDER
    return message.replace(content=tuple(parts))
