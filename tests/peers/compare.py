"""Compare the requests of a baseline with those of its upstream package on the same recordings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ctxlab.context.context import Context
from ctxlab.evaluation.engine import PreparedRecording, Trace, replay_trace
from ctxlab.formats import load
from ctxlab.llm.base import Client
from ctxlab.messages.types import Message, Recording
from ctxlab.strategies import parse_strategy
from ctxlab.tokens.counter import TokenCounter

FOLDERS = {
    "claude-code-entireio": 3,
    "pi-mono": 2,
    "swe-agent": 3,
    "openhands": 2,
    "tau-bench": 6,
    "gemini-cli-entireio": 1,
    "longmemeval": 1,
}
"""Number of real recordings from each folder: coding agents, customer service, and chat."""

LONGEST = 160
"""Maximum number of messages of a recording; packages process all messages for each request."""


@dataclass
class Compared:
    """Number of equal requests and messages of a baseline and its upstream package."""

    requests: int = 0
    same_requests: int = 0
    messages: int = 0
    same_messages: int = 0
    acted: int = 0
    "requests in which the package sent something other than the whole conversation"
    invalid: int = 0
    "requests of the package that a provider would refuse"
    invalid_ours: int = 0
    differences: list[str] = field(default_factory=list)
    "one line for each request that differs, with the first message that is not equal"


def recordings(data: Path | None = None) -> list[Recording]:
    """Load real recordings, or bundled ones if there are none, cut to ``LONGEST`` messages."""
    folder = data or Path(os.environ.get("CTXLAB_DATA", "../shared/data"))
    if not folder.is_dir():
        bundled = load(["bundled:coding-agent", "bundled:support-desk"])
        return [_short(recording) for recording, _ in zip(bundled, range(12), strict=False)]
    chosen: list[Recording] = []
    for name, few in FOLDERS.items():
        found = (
            _short(r) for r in load(str(folder / name), on_error="skip") if len(r.messages) > 12
        )
        chosen += [recording for recording, _ in zip(found, range(few), strict=False)]
    return chosen


def compare(
    name: str,
    options: str,
    recorded: Sequence[Recording],
    limit: int = 16_000,
    client: Client | None = None,
) -> Compared:
    """Compare each request of ``name(options)`` with that of ``peer:name(options)``."""
    result = Compared()
    for recording in recorded:
        prepared = PreparedRecording(recording, TokenCounter("gpt-4o"), client)
        ours, theirs = (
            _sent(prepared, f"{prefix}{name}({options})", limit) for prefix in ("", "peer:")
        )
        for number, (we, they) in enumerate(zip(ours[1], theirs[1], strict=True)):
            here = f"{recording.id} request {number}"
            _count(result, we, they, recording.messages[: prepared.request_positions[number]], here)
        result.invalid += sum(map(bool, theirs[0].violation_counts))
        result.invalid_ours += sum(map(bool, ours[0].violation_counts))
    return result


def _count(
    result: Compared, ours: list[Any], theirs: list[Any], whole: Sequence[Message], here: str
) -> None:
    result.requests += 1
    result.same_requests += ours == theirs
    result.acted += theirs != [m.to_dict() for m in whole]
    for we, they in zip_longest(ours, theirs):
        result.messages += 1
        result.same_messages += we == they
    if ours != theirs:
        pairs = enumerate(zip_longest(ours, theirs))
        place, (we, they) = next((i, pair) for i, pair in pairs if pair[0] != pair[1])
        sizes = f"{len(ours)} and {len(theirs)} of {len(whole)} messages"
        said = f"ours {_brief(we)}, theirs {_brief(they)}"
        result.differences.append(f"{here}: {sizes}; at {place} {said}")


def _sent(prepared: PreparedRecording, spec: str, limit: int) -> tuple[Trace, list[list[Any]]]:
    def look(context: Context) -> list[Any]:
        return [message.to_dict() for message in context.messages]

    trace = replay_trace(
        prepared, parse_strategy(spec), prepared.make_budget(limit), {"sent": look}
    )
    return trace, trace.observations["sent"]


def _short(recording: Recording) -> Recording:
    from msgspec.structs import replace

    return replace(recording, messages=recording.messages[:LONGEST], probes=(), compactions=())


def _brief(message: dict[str, Any] | None) -> str:
    if message is None:
        return "nothing"
    return f"{message['role']} {str(message['content'])[:60]!r}"


def lines(result: Compared, most: int = 5) -> Iterator[str]:
    """Yield a line with the totals, and lines for the first ``most`` requests that differ."""
    yield (
        f"{result.same_requests} of {result.requests} requests and {result.same_messages} of "
        f"{result.messages} messages equal; acted in {result.acted}; invalid {result.invalid}, "
        f"ours {result.invalid_ours}"
    )
    yield from result.differences[:most]
