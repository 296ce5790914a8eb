"""Hypothesis strategies for conversations, valid and invalid ones.

``conversations()`` are valid for a provider. They have parallel calls answered in any order, failed
tools, empty contents, huge results, images, unusual characters, and call ids that are reused in later
turns. Calls use strings from earlier messages. ``strange_conversations()`` also have messages that
can occur in a log and that providers reject.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from hypothesis import strategies as st

from ctxlab.context.history import History
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.messages.types import Message, Recording, ToolCall
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.models import find_model

FACTS = (
    *("src/io.py", "tests/test_io.py", "/var/log/app/error.log", "Makefile.toml", "naïve/ü.txt"),
    *("HAT136", "mia_li_3668", "1a2b3c4d", "2024-05-03", "512", "5120", "12.50", "1,234,567"),
    *("parse_args", "readFile", "os.path.join", "MAX_SIZE", "a@b.org", "https://ex.org/a?b=1"),
    *("Mia Li", "São Paulo", "日本/語.md", "x_512", "3", "economy"),
)
"""Strings for arguments and texts; some contain another one, some are not entities."""

NOISE = (
    *(
        "the file is",
        "no such",
        "and",
        "\n",
        "\n\n",
        "    ",
        "→",
        "🙂",
        "👩‍👩‍👧",
        "é",
        "日本語",
        "\ud83d",
    ),
    *("\udc00", "<|im_start|>", "error:", '{"a":', "\t\t", "'", "``", "\x00", "word " * 40),
)
IMAGE = {"type": "image_url", "image_url": {"url": "https://ex.org/a.png"}}
TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "read",
            "description": "Reads a file, such as MAX_SIZE",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    },
)


# Contents are generated once, from a seed, and sorted by length. Hypothesis then needs one draw per
# message, and shrinks examples to short texts.
_random = Random(0)


def _text(huge: bool = False) -> str:
    """Return a random string of facts and noise; ``huge``: sometimes thousands of characters."""
    pieces = _random.choices(FACTS + NOISE, k=_random.randint(1, 6))
    text = _random.choice([" ", "\n", ", "]).join(pieces)
    if huge and _random.random() < 0.3:
        filler = _random.choice(["x", "line of output\n", "語 ", "src/a.py:1 ", " "])
        text += filler * (_random.randint(1, 9) * 600 // len(filler)) + text[::-1] + pieces[0]
    return text


def _json() -> Any:
    """Return a random JSON tool result: lists of hits, objects with paths, failures, unusual values."""
    fact, few = _random.choice(FACTS), _random.choices(FACTS, k=_random.randint(0, 12))
    hits = [{"path": each, "text": "def f(): ..."} for each in few]
    return _random.choice(
        [
            *({"results": hits}, hits, {"ok": False, "error": fact}, {"ok": True, "error": None}),
            *({"files": few, "text": _text(huge=True)}, {"success": False, "value": fact}),
            *({}, [], 5, "text", None, {"error": {"code": 3}}, {"a": {"b": [[[]]]}, "file": fact}),
        ]
    )


def _arguments() -> str:
    fact, few = _random.choice(FACTS), _random.choices(FACTS, k=_random.randint(0, 3))
    number = _random.choice([512, 5120, True, 1.5])
    value = _random.choice(
        [{"path": fact}, {"path": fact, "options": few}, {"text": _text(), "count": number}]
    )
    text = json.dumps(value, ensure_ascii=_random.random() < 0.5)
    return _random.choice([text] * 9 + [text[:-1]])


TEXTS = sorted({_text() for _ in range(80)}, key=len)
RESULTS: list[Any] = sorted(
    [_text(huge=True) for _ in range(100)]
    + [json.dumps(_json(), ensure_ascii=False) for _ in range(60)],
    key=len,
)
PARTS: list[Any] = [({"type": "text", "text": text}, IMAGE) for text in TEXTS[::8]]
ARGUMENTS = ["{}", "", *sorted({_arguments() for _ in range(60)}, key=len)]


def texts() -> st.SearchStrategy[str]:
    """Non-empty strings of facts and noise."""
    return st.sampled_from(TEXTS)


def contents() -> st.SearchStrategy[Any]:
    """Contents of tool results and user messages."""
    return st.sampled_from(RESULTS + PARTS)


CALLS = st.builds(
    ToolCall,
    id=st.just(""),
    name=st.sampled_from(["read", "search_vault", "parse_args"]),
    arguments=st.sampled_from(ARGUMENTS),
)
ANSWERS = st.sampled_from(
    [
        *(Message("tool", content) for content in (*RESULTS, *PARTS, None, "")),
        *(Message("tool", "Error: " + text, extra={"is_error": True}) for text in TEXTS[:10]),
    ]
)


@st.composite
def steps(draw: st.DrawFn, ids: list[str]) -> list[Message]:
    """An assistant message with tool calls, and the results of the calls in any order."""
    calls = tuple(ToolCall(id, (c := draw(CALLS)).name, c.arguments) for id in ids)
    said = draw(st.sampled_from([None, "", *TEXTS]))
    order = draw(st.permutations(ids)) if len(ids) > 1 else ids
    results = [draw(ANSWERS).replace(tool_call_id=id) for id in order]
    return [Message("assistant", said, tool_calls=calls), *results]


@st.composite
def conversations(draw: st.DrawFn, turns: int = 4) -> tuple[Message, ...]:
    """A conversation that is valid for a provider; the last message may have any role."""
    messages: list[Message] = []
    if draw(st.booleans()):
        messages.append(Message("system", draw(texts())))
    for _ in range(draw(st.integers(1, turns))):
        several = draw(st.sampled_from([1, 1, 1, 2]))
        messages.extend(Message("user", draw(contents())) for _ in range(several))
        for step in range(draw(st.integers(0, 4))):
            # Call ids start again in each turn, as in tau-bench.
            ids = [f"c{step}{letter}" for letter in "abc"[: draw(st.integers(1, 3))]]
            messages.extend(draw(steps(ids)))
        if draw(st.integers(0, 3)):
            messages.append(Message("assistant", draw(texts())))
    return tuple(messages)


@st.composite
def strange_conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    """A conversation with a few messages that providers reject."""
    messages = list(draw(conversations(turns=3)))
    stray = st.sampled_from(
        [
            Message("tool", "src/io.py", tool_call_id="c0a"),
            Message("tool", "who asked?", tool_call_id=None),
            Message("assistant", "", tool_calls=(ToolCall("c9", "read", '{"path": "src/io.py"}'),)),
            Message("assistant", None),
            Message("user", ""),
            Message("user", ()),
            Message("system", "HAT136 stands here late"),
            Message("assistant", "", tool_calls=(ToolCall("c0a", "read"), ToolCall("c0a", "read"))),
        ]
    )
    for _ in range(draw(st.integers(1, 5))):
        place = draw(st.integers(0, len(messages)))
        what = draw(st.sampled_from(["add", "add", "remove", "repeat", "move"]))
        if what == "add":
            messages.insert(place, draw(stray))
        elif messages and what == "remove":
            messages.pop(place % len(messages))
        elif messages and what == "repeat":
            messages.insert(place, messages[draw(st.integers(0, len(messages) - 1))])
        elif messages:
            messages.insert(place - 1, messages.pop(draw(st.integers(0, len(messages) - 1))))
    return tuple(messages)


@st.composite
def with_times(
    draw: st.DrawFn, talk: st.SearchStrategy[tuple[Message, ...]]
) -> tuple[Message, ...]:
    """A conversation with times: short steps, pauses before some messages, and some times missing."""
    messages, now = [], 1.7e9
    pauses = draw(st.lists(st.sampled_from([5, 5, 200, 900, 9000, None]), min_size=1, max_size=9))
    for number, message in enumerate(draw(talk)):
        pause = pauses[number % len(pauses)]
        now += pause or 5
        messages.append(message if pause is None else message.replace(time=now))
    return tuple(messages)


def limits() -> st.SearchStrategy[int]:
    """Limits in tokens, from too small for any message to large enough for all messages."""
    return st.sampled_from([1, 30, 80, 150, 250, 400, 600, 900, 1500, 3000, 10**6])


def prepare_messages(
    messages: tuple[Message, ...] | list[Message],
    counter: TokenCounter,
    tools: tuple[dict[str, Any], ...] = (),
) -> PreparedRecording:
    """Prepare messages for a replay with Anthropic's validity rules, which include OpenAI's."""
    model = find_model("claude-sonnet-4-5")
    return PreparedRecording(Recording("r", tuple(messages), tools), counter, model=model)


def history_of(messages: tuple[Message, ...] | list[Message], counter: TokenCounter) -> History:
    return History(counter, messages)
