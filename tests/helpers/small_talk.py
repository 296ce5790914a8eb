"""Small conversations for tests of baselines, and the requests that a strategy sends for them."""

from __future__ import annotations

from generated import prepare_messages
from replaying import Sent, run

from ctxlab.evaluation.engine import Trace
from ctxlab.messages.types import Message, ToolCall
from ctxlab.tokens.counter import TokenCounter

COUNTER = TokenCounter("gpt-4o")


def said(turns: int, words: int = 30) -> list[Message]:
    """Return a conversation without tools: ``user 0 …``, ``assistant 0 …``, ``user 1 …``."""
    return [
        Message(role, f"{role} {i} " + "word " * words)  # type: ignore[arg-type]
        for i in range(turns)
        for role in ("user", "assistant")
    ]


def steps(
    number: int, first: int = 0, lines: int = 9, tool: str = "read", parallel: int = 1
) -> list[Message]:
    """Return an agent's tool calls with their results: ``result 0 …``, ``result 1 …``."""
    messages: list[Message] = []
    for i in range(first, first + number):
        ids = [f"c{i}{letter}" for letter in "abc"[:parallel]]
        path = f'{{"path": "src/file{i}.py"}}'
        calls = tuple(ToolCall(id, tool, path) for id in ids)
        messages.append(Message("assistant", f"step {i}", tool_calls=calls))
        text = f"result {i}\n" + "a line of text\n" * lines
        messages += [Message("tool", text, tool_call_id=id) for id in ids]
    return messages


def task(number: int, lines: int = 9, parallel: int = 1) -> list[Message]:
    """Return a system prompt, a user message, and tool calls with their results."""
    system, user = Message("system", "Be brief."), Message("user", "Fix the bug")
    return [system, user, *steps(number, lines=lines, parallel=parallel)]


def played(spec: str, messages: list[Message], limit: int) -> tuple[Trace, list[Sent]]:
    """Replay messages and return all requests; the last request includes all messages."""
    return run(prepare_messages([*messages, Message("assistant", "done")], COUNTER), spec, limit)


def last(spec: str, messages: list[Message], limit: int) -> list[Message]:
    """Return the messages of the last request, which the strategy made from all messages."""
    return played(spec, messages, limit)[1][-1].messages


def firsts(messages: list[Message], words: int = 2) -> list[str]:
    """Return the first words of each message."""
    return [" ".join(message.text.split()[:words]) for message in messages]
