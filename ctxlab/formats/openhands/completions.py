"""Read the model calls that OpenHands logs, one file per call.

A file contains one object ``{messages, response, args, kwargs, timestamp, cost}``. The files of one
task instance are in a folder with the name of the instance. The calls are sorted by ``timestamp``
and joined into conversations, in which each repeated message is stored once. A condenser is the part
of OpenHands that shortens the context. A ``Compaction`` records the messages that a condenser removed
or replaced. Model calls of a condenser become separate conversations in the cluster of the main
conversation. Some logs contain only the last call. Its ``messages`` are then the whole conversation,
and ``response`` is the last answer with its usage.

- If text is split into parts, the parts are joined, because they only mark prompt cache positions.
- For a model without function calling, OpenHands converts tools, calls and results to text. In this
  case ``messages`` and ``response`` contain the text that was sent and received, and ``kwargs``
  contains no tools. ``fncall_messages`` and ``fncall_response`` contain the same messages before
  the conversion, and are not read.
- Some condensers remove old messages from every request. Each removal becomes a ``Compaction``.

References
----------
github.com/All-Hands-AI/OpenHands, ``openhands/llm/llm.py`` (``log_completions``) and
``llm/fn_call_converter.py``, as of 2025; logs of version 0.15.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from ctxlab.formats.base import Format, Source, whole_folder
from ctxlab.formats.common.chat_format import first_choice, normalize_content, select_chat_fields
from ctxlab.formats.common.stitch import LoggedRequest, intern_messages, stitch_requests
from ctxlab.formats.common.usage import openai_usage
from ctxlab.formats.fields import get_in, get_list, get_number, get_objects, get_text
from ctxlab.formats.io.files import PathOrUrl
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message, Recording

_CALL_KEYS = frozenset({"messages", "response", "kwargs"})
_FIRST_KEYS = frozenset({"messages", "response", "args"})


def sniff(head: FileHead) -> bool:
    """Check whether a file is a model call logged by OpenHands.

    For a large file, ``head`` may contain only the first ``messages``. The file is then recognised
    if the first message contains the word OpenHands, or if its ``content`` is a list of parts and
    comes before ``role``, as OpenHands writes it.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True if the file is a logged model call.
    """
    call = head.value
    if not isinstance(call, dict) or not isinstance(call.get("messages"), list):
        return False
    if call.keys() >= _CALL_KEYS:
        return "timestamp" in call or "cost" in call
    cut = not head.is_complete and len(head.rows) == 1 and b"\n" not in head.first_bytes
    return cut and call.keys() <= _FIRST_KEYS and _is_openhands(call["messages"])


def read(source: Source) -> Iterator[Recording]:
    """Read the conversations from the logged calls of a folder.

    Parameters
    ----------
    source : Source
        The first file of the folder. ``other_paths`` contains the other files.

    Yields
    ------
    Recording
        The main conversation, named after the folder, then the conversations of condensers.
    """
    seen: dict[Any, Message] = {}
    calls: list[tuple[float, LoggedRequest]] = []
    for place, call in source.read_json_files():
        request = intern_messages(_parse_request(call, source, place), seen)
        calls.append((_sort_time(call), request))
    name = source.name.rpartition("/")[0] or source.name
    requests = (request for _, request in sorted(calls, key=lambda call: call[0]))
    folder = _to_path(source.path).parent.name or None
    yield from stitch_requests(requests, name, source.skip, cluster=folder)


_ABOUT = "OpenHands: logged model calls (llm_completions)"
FORMAT = Format(
    "openhands-completions",
    _ABOUT,
    sniff,
    read,
    group_key=whole_folder,
    versions="0.15.0; other versions from source of 2025",
    not_read=(
        "not in the file, if the model has no function calling: tool definitions; left out: "
        "further choices, messages before their conversion to text"
    ),
)


def _is_openhands(messages: list[Any]) -> bool:
    first = messages[0] if messages else None
    if not isinstance(first, dict):
        return False
    parts = list(first)[:2] == ["content", "role"] and isinstance(first["content"], list)
    return parts or "OpenHands" in str(get_in(first, "content"))


def _parse_request(call: Any, source: Source, place: PathOrUrl) -> LoggedRequest:
    messages: list[Message] = []
    answer: Message | None = None
    where = f" (in {_to_path(place).name})" if source.other_paths else ""
    for position, row in enumerate(get_list(call, "messages")):
        with source.handle_errors(position, "message"):
            messages.append(_parse_message(row, where))
    with source.handle_errors(len(messages), "message"):
        answer = _parse_answer(call, where)
    if answer is None:
        source.skip("call without an answer")
    tools = get_objects(call, "kwargs", "tools")
    model = get_text(call, "kwargs", "model") or get_text(call, "response", "model")
    return LoggedRequest(tuple(messages), answer, tools, model)


def _parse_answer(call: Any, where: str) -> Message | None:
    said = first_choice(get_in(call, "response"))
    if said is None:
        return None
    cost, time = get_number(call, "cost"), get_number(call, "timestamp")
    usage, extra = openai_usage(get_in(call, "response", "usage")), {"cost": cost}
    answer = _parse_message(said, where)
    return answer.replace(usage=usage, time=time, extra={} if cost is None else extra)


def _parse_message(row: Any, where: str) -> Message:
    try:
        wire = select_chat_fields(row)
        return message_from_dict(wire | {"content": normalize_content(wire.get("content"))})
    except ValueError as error:
        raise ValueError(f"{error}{where}") from None


def _sort_time(call: Any) -> float:
    moment = get_number(call, "timestamp")
    return math.inf if moment is None else moment


def _to_path(place: PathOrUrl) -> PurePath:
    return place if isinstance(place, Path) else PurePosixPath(place.partition("::")[0])
