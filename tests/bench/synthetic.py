"""Generate conversations of any length that resemble those of coding agents.

There is a user message about every twelve messages. In between the agent reads files, mostly files that
were mentioned recently. Results have 550 tokens on average: most are short, a few are long. No two
results are equal. A length and a seed always give the same conversation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

from ctxlab.formats import native
from ctxlab.messages.types import Message, Recording, ToolCall

_WORDS = """
order customer stock invoice total report parser request response cache session token path value index
result config handler service client update create query check count
"""
_NAMES = _WORDS.split()
_LINES = (
    "        return self.{a}[{b}]",
    "    def {a}_{b}(self, {b}: str, limit: int = {n}) -> None:",
    "        raise ValueError(f'{a} of {b} is missing: {n}')",
    "{path}:{n}:    {a} = {b}.{a}({n})",
    "The {a} of the last {b} was {n} and nothing else in it had changed.",
    "{path}::test_{a}_{b} PASSED [ {n} ms]",
    '  "{a}": {{"{b}": {n}, "done": true}},',
    "2026-03-12 12:41 INFO {a}.{b} done in {n} ms",
    "from {a}.{b} import {a}, {b}  # see {path}",
)

_PER_FILE = 1000


def conversation(length: int, seed: int = 0) -> Recording:
    """Return a recording of ``length`` messages that are valid for a provider."""
    return Recording(f"synthetic-{length}-{seed}", tuple(_messages(length, Random(seed))))


def write_conversations(folder: Path, count: int, length: int) -> None:
    """Write conversations with the seeds 0, 1, … to a folder, one after the other.

    A file has at most 1,000 of them. Only one conversation is in memory at a time.
    """
    folder.mkdir(parents=True)
    for start in range(0, count, _PER_FILE):
        with (folder / f"{start:06}.jsonl").open("w", encoding="utf-8") as out:
            for seed in range(start, min(start + _PER_FILE, count)):
                out.write(native.dumps(conversation(length, seed)))


def _messages(length: int, random: Random) -> Iterator[Message]:
    yield Message("system", "You are a coding agent.\n" + _text(0, 12, random))
    made = 1
    while made < length:
        yield Message("user", f"Task {made}:\n" + _text(made, random.randint(1, 6), random))
        made += 1
        for _ in range(random.randint(3, 7)):
            if made + 2 > length:
                break
            yield from _step(made, random)
            made += 2
        if made < length:
            yield Message("assistant", f"Done with {made}.\n" + _text(made, 4, random))
            made += 1


def _step(number: int, random: Random) -> Iterator[Message]:
    arguments = {"path": _path(number, random), "offset": random.randint(1, 9999)}
    call = ToolCall(f"call_{number}", "read_file", json.dumps(arguments))
    yield Message("assistant", _text(number, 1, random), tool_calls=(call,))
    lines = min(200, 4 + int(random.expovariate(1 / 28)))
    yield Message("tool", f"{number}\n{_text(number, lines, random)}", tool_call_id=call.id)


def _text(number: int, lines: int, random: Random) -> str:
    return "\n".join(
        random.choice(_LINES).format(
            a=random.choice(_NAMES),
            b=random.choice(_NAMES),
            n=random.randint(10, 9999),
            path=_path(number, random),
        )
        for _ in range(lines)
    )


def _path(number: int, random: Random) -> str:
    """Return a path that is used around message ``number``, or in 10 % of the cases an old path."""
    file = random.randint(0, 40) + (number // 10 if random.random() < 0.9 else 0)
    return f"src/{_NAMES[file % 25]}/{_NAMES[file * 7 % 24]}_{file}.py"
