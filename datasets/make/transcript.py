"""Transcript of a scripted conversation, which generators extend message by message.

The messages are a valid request at any time: the method that adds tool calls also runs the tools and
adds their results. Timestamps come from a simulated clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.messages.types import (
    ContentPart,
    Message,
    Probe,
    Recording,
    ToolCall,
    message_text,
)

Call = tuple[str, dict[str, Any]]
"""Name of a tool and the arguments of the call."""


class Bag:
    """Draw phrases from pools; a phrase is repeated only after all others of its pool were drawn.

    >>> bag = Bag({"greet": ("Hello {name}", "Hi {name}")}, random.Random(1))
    >>> sorted(bag("greet", name="Ada") for _ in range(2))
    ['Hello Ada', 'Hi Ada']
    """

    def __init__(self, pools: Mapping[str, Sequence[str]], rng: random.Random) -> None:
        self.pools, self.rng = pools, rng
        self.left: dict[str, list[str]] = {}

    def __call__(self, pool: str, /, **values: object) -> str:
        """Draw a phrase from a pool and fill in the values."""
        if not self.left.get(pool):
            self.left[pool] = list(self.pools[pool])
            self.rng.shuffle(self.left[pool])
        return self.left[pool].pop().format(**values)


class Transcript:
    """The messages so far, the simulated clock, and the function that runs tools."""

    def __init__(
        self,
        rng: random.Random,
        start: int,
        execute: Callable[[str, dict[str, Any]], str | tuple[ContentPart, ...]],
    ) -> None:
        self.rng, self.clock, self.execute = rng, start, execute
        self.messages: list[Message] = []
        self.texts: list[str] = []
        self.calls = 0

    def wait(self, least: int, most: int) -> None:
        """Advance the clock by a random number of seconds between ``least`` and ``most``."""
        self.clock += self.rng.randint(least, most)

    def system(self, text: str) -> None:
        """Add the system prompt."""
        self._append(Message("system", text, time=self.clock))

    def user(self, text: str, least: int = 40, most: int = 600) -> int:
        """Add a message of the user, ``least`` to ``most`` seconds later, and return its index."""
        self.wait(least, most)
        return self._append(Message("user", text, time=self.clock))

    def say(self, text: str, least: int = 3, most: int = 25) -> int:
        """Add a message of the assistant without tool calls and return its index."""
        self.wait(least, most)
        return self._append(Message("assistant", text, time=self.clock))

    def act(self, text: str, *calls: Call) -> list[str]:
        """Add a message of the assistant with tool calls, run the tools, and return their texts."""
        self.wait(3, 25)
        made = []
        for name, arguments in calls:
            self.calls += 1
            made.append(ToolCall(f"call_{self.calls:04d}", name, dump_json(arguments)))
        self._append(Message("assistant", text or None, tuple(made), time=self.clock))
        results = []
        for call, (name, arguments) in zip(made, calls, strict=True):
            self.wait(1, 6)
            content = self.execute(name, arguments)
            result = Message("tool", content, tool_call_id=call.id, name=name, time=self.clock)
            self._append(result)
            results.append(message_text(result))
        return results

    def age(self, text: str) -> int | None:
        """Return the number of characters since ``text`` last occurred; None if it never occurred."""
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
        """Return the transcript as a recording; all trials of a task have the same ``cluster``."""
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
