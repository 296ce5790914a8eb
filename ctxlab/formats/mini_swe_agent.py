"""mini-swe-agent writes one JSON object a run: an OpenAI chat list and what each step cost.

The object is ``{info, messages, trajectory_format, instance_id}``. The last message has the role
``exit``: it is the submission, not a part of the conversation, and is counted as skipped. A
message's ``extra`` gives its time and, from ``extra.response.usage``, what the provider billed;
``raw_output``, ``response`` and ``actions`` in it say again what stands in the message and are left
out. The tool definitions are not recorded.

Source: github.com/SWE-agent/mini-swe-agent, ``trajectory_format`` mini-swe-agent-1 and -1.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxlab.errors import ReadError
from ctxlab.formats.base import (
    Format,
    Source,
)
from ctxlab.formats.common.chat_format import sent
from ctxlab.formats.common.usage import openai_usage
from ctxlab.formats.io.head import Head
from ctxlab.formats.optional_fields import (
    number,
    text,
    within,
)
from ctxlab.messages.types import (
    Message,
    Recording,
)

__all__ = ["FORMAT", "read", "sniff"]

_SAID_TWICE = ("response", "raw_output", "actions", "timestamp")
_META = ("exit_status", "mini_version", "model_stats")


def sniff(head: Head) -> bool:
    """Whether a file is a trajectory of mini-swe-agent by its own word."""
    words = (
        within(head.value, "trajectory_format"),
        within(head.value, "info", "config", "agent_type"),
    )
    return within(head.value, "info", "mini_version") is not None or any(
        isinstance(word, str) and word.startswith(("mini-swe-agent", "minisweagent"))
        for word in words
    )


def read(source: Source) -> Iterator[Recording]:
    """The one recording of the file; runs of one instance share a cluster."""
    run = source.value()
    rows = within(run, "messages")
    if not isinstance(rows, list):
        raise ReadError(source.path, None, "mini-swe-agent has a list of messages")
    messages: list[Message] = []
    for position, row in enumerate(rows):
        if within(row, "role") == "exit":
            source.skip("message of role exit")
            continue
        with source.guard(position, "message"):
            messages.append(_message(row))
    if not messages:
        return
    info = within(run, "info")
    yield Recording(
        id=source.name,
        messages=tuple(messages),
        model=text(within(info, "config", "model", "model_name")),
        cluster=text(within(run, "instance_id")),
        meta={key: info[key] for key in _META if key in info} if isinstance(info, dict) else {},
    )


FORMAT = Format("mini-swe-agent", "mini-swe-agent trajectories (.traj.json)", sniff, read)


def _message(row: Any) -> Message:
    message = Message.from_dict(sent(row))
    extra = row.get("extra")
    if not isinstance(extra, dict):
        return message
    return message.replace(
        usage=openai_usage(within(extra, "response", "usage")),
        time=number(extra.get("timestamp")),
        extra={key: value for key, value in extra.items() if key not in _SAID_TWICE},
    )
