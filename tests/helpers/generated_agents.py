"""Hypothesis strategies for recordings of small agents that read, edit and write a few files.

Names return often and late, so that short limits remove what is needed. The recordings have what the
page makes rules about: results that are errors, files that are written or edited after they were read,
calls that are not repeatable, parallel calls, call ids that return, bills, hidden reasoning and pauses.
"""

from __future__ import annotations

import json

from hypothesis import strategies as st

from ctxlab.messages.types import Message, Recording, ToolCall, Usage

PATHS = ("src/io_lib.py", "src/pay/tax_rates.py", "docs/notes.md", "/repo/src/io_lib.py")
NAMES = (
    *("parse_rates", "TAX-4471", "order_88231", "readFile", "2024-05-03", "1250.75", "a@b.org"),
    *(f"{word}_{end}" for word in ("sum", "load", "send") for end in ("rows", "tax", "mail")),
    *(f"HAT{number}" for number in range(136, 144)),
)
LINES = (
    "def {}(rows): return rows",
    "the refund of {} is due by the end of the week",
    "{}",
    "see {} and then {}, which nobody has checked for a while",
    "{} {} {} {} are all of the same kind",
    "value = {}  # {}",
    "nothing here is a name " * 12,
)
OUTCOMES = st.sampled_from(["done", "done", "Error: read-only file system"])
ENDS = ("", "\n" + "and more of the same kind of text\n" * 15)
STEPS = (
    *("read", "read", "read part", "edit", "edit", "write", "search", "look up", "make", "fail"),
    *("both", "cat", "say", "summarise", "user calls"),
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """One to four lines with names and paths, sometimes long."""
    names = st.sampled_from(NAMES + PATHS)
    lines = [draw(st.sampled_from(LINES)) for _ in range(draw(st.integers(1, 4)))]
    return "\n".join(line.format(*(draw(names) for _ in range(4))) for line in lines) + draw(
        st.sampled_from(ENDS)
    )


def call(name: str, **arguments: object) -> tuple[str, str]:
    """Return the name and the arguments of a call."""
    return name, json.dumps(arguments)


@st.composite
def actions(draw: st.DrawFn, kind: str) -> list[tuple[str, str, str]]:
    """Calls of one action, each with its result."""
    path, name = draw(st.sampled_from(PATHS)), draw(st.sampled_from(NAMES))
    text, done = draw(texts()), draw(OUTCOMES)
    found = {
        "read": (*call("read_file", path=path), text),
        "read part": (*call("read_file", path=path, offset=3, limit=9), text),
        "edit": (*call("edit_file", path=path, old=name, new=draw(st.sampled_from(NAMES))), done),
        "write": (*call("write_file", path=path, content=text), done),
        "search": (*call("grep", pattern=name), f"{path}:3: {name}\n{text}"),
        "look up": (*call("get_order", id=name), text),
        "make": (*call("bash", command=f"make {path}"), text),
        "cat": (*call("bash", command=f"cat {path}"), text),
        "fail": (*call("read_file", path=path), f"Error: no such file: {path} {name}"),
    }
    if kind != "both":
        return [found[kind]]
    return [found[draw(st.sampled_from(list(found)))] for _ in range(2)]


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """A recording of an agent of 6 to 30 messages."""
    messages = [Message("system", "You mend things.")] if draw(st.booleans()) else []
    messages.append(Message("user", draw(texts())))
    steps = draw(st.lists(st.sampled_from(STEPS), min_size=3, max_size=14))
    for number, kind in enumerate(steps):
        if kind in ("say", "summarise"):
            messages.append(Message("assistant", draw(texts())))
            start = "This session continues an earlier one. Summary:\n" * (kind == "summarise")
            messages.append(Message("user", start + draw(texts())))
            continue
        made = draw(actions("read" if kind == "user calls" else kind))
        reused = draw(st.sampled_from([None, None, "c"]))
        ids = [f"{reused or number}-{i}" for i in range(len(made))]
        calls = [ToolCall(id, name, given) for id, (name, given, _) in zip(ids, made, strict=True)]
        said = draw(st.sampled_from([None, "Let me see order_88231."]))
        thought = draw(st.sampled_from([None, None, "I should read parse_rates once more. " * 5]))
        message = Message("assistant", said, tuple(calls), reasoning=thought)
        if kind == "user calls":  # as in tau2-bench
            message = Message("user", said, tuple(calls))
        messages.append(message)
        order = draw(st.permutations(range(len(made)))) if len(made) > 1 else [0]
        messages += [Message("tool", made[i][2], tool_call_id=ids[i]) for i in order]
    messages.append(Message("assistant", draw(texts())))
    folder = draw(st.sampled_from([{}, {"cwd": "/repo"}]))
    model = draw(st.sampled_from(["claude-sonnet-4-5", "gpt-4o", "deepseek-chat"]))
    timed = draw(st.sampled_from([timed_messages, billed_messages]))(messages, draw)
    return Recording("small", tuple(timed), model=model, meta=folder)


def timed_messages(messages: list[Message], draw: st.DrawFn) -> list[Message]:
    """Add times, some with pauses after which a cache is cold."""
    gaps = draw(st.lists(st.sampled_from([1.0, 20.0, 400.0, 4000.0]), min_size=5, max_size=5))
    times, clock = [], 0.0
    for number in range(len(messages)):
        clock += gaps[number % len(gaps)]
        times.append(clock)
    return [each.replace(time=time) for each, time in zip(messages, times, strict=True)]


def billed_messages(messages: list[Message], draw: st.DrawFn) -> list[Message]:
    """Add bills with unlogged tokens, some of requests that found no cache."""
    colds = draw(st.lists(st.booleans(), min_size=4, max_size=4))
    billed, length = [], 3000
    for number, message in enumerate(messages):
        length += len(message.text) // 4 + 10
        if message.role == "assistant":
            read = 1500 if colds[number % len(colds)] else length - 100
            write = length - read
            usage = Usage(0, read, write, 40, cache_write_1h=write * (number % 2))
            message = message.replace(usage=usage)
        billed.append(message)
    return billed


def messages_of(*made: tuple[tuple[str, str], str]) -> list[Message]:
    """Return one action with several calls, each given with its result."""
    ids = [f"c{number}" for number in range(len(made))]
    calls = [ToolCall(id, name, given) for id, ((name, given), _) in zip(ids, made, strict=True)]
    results = [
        Message("tool", text, tool_call_id=id) for id, (_, text) in zip(ids, made, strict=True)
    ]
    return [Message("assistant", tool_calls=tuple(calls)), *results]


def mending(*steps: list[Message]) -> Recording:
    """Return a recording of an agent that mends something in some steps."""
    return Recording("made", (Message("user", "Mend it."), *(m for step in steps for m in step)))


OLDER_RETURNS_MORE = mending(
    messages_of((call("get_order", number=1), "parse_rows and load_tax are late in this list")),
    messages_of((call("get_order", number=2), "nobody has checked send_mail for a while")),
    messages_of((call("bash", command="make"), "done")),
    messages_of((call("make", targets=["parse_rows", "load_tax", "send_mail"]), "done")),
)
"""A recording whose last action needs two names from one result, and one from a newer result."""

WRITTEN_AT_ONCE = mending(
    messages_of(
        (call("read_file", path="src/io.py"), "def parse_rows(rows): return rows"),
        (call("write_file", path="src/io.py"), "written"),
    ),
    messages_of((call("bash", command="make"), "done")),
    messages_of((call("make", target="parse_rows"), "done")),
)
"""A recording that reads and writes a file with two calls of one message."""

PADDING = "nobody has checked this line for a while, and it is long enough to count\n" * 150
LONG_RESULTS = mending(
    messages_of((call("get_order", number=1), f"parse_rows is late\n{PADDING}load_tax is later")),
    messages_of((call("bash", command="make"), f"{PADDING}TAX-4471 is due\n{PADDING}")),
    messages_of((call("read_file", path="src/io.py"), f"{PADDING}send_mail and order_88231\n")),
    messages_of((call("write_file", path="src/io.py"), "written")),
    messages_of((call("bash", command="make again"), f"{PADDING}HAT141 is done\n")),
    messages_of(
        (call("make", targets=["parse_rows", "load_tax", "TAX-4471", "order_88231"]), "ok")
    ),
    messages_of((call("make", targets=["send_mail", "HAT141", "HAT142"]), PADDING)),
    messages_of((call("make", target="load_tax"), "done")),
)
"""A recording with results of several pages; only some of its calls can be repeated."""
