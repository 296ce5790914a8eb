"""Convert the messages of opencode 2 to the form of opencode 1.

opencode 2 stores a message as a row with a ``type`` and a JSON object. Its parts are inside the object:

- ``user``: ``text`` and ``files``. Texts in files are sent after a line with the name of the file.
- ``assistant``: ``content`` with texts, reasoning and tools, and ``model``, ``tokens`` and ``cost``.
  ``output`` excludes ``reasoning``. An answer that ended with an error is sent again.
- ``synthetic``, ``skill`` and ``shell``: a text that is sent as a user message.
- ``system``: a note to the model, such as a change of the tools.
- ``compaction``: from a completed compaction on, opencode sends the ``summary``, then ``recent``, which
  repeats the newest messages as one text, and the later messages.
- All other types are notes that are not sent, such as ``idle`` and ``model-switched``.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import SkipCallback
from ctxlab.formats.fields import (
    first_text,
    get_count,
    get_in,
    get_object,
    get_objects,
    get_text,
    require_object,
    require_objects,
    require_text,
)

_TOKEN_KEYS = (("input",), ("output",), ("reasoning",), ("cache", "read"), ("cache", "write"))
_UNFINISHED = ("streaming", "running")

Row = dict[str, Any]


def convert_row(kind: str, data: Row, skip: SkipCallback) -> Iterator[tuple[Row, list[Row]]]:
    """Convert a row of opencode 2 to messages of opencode 1.

    Parameters
    ----------
    kind : str
        Type of the row.
    data : dict
        The JSON object of the row, with the ``id`` of the row.
    skip : Callable
        Called with a description of a row that is not sent to the model.

    Yields
    ------
    dict
        The info object of the message.
    list of dict
        The parts of the message.

    Raises
    ------
    ValueError
        If the row is malformed.
    """
    info: Row = {key: data[key] for key in ("id", "sessionID", "time") if key in data}
    if kind == "user":
        files = [_convert_file(file) for file in get_objects(data, "files")]
        yield info | {"role": "user"}, [_text(require_text(data.get("text"), "text")), *files]
    elif kind in ("synthetic", "skill"):
        yield info | {"role": "user"}, [_note(require_text(data.get("text"), "text"))]
    elif kind == "system":
        yield info | {"role": "system"}, [_note(require_text(data.get("text"), "text"))]
    elif kind == "shell":
        command, output = require_text(data.get("command"), "command"), data.get("output")
        said = get_text(output, "output") or get_text(output) or ""
        yield info | {"role": "user"}, [_text(f"Shell command: {command}\n\n{said}")]
    elif kind == "assistant":
        yield info | _answer_info(data), [*_convert_answer(data)]
    elif kind == "compaction" and data.get("status") == "completed":
        yield from _convert_compaction(info, data)
    else:
        skip(f"row of type {kind}")


def _text(text: str) -> Row:
    return {"type": "text", "text": text}


def _note(text: str) -> Row:
    return _text(text) | {"synthetic": True}


def _convert_file(file: Row) -> Row:
    mime, data = get_text(file, "mime") or "", get_text(file, "data")
    if data and mime in ("text/plain", "application/x-directory"):
        name = first_text((file.get("name"), get_in(file, "source", "uri"))) or "inline attachment"
        kind = "file" if mime == "text/plain" else "directory"
        said = b64decode(data).decode("utf-8", "replace")
        return _text(f"Attached {kind}: {name}\n\n{said}")
    url = f"data:{mime};base64,{data}" if data else get_text(file, "uri")
    return {"type": "file", "mime": mime, "url": url}


def _answer_info(data: Row) -> Row:
    model = get_object(data, "model")
    return {
        "role": "assistant",
        "modelID": model.get("id"),
        "providerID": model.get("providerID"),
        "agent": data.get("agent"),
    }


def _convert_answer(data: Row) -> Iterator[Row]:
    for part in require_objects(data.get("content", []), "content"):
        yield _convert_tool(part) if part.get("type") == "tool" else part
    if tokens := get_object(data, "tokens"):
        total = sum(get_count(tokens, *keys) for keys in _TOKEN_KEYS)
        cost = data.get("cost")
        yield {"type": "step-finish", "tokens": tokens | {"total": total}, "cost": cost}


def _convert_tool(part: Row) -> Row:
    state = require_object(part.get("state"), "state of a tool")
    end = {"time": {"end": get_in(part, "time", "completed")}, "input": state.get("input")}
    if started := get_in(state, "structured", "sessionID") or get_in(
        state, "metadata", "sessionID"
    ):
        end["metadata"] = {"sessionId": started}
    status, content = state.get("status"), get_objects(state, "content")
    if status == "completed":
        texts = [require_text(each.get("text"), "text") for each in content if "text" in each]
        files = [
            {"mime": each.get("mime"), "url": each.get("uri")} for each in content if "uri" in each
        ]
        structured = state.get("structured")
        said = "\n".join(texts) if content or not structured else dump_json(structured)
        end |= {"status": "completed", "output": said, "attachments": files}
    elif status == "error":
        error = state.get("error")
        end |= {"status": "error", "error": first_text((get_in(error, "message"), error)) or ""}
    else:
        end |= {"status": "running" if status in _UNFINISHED else status}
    return {"type": "tool", "callID": part.get("id"), "tool": part.get("name"), "state": end}


def _convert_compaction(info: Row, data: Row) -> Iterator[tuple[Row, list[Row]]]:
    """Yield the question for the summary and the answer with it, as opencode 1 stores them."""
    id = require_text(info.get("id"), "id")
    asked = {"type": "compaction", "auto": data.get("reason") == "auto"}
    yield info | {"role": "user"}, [asked]
    answer = {"id": f"{id}/summary", "role": "assistant", "summary": True, "parentID": id}
    texts = filter(None, (get_text(data, "summary"), get_text(data, "recent")))
    yield info | answer | {"finish": "stop"}, [_text(text) for text in texts]
