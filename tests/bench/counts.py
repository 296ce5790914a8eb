"""Bar 4: the token count of a request equals that of tiktoken for the whole rendered request."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import tiktoken
from replay import corpora
from table import Line

from ctxlab.context.context import Context
from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.messages.types import Message, Recording
from ctxlab.strategies import parse_strategy
from ctxlab.strategies.registry import DEFAULT_LINEUP
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.encodings import load_encoding
from ctxlab.tokens.images import count_image_tokens

_SHARE = 0.25


def exact(quick: bool) -> Iterator[Line]:
    """Compare counts for some requests of each default strategy on each recording."""
    every = corpora()
    recordings = [recording for each in every.values() for recording in each]
    if not recordings:
        yield Line("wrong token counts", "no recordings: set CTXLAB_DATA")
        return
    requests, tokens, wrong = 0, 0, []
    for counted, found, where in _compared(recordings, 1 if quick else 3):
        requests, tokens = requests + 1, tokens + found
        if counted != found:
            wrong.append(f"{where}: {counted:,} instead of {found:,}")
    yield Line(f"{' + '.join(every)}: {requests:,} requests", f"{tokens:,} tokens")
    yield Line("wrong token counts", f"of {requests:,}", [len(wrong)], at_most=0, unit="requests")
    for each in wrong[:5]:
        yield Line(f"  {each}", "")


def _compared(recordings: Sequence[Recording], some: int) -> Iterator[tuple[int, int, str]]:
    """Yield ctxlab's count, tiktoken's count, and a description of each compared request.

    ``some`` is the number of requests of each replay.
    """
    counter, one_pass = TokenCounter("gpt-4o"), _one_pass()
    for recording in recordings:
        prepared = PreparedRecording(recording, counter)
        count = len(prepared.request_positions)
        for number, text in enumerate(DEFAULT_LINEUP if count else ()):
            # Take other requests for each strategy, so that they are spread over the whole recording.
            turns = {
                count * (number + i * len(DEFAULT_LINEUP)) // (some * len(DEFAULT_LINEUP))
                for i in range(some)
            }
            trace = replay_trace(
                prepared, parse_strategy(text), prepared.make_budget(_SHARE), {"sent": _keep(turns)}
            )
            for turn in turns:
                found = one_pass(trace.observations["sent"][turn], recording.tools)
                yield trace.tokens[turn], found, f"{text}, request {turn} of {recording.id}"


def _keep(turns: Collection[int]) -> Callable[[Context], list[Message] | None]:
    return lambda context: context.messages if context.request_index in turns else None


def _one_pass() -> Callable[[Sequence[Message], Sequence[dict[str, Any]]], int]:
    """Return a function that counts a rendered request with o200k and three special tokens."""
    sys.path.append(str(Path(__file__).parents[1] / "helpers"))
    from rendering import CONTROL_TOKENS, render_request

    base = load_encoding("o200k_base")
    special = {text: base.max_token_value + 1 + i for i, text in enumerate(CONTROL_TOKENS)}
    extended = tiktoken.Encoding(
        "o200k_chat",
        pat_str=base._pat_str,
        mergeable_ranks=base._mergeable_ranks,
        special_tokens=special,
    )

    def count(messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> int:
        text = render_request(messages, tools)
        tokens = len(extended.encode(text, allowed_special=set(special), disallowed_special=()))
        parts = (p for m in messages if isinstance(m.content, tuple) for p in m.content)
        pictures = (p for p in parts if p.get("type") in ("image_url", "input_image", "image"))
        return tokens + sum(count_image_tokens(picture, "openai") for picture in pictures)

    return count
