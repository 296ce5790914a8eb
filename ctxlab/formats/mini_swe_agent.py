"""Reader for mini-swe-agent trajectories (``.traj.json``).

A file is the JSON object of one run, ``{info, messages, trajectory_format, instance_id}``. Its
messages are in OpenAI's chat format. The last message has the role ``exit`` and contains the
submission. It is not a part of the conversation, and is skipped and counted. The ``extra`` of a
message contains its time and the billed usage (``extra.response.usage``). ``raw_output``,
``response`` and ``actions`` repeat the content of the message and are not read. The files contain
no tool definitions.

References
----------
github.com/SWE-agent/mini-swe-agent, ``trajectory_format`` mini-swe-agent-1 and -1.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxlab.errors import ReadError
from ctxlab.formats.base import Format, Source
from ctxlab.formats.common.chat_format import select_chat_fields
from ctxlab.formats.common.usage import openai_usage
from ctxlab.formats.fields import get_in, get_number, get_object, get_text
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message, Recording

_REPEATED_KEYS = ("response", "raw_output", "actions", "timestamp")
_META_KEYS = ("exit_status", "mini_version", "model_stats")


def sniff(head: FileHead) -> bool:
    """Check whether a file is a trajectory of mini-swe-agent.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if the file names mini-swe-agent as its format, agent type or version.
    """
    run = head.value
    named = get_text(run, "trajectory_format"), get_text(run, "info", "config", "agent_type")
    ours = any(name.startswith(("mini-swe-agent", "minisweagent")) for name in named if name)
    return ours or get_in(run, "info", "mini_version") is not None


def read(source: Source) -> Iterator[Recording]:
    """Read the run of a file as one recording.

    Runs of the same benchmark instance share a cluster.

    Parameters
    ----------
    source : Source
        The file to read. Content that is skipped is counted by its ``skip`` method.

    Yields
    ------
    Recording
        The recording of the run. Nothing is yielded if it has no messages.

    Raises
    ------
    ReadError
        If the file has no list under ``messages``.
    """
    run = source.read_json()
    rows = get_in(run, "messages")
    if not isinstance(rows, list):
        kind = type(rows).__name__
        raise ReadError(source.path, None, f"expected a list under messages, got {kind}")
    messages: list[Message] = []
    for position, row in enumerate(rows):
        if get_in(row, "role") == "exit":
            source.skip("message of role exit")
            continue
        with source.handle_errors(position, "message"):
            messages.append(_parse_message(row))
    if not messages:
        return
    info = get_object(run, "info")
    model, cluster = get_text(info, "config", "model", "model_name"), get_text(run, "instance_id")
    meta = {key: info[key] for key in _META_KEYS if key in info}
    yield Recording(source.name, tuple(messages), model=model, cluster=cluster, meta=meta)


FORMAT = Format(
    "mini-swe-agent",
    "mini-swe-agent trajectories (.traj.json)",
    sniff,
    read,
    versions="2.2.7 (trajectory format 1.1); format 1 from source",
    not_read=(
        "not in the file: tool definitions; left out: the last message with the submission, "
        "raw responses"
    ),
)


def _parse_message(row: Any) -> Message:
    message = message_from_dict(select_chat_fields(row))
    extra = row.get("extra")
    if not isinstance(extra, dict):
        return message
    usage, time = openai_usage(get_in(extra, "response", "usage")), get_number(extra, "timestamp")
    kept = {key: value for key, value in extra.items() if key not in _REPEATED_KEYS}
    return message.replace(usage=usage, time=time, extra=kept)
