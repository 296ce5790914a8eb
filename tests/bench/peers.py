"""Functions of other packages that prepare a request, to compare their time with ctxlab's.

All functions use the same vocabulary, and the messages are converted in advance. The functions keep
nothing between turns, so the time of a turn can be measured on a few turns.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from ctxlab.messages.types import Message, Recording
from ctxlab.tokens.encodings import load_encoding

Peer = Callable[[int], object]
"""Function that prepares the request with the first ``n`` messages."""

_ENCODE = load_encoding("o200k_base").encode_ordinary


def peers(recording: Recording, limit: int) -> dict[str, Peer | str]:
    """Return the functions by name, or a message for each package that is not installed."""
    messages = recording.messages
    sizes = {
        "recounting from the newest until the limit": lambda n: _newest_first(messages[:n], limit),
        "recounting everything so far": lambda n: sum(map(_tokens, messages[:n])),
    }
    return {**sizes, **_langchain(messages, limit), **_litellm(messages)}


def _tokens(message: Message) -> int:
    calls = message.tool_calls
    return 4 + len(_ENCODE(message.text)) + sum(len(_ENCODE(call.arguments)) for call in calls)


def _newest_first(messages: tuple[Message, ...], limit: int) -> list[Message]:
    kept: list[Message] = []
    for message in reversed(messages):
        limit -= _tokens(message)
        if limit < 0:
            break
        kept.append(message)
    return kept[::-1]


def _langchain(messages: tuple[Message, ...], limit: int) -> dict[str, Peer | str]:
    names = (
        "langchain trim_messages, tiktoken counter",
        "langchain trim_messages, approximate counter",
    )
    try:
        from langchain_core.messages import convert_to_messages, trim_messages
        from langchain_core.messages.utils import count_tokens_approximately
    except ImportError:
        return dict.fromkeys(names, "langchain-core is not installed; run nox -s bench")
    theirs = convert_to_messages([message.to_dict() for message in messages])

    def exact(chain: list[Any]) -> int:
        total = 0
        for message in chain:
            total += 4 + len(_ENCODE(message.text))
            for call in getattr(message, "tool_calls", ()):
                total += len(_ENCODE(str(call["args"])))
        return total

    def trim(n: int, counter: Callable[[list[Any]], int]) -> list[Any]:
        return trim_messages(
            theirs[:n],
            max_tokens=limit,
            token_counter=counter,
            strategy="last",
            start_on="human",
            include_system=True,
        )

    counters: tuple[Callable[[list[Any]], int], ...] = (exact, count_tokens_approximately)
    return {name: partial(trim, counter=c) for name, c in zip(names, counters, strict=True)}


def _litellm(messages: tuple[Message, ...]) -> dict[str, Peer | str]:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise the import uses the network
    import litellm

    theirs = [message.to_dict() for message in messages]
    return {
        "litellm.token_counter every turn": lambda n: litellm.token_counter(
            model="gpt-4o", messages=theirs[:n]
        )
    }
