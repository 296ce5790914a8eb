"""Line about the state of a chat, which is shown after each turn."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ctxlab.cli.output import one_line


@dataclass(frozen=True)
class ChatStatus:
    """State of a chat after a turn."""

    model: str
    "name of the model"
    tokens: int
    "tokens of the last request"
    limit: int
    "size of the context window in tokens"
    usd: float
    "cost of all turns since the chat started, in US dollars; nan if a price is unknown"
    seconds: float
    "duration of the last turn"


def format_status(status: ChatStatus) -> str:
    """Describe the state of a chat on one line.

    Parameters
    ----------
    status : ChatStatus
        State of the chat.

    Returns
    -------
    str
        Model, tokens of the last request with their share of the context window, cost, and time.

    Examples
    --------
    >>> format_status(ChatStatus("gpt-5-mini", 12_345, 400_000, 0.0123, 4.25))
    'gpt-5-mini · 12,345 of 400,000 tokens (3 %) · $0.0123 · 4.2 s'
    >>> format_status(ChatStatus("local", 10, 8_000, float("nan"), 75))
    'local · 10 of 8,000 tokens (<1 %) · 1 min 15 s'
    """
    share = status.tokens / status.limit * 100
    percent = "<1" if 0 < share < 1 else f"{share:.0f}"
    parts = [
        one_line(status.model),
        f"{status.tokens:,} of {status.limit:,} tokens ({percent} %)",
        "" if math.isnan(status.usd) else f"${status.usd:,.4f}",
        _format_seconds(status.seconds),
    ]
    return " · ".join(part for part in parts if part)


def _format_seconds(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
