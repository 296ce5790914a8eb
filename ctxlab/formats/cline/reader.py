"""Read task folders of Cline, Roo Code and Kilo Code.

A task folder contains these files:

- ``api_conversation_history.json``: the history, a JSON list of messages in Anthropic's format with
  additional keys (``conversation``).
- ``ui_messages.json``: the billed tokens of each request, and compactions (``ui_log``).
- ``context_history.json`` (Cline): the notes that replace removed text (``context_edits``).
- ``task_metadata.json`` (Cline): the models that the task used, and the version of Cline.
- ``history_item.json`` (Roo Code, Kilo Code): the ids of the task and its parents, the mode and the
  folder of the workspace.

If the history is loaded without the other files of its folder, the usage of most versions and the
compactions of Cline are unknown. A task of Roo Code that was
started by another task is in the cluster of the first task.

Two other forms of the history are read:

- Sessions of Cline's SDK (Cline since 4.1), ``{version: 1, agent, sessionId, messages,
  system_prompt?}``. The file of each subagent is a recording in the cluster of the session.
- ``{version: 2, messages}`` in the format of the Vercel AI SDK, which some versions of Roo Code
  write.

What the files do not contain is not read: tool definitions, the system prompt (except in the SDK)
and the version of Roo Code and Kilo Code. Cline's ``metrics.tokens.cached`` is the sum of cache
reads and writes. It is stored as cache reads if ``ui_messages.json`` does not separate them. Older
versions of Roo Code deleted the messages that a summary replaced; then only the summary is known.
Cline does not store the conversations of its subagents, except in the SDK.

The formats are taken from the source code of the products. Of real files, only parts of one history
of Cline (2026) were seen. Assumptions are: the position of a compaction without
``ui_messages.json`` (``conversation``), the ranges of versions, and the pairing of results whose
header has another name than the call (``xml_calls``).

References
----------
github.com/cline/cline ``src/shared/messages/content.ts`` and ``metrics.ts`` at 88fcc16 and 64fde3a,
``src/core/storage/disk.ts`` at 0162b82, ``src/core/context/context-management/ContextManager.ts`` at
01cfde0, ``src/core/context/context-tracking/ContextTrackerTypes.ts`` at 04e151d,
``sdk/packages/shared/src/llms/messages.ts`` at 0f667f0,
``sdk/packages/core/src/services/session-data.ts`` at 07e7f2c and
``extensions/context/compaction-shared.ts`` at 03297ec; github.com/RooCodeInc/Roo-Code
``src/core/task-persistence/apiMessages.ts`` and ``rooMessage.ts`` at 286c465,
``src/core/condense/index.ts`` at 04fc2a0 and e5353cf, ``src/core/context-management/index.ts`` at
0cc04f4 and ``packages/types/src/history.ts`` at 1524d66; Kilo Code 5 and earlier is a fork of Roo
Code. ``xml_calls`` and ``ui_log`` name further files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, TypeAlias

import msgspec

from ctxlab.errors import ReadError
from ctxlab.formats.base import Format, Source, whole_folder
from ctxlab.formats.cline.context_edits import ContextEdits, is_context_edits, read_context_edits
from ctxlab.formats.cline.conversation import (
    ConversationBuilder,
    is_environment_block,
    is_replacement,
)
from ctxlab.formats.cline.ui_log import UiLog, is_ui_log, read_ui_log
from ctxlab.formats.cline.xml_calls import has_result_header
from ctxlab.formats.common.chat_format import build_session, text_part
from ctxlab.formats.fields import (
    get_in,
    get_list,
    get_number,
    get_object,
    get_objects,
    get_text,
    is_short_value,
)
from ctxlab.formats.io.files import PathOrUrl
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Message, Recording

_Row: TypeAlias = dict[str, Any]

_HISTORY_KEYS = frozenset({"condenseId", "condenseParent", "truncationId", "truncationParent"})
_SDK_AGENTS = ("lead", "subagent", "teammate")
_ITEM_KEYS = frozenset({"id", "ts", "task", "tokensIn", "tokensOut"})
_META_KEYS = {"id": "task", "parentTaskId": "parent", "mode": "mode", "workspace": "folder"}
_SDK_META_KEYS = {"sessionId": "session", "agent": "agent", "taskType": "task_type"}


def sniff(head: FileHead) -> bool:
    """Check whether a file is a history or another file of a task folder.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if the file has keys or texts that only these products write.
    """
    return _detect_kind(head) is not None


def read(source: Source) -> Iterator[Recording]:
    """Read the history of a task, with the data of the other files of its folder.

    Parameters
    ----------
    source : Source
        The first file of the folder. ``other_paths`` contains the other files.

    Yields
    ------
    Recording
        The conversation of each history. The other files are used only if the folder has one
        history.

    Raises
    ------
    ReadError
        If a history is neither a list of messages nor an object with ``messages``.
    """
    folder: dict[str, list[PathOrUrl]] = {}
    for path in (source.path, *source.other_paths):
        folder.setdefault(_detect_kind(FileHead.from_file(path)) or "history", []).append(path)
    histories = folder.pop("history", [])
    task = _Task()
    if len(histories) == 1:
        task = _read_task(source, folder)
    elif histories:
        for kind, paths in folder.items():
            source.skip(f"{kind} file beside several histories", count=len(paths))
    for path in histories:
        recording = _read_history(source, path, task)
        if recording.messages:
            if len(histories) > 1:
                recording = msgspec.structs.replace(recording, id=_file_id(source, path))
            yield recording


_ABOUT = "Cline, Roo Code and Kilo Code tasks (globalStorage/*/tasks, ~/.cline/data)"
FORMAT = Format(
    "cline",
    _ABOUT,
    sniff,
    read,
    group_key=whole_folder,
    versions="from source of 2025 and 2026; parts of one real history of Cline (2026)",
    not_read=(
        "not in the files: tool definitions, system prompt (except in Cline's SDK), messages "
        "that older versions of Roo Code deleted; left out: edits within a message, "
        "encrypted reasoning"
    ),
)


@dataclass(frozen=True)
class _Task:
    """The data of a task folder that its history lacks."""

    log: UiLog = field(default_factory=UiLog)
    "the log of the user interface"
    edits: ContextEdits = field(default_factory=ContextEdits)
    "the edits of messages"
    item: _Row = field(default_factory=dict)
    "the entry of the task in the list of tasks"
    version: str | None = None
    "the newest version of Cline that the task used"
    model_times: tuple[tuple[float, str], ...] = ()
    "time and name of each model that the task used, in order"

    def model_at(self, time: float) -> str | None:
        """Return the model that the task used at a time."""
        index = bisect_right([since for since, _ in self.model_times], time)
        return self.model_times[index - 1][1] if index else None


def _detect_kind(head: FileHead) -> str | None:
    """Return which file of a task folder this is: history, ui, edits, metadata, item, or None."""
    value = head.value
    if len(head.rows) != 1:
        return None
    if isinstance(value, dict):
        if isinstance(value.get("files_in_context"), list):
            return "metadata"
        if value.keys() >= _ITEM_KEYS:
            return "item"
        rows = value.get("messages")
        sdk = value.get("agent") in _SDK_AGENTS and get_text(value, "sessionId") is not None
        plain = value.get("version") == 2 and value.keys() == {"version", "messages"}
        return "history" if isinstance(rows, list) and (sdk or plain) else None
    if is_ui_log(value):
        return "ui"
    if is_context_edits(value):
        return "edits"
    return "history" if any(map(_is_history_row, get_list(value))) else None


def _is_history_row(row: Any) -> bool:
    """Check whether a message has keys or texts of these products."""
    if not isinstance(row, dict) or row.get("role") not in ("user", "assistant"):
        return False
    model = get_object(row, "modelInfo")
    marked = not _HISTORY_KEYS.isdisjoint(row) or (is_replacement(row) and "ts" in row)
    if marked or {"modelId", "providerId"} <= model.keys() or {"id", "provider"} <= model.keys():
        return True
    content = row.get("content")
    blocks = [text_part(content)] if isinstance(content, str) else get_list(content)
    sent = row["role"] == "user" and not row.keys() & {"parts", "tool_calls", "type"}
    return sent and any(is_environment_block(each) or has_result_header(each) for each in blocks)


def _read_task(source: Source, folder: dict[str, list[PathOrUrl]]) -> _Task:
    task = _Task()
    for kind, paths in folder.items():
        file = Source(paths[0], source.name, source.on_error)
        try:
            if kind == "ui":
                task = replace(task, log=read_ui_log(file))
            elif kind == "edits":
                task = replace(task, edits=read_context_edits(file))
            elif kind == "item":
                task = replace(task, item=file.read_json())
            else:
                metadata = file.read_json()
                task = replace(task, model_times=_read_model_times(metadata))
                systems = get_objects(metadata, "environment_history")[-1:]
                versions = (get_text(each, "cline_version") for each in systems)
                task = replace(task, version=next(versions, None))
        except ReadError as error:
            if source.on_error == "raise":
                raise
            source.skip(f"broken {kind} file: {error.reason}")
        for _ in paths[1:]:
            source.skip(f"second {kind} file of a task")
        _add_skipped(source, file)
    return task


def _read_model_times(metadata: Any) -> tuple[tuple[float, str], ...]:
    found = []
    for each in get_objects(metadata, "model_usage"):
        time, model = get_number(each, "ts"), get_text(each, "model_id")
        if time is not None and model:
            found.append((time / 1000, model))
    return tuple(sorted(found))


def _read_history(source: Source, path: PathOrUrl, task: _Task) -> Recording:
    file = Source(path, source.name, source.on_error)
    wrapper, rows = _read_rows(file)
    builder = ConversationBuilder(file.skip)
    if system := get_text(wrapper, "system_prompt"):
        builder.messages.append(Message("system", system))
    following = _next_messages([row for _, row in rows])
    for (number, row), next_row in zip(rows, following, strict=True):
        with file.handle_errors(number, "message"):
            builder.add_row(row, next_row)
    builder.add_usage(task.log, task.model_at)
    compactions = builder.build_compactions(task.log, task.edits)
    messages = builder.messages if any(m.role != "system" for m in builder.messages) else []
    _add_skipped(source, file)
    item = task.item
    ids = (item.get("rootTaskId"), item.get("parentTaskId"), item.get("id"))
    cluster = next(filter(get_text, ids), None) or get_text(wrapper, "sessionId")
    found = ((name, item.get(key)) for key, name in _META_KEYS.items())
    sdk = ((name, wrapper.get(key)) for key, name in _SDK_META_KEYS.items())
    told = (*found, *sdk, ("version", task.version))
    meta = {name: value for name, value in told if is_short_value(value)}
    return build_session(source.name, (messages, compactions), builder.models, cluster, meta)


def _read_rows(file: Source) -> tuple[_Row, list[tuple[int, Any]]]:
    """Return the object around the messages, which may be empty, and the numbered messages."""
    rows: list[tuple[int, Any]] = []
    for where, value in file.read_json_values():
        if where is not None:
            rows.append((where[0], value))
        elif isinstance(messages := get_in(value, "messages"), list):
            return value, list(enumerate(messages))
        else:
            kind = type(value).__name__
            reason = f"expected a list of messages or an object with messages, got {kind}"
            raise ReadError(file.path, None, reason)
    return {}, rows


def _next_messages(rows: list[Any]) -> list[Any]:
    """Return for each row the next row that is a message; None if there is none."""
    found: list[Any] = []
    later = None
    for row in reversed(rows):
        found.append(later)
        later = later if is_replacement(row) else row
    return found[::-1]


def _add_skipped(source: Source, file: Source) -> None:
    for reason, count in file.pop_skipped().items():
        source.skip(reason, count=count)


def _file_id(source: Source, path: PathOrUrl) -> str:
    """Return the id of one of several histories in a folder: the folder and the name of the file."""
    stem, first = (_to_path(each).name.partition(".")[0] for each in (path, source.path))
    return stem if source.name == first else f"{source.name}/{stem}"


def _to_path(place: PathOrUrl) -> PurePath:
    return place if isinstance(place, Path) else PurePosixPath(place.partition("::")[0])
