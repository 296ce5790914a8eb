"""Recordings for tests of tuning, in which agents use names from much earlier results."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from ctxlab.messages.types import Message, Recording, ToolCall


def trip(
    number: int, steps: int = 14, cluster: str | None = None, format: str | None = None
) -> Recording:
    """Return a recording whose steps read files of 300 to 900 tokens.

    From step 9 on, most steps look up a ticket that an earlier tool result named.
    """
    chance = random.Random(number)
    messages = [Message("system", "You are careful."), Message("user", f"Repair order {number}.")]
    for step in range(steps):
        far = step >= 9 and chance.random() < 0.7
        call = ToolCall(f"c{step}", "read_file", f'{{"path": "src/part_{number}_{step}.py"}}')
        if far:  # only tool results name tickets
            ticket = f"AB-{number}{chance.randrange(step - 6):03d}"
            call = ToolCall(f"c{step}", "look_up", f'{{"ticket": "{ticket}"}}')
        lines = [f"value_{step}_{i} = {i * 7}" for i in range(chance.randrange(40, 120))]
        known = f"see src/part_{number}_{step + 1}.py and ticket AB-{number}{step:03d}"
        lines.insert(chance.randrange(len(lines)), known)
        messages += [
            Message("assistant", None, tool_calls=(call,)),
            Message("tool", "\n".join(lines), tool_call_id=call.id),
        ]
    messages.append(Message("assistant", "Done."))
    return Recording(f"trip-{number}", tuple(messages), cluster=cluster, format=format)


def trips(count: int, each: int = 1) -> list[Recording]:
    """Return ``count`` clusters of ``each`` recordings, of several lengths and two formats."""
    return [
        trip(
            number * each + again,
            steps=12 + number % 5 * 3,
            cluster=f"task-{number}",
            format=("one", "other")[number % 2],
        )
        for number in range(count)
        for again in range(each)
    ]


def hypervolume(points: Iterable[Sequence[float]], worst: float) -> float:
    """Return the area that points (cost, gain) dominate, up to the cost ``worst``."""
    area = best = 0.0
    kept = []
    for cost, gain in sorted((cost, gain) for cost, gain in points if cost < worst):
        if gain > best:
            kept.append((cost, gain))
            best = gain
    for (cost, gain), (until, _) in zip(kept, [*kept[1:], (worst, 0.0)], strict=True):
        area += (until - cost) * gain
    return area
