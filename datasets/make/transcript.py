"""A transcript grows one message at a time, on a clock of its own, and is always a valid request.

Tool calls are answered in the same step in which they are made, so no maker can leave one open.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.messages.types import Message, Probe, Recording, ToolCall, message_text

Call = tuple[str, dict[str, Any]]
"""A tool's name and its arguments."""


class Bag:
    """Draws from pools of phrases; a phrase comes back only after all others of its pool.

    >>> bag = Bag({"greet": ("Hello {name}", "Hi {name}")}, random.Random(1))
    >>> sorted(bag("greet", name="Ada") for _ in range(2))
    ['Hello Ada', 'Hi Ada']
    """

    def __init__(self, pools: Mapping[str, Sequence[str]], rng: random.Random) -> None:
        self.pools, self.rng = pools, rng
        self.left: dict[str, list[str]] = {}

    def __call__(self, pool: str, /, **values: object) -> str:
        """A phrase of the pool with the values put in."""
        if not self.left.get(pool):
            self.left[pool] = list(self.pools[pool])
            self.rng.shuffle(self.left[pool])
        return self.left[pool].pop().format(**values)


class Transcript:
    """The messages so far, the clock, and the tools that answer."""

    def __init__(
        self, rng: random.Random, start: int, execute: Callable[[str, dict[str, Any]], str]
    ) -> None:
        self.rng, self.clock, self.execute = rng, start, execute
        self.messages: list[Message] = []
        self.texts: list[str] = []
        self.calls = 0

    def wait(self, least: int, most: int) -> None:
        """Let time pass, in seconds."""
        self.clock += self.rng.randint(least, most)

    def system(self, text: str) -> None:
        """The system prompt."""
        self._append(Message("system", text, time=self.clock))

    def user(self, text: str, least: int = 40, most: int = 600) -> int:
        """A message of the user after some seconds; returns its position."""
        self.wait(least, most)
        return self._append(Message("user", text, time=self.clock))

    def say(self, text: str, least: int = 3, most: int = 25) -> int:
        """A message of the assistant that calls nothing; returns its position."""
        self.wait(least, most)
        return self._append(Message("assistant", text, time=self.clock))

    def act(self, text: str, *calls: Call) -> list[str]:
        """A message of the assistant that calls tools, and the results in their order."""
        self.wait(3, 25)
        made = []
        for name, arguments in calls:
            self.calls += 1
            made.append(ToolCall(f"call_{self.calls:04d}", name, dump_json(arguments)))
        self._append(Message("assistant", text or None, tuple(made), time=self.clock))
        results = []
        for call, (name, arguments) in zip(made, calls, strict=True):
            self.wait(1, 6)
            results.append(self.execute(name, arguments))
            self._append(
                Message("tool", results[-1], tool_call_id=call.id, name=name, time=self.clock)
            )
        return results

    def age(self, text: str) -> int | None:
        """Characters since the text was last mentioned; None where it never was."""
        behind = 0
        for earlier in reversed(self.texts):
            at = earlier.rfind(text)
            if at >= 0:
                return behind + len(earlier) - at
            behind += len(earlier)
        return None

    def recording(
        self,
        dataset: str,
        name: str,
        cluster: str,
        meta: Mapping[str, Any],
        tools: Sequence[dict[str, Any]] = (),
        probes: Sequence[Probe] = (),
    ) -> Recording:
        """All of it as a recording; ``cluster`` is shared by the trials of one task."""
        return Recording(
            id=f"{dataset}/{name}",
            messages=tuple(self.messages),
            tools=tuple(tools),
            probes=tuple(probes),
            cluster=f"{dataset}/{cluster}",
            meta={"dataset": dataset, "licence": "CC0-1.0", **meta},
        )

    def _append(self, message: Message) -> int:
        self.messages.append(message)
        self.texts.append(message_text(message))
        return len(self.messages) - 1
