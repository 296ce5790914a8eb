"""Tie the subagents of Claude Code to the tool calls that started them.

The messages of a subagent are stored in one of three ways:

- Rows with ``isSidechain`` in the file of the session (until about version 2.0).
- Rows of type ``progress`` whose ``data.type`` is ``agent_progress`` (seen in 2.1.17 to 2.1.76).
  ``data.message`` is one row of the subagent, and ``data.agentId`` its id. The final answer of the
  subagent has no such row. Its text and its usage are taken from the ``toolUseResult`` of the call. A
  compaction of the subagent is not recorded.
- A file of its own. It is named ``agent-ID.jsonl`` and is next to the file of the session, in the folder
  of the session, or in a folder ``subagents`` in this folder (``SESSION/subagents/agent-ID.jsonl``). A
  file ``agent-ID.meta.json`` may name the call (``toolUseId``) and the subagent that made it
  (``parentAgentId``). If the file of the session is in the requested folder, it is read to find the
  call.

If the same subagent is stored in several ways, its own file is read, or else its side chain.

The call that started a subagent is, in this order: the call that its rows name (``parentToolUseID``, or
``toolUseId`` in the other file); the call whose ``toolUseResult`` names the subagent (``agentId``); the
first other call with the same prompt.

References
----------
Sessions of Claude Code 2.1.17 to 2.1.219. The shape of files of subagents is taken from other
open-source programs that read sessions, such as chitragupt and polylogue, and from their documentation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ctxlab.errors import ReadError
from ctxlab.formats.base import Source
from ctxlab.formats.claude_code.queued_input import content_text
from ctxlab.formats.fields import get_in, get_objects, get_text
from ctxlab.formats.io.related_files import (
    is_file_name,
    is_related_file,
    local_path,
    recording_prefix,
)

_Row: TypeAlias = dict[str, Any]

_MAX_LEVELS = 5
"number of folders in which the file of the session is searched, from the innermost outwards"
_COPIED_KEYS = ("sessionId", "version", "gitBranch", "timestamp")


@dataclass
class CallIndex:
    """Tool calls of the conversations in one file, and what is known about their subagents."""

    calls: dict[str, str] = field(default_factory=dict)
    "id of a call → key of the conversation that made it"
    _calls_by_agent: dict[str, str] = field(default_factory=dict)
    _calls_by_prompt: dict[str, list[str]] = field(default_factory=dict)
    _named_calls: dict[str, str] = field(default_factory=dict)
    "key of a subagent's conversation → id of the call that its rows name"
    _agents: dict[str, str] = field(default_factory=dict)
    "key of a subagent's conversation → id of the subagent"
    _prompts: dict[str, str] = field(default_factory=dict)
    "key of a conversation → text of its first prompt"

    def add(self, row: _Row, key: str) -> None:
        """Add a row of the conversation with this key.

        Parameters
        ----------
        row : dict
            The row. The row of a progress row is added after ``unwrap_progress``.
        key : str
            Key of the conversation.
        """
        call = get_text(row, "parentToolUseID")
        if call and row.get("type") in ("user", "assistant"):
            self._named_calls.setdefault(key, call)
        if row.get("isSidechain") and (agent := get_text(row, "agentId")):
            self._agents.setdefault(key, agent)
        blocks = get_objects(row, "message", "content")
        if row.get("type") == "assistant":
            for block in blocks:
                id = get_text(block, "id")
                if id and block.get("type") == "tool_use" and self.calls.setdefault(id, key) == key:
                    prompt = (get_text(block, "input", "prompt") or "").strip()
                    self._calls_by_prompt.setdefault(prompt, []).append(id)
        elif row.get("type") == "user" and not row.get("isMeta"):
            self._prompts.setdefault(key, content_text(get_in(row, "message", "content")))
            agent = get_text(row, "toolUseResult", "agentId")
            answered = next(
                filter(None, (get_text(block, "tool_use_id") for block in blocks)), None
            )
            if agent and answered:
                self._calls_by_agent.setdefault(agent, answered)

    def add_parent_file(self, parent: CallIndex, key: str, call: str | None) -> None:
        """Add the calls of another file to those of a subagent's file.

        Parameters
        ----------
        parent : CallIndex
            Calls in the file of the conversation that started the subagent.
        key : str
            Key of the subagent's conversation.
        call : str or None
            Id of the call that started the subagent, if the file next to the subagent's file names it.
        """
        self.calls |= parent.calls
        self._calls_by_agent |= parent._calls_by_agent
        for prompt, ids in parent._calls_by_prompt.items():
            self._calls_by_prompt[prompt] = [*ids, *self._calls_by_prompt.get(prompt, ())]
        if call:
            self._named_calls[key] = call

    def match_calls(self, keys: Iterable[str]) -> dict[str, str]:
        """Find the calls that started the given subagents.

        Parameters
        ----------
        keys : iterable of str
            Keys of the conversations of the subagents.

        Returns
        -------
        dict of str to str
            Key of the conversation → id of the call. Subagents without a known call are left out.
        """
        found: dict[str, str] = {}
        unmatched = []
        for key in keys:
            by_agent = self._calls_by_agent.get(self._agents.get(key, ""))
            named = (self._named_calls.get(key), by_agent)
            call = next((id for id in named if id and self._is_other(id, key)), None)
            if call:
                found[key] = call
            else:
                unmatched.append(key)
        used = set(found.values())
        for key in unmatched:
            prompt = self._prompts.get(key, "")
            same = self._calls_by_prompt.get(prompt, []) if prompt else []
            call = next((id for id in same if id not in used and self._is_other(id, key)), None)
            if call:
                found[key] = call
                used.add(call)
        return found

    def _is_other(self, call: str, key: str) -> bool:
        return self.calls.get(call, key) != key


def unwrap_progress(row: _Row) -> _Row | None:
    """Return the row of a subagent that a progress row contains.

    Parameters
    ----------
    row : dict
        A row of any type.

    Returns
    -------
    dict or None
        The row of the subagent, as in a side chain. None if the row contains none.

    Examples
    --------
    >>> message = {"type": "user", "message": {"content": "Find it"}}
    >>> data = {"type": "agent_progress", "agentId": "a1", "message": message}
    >>> unwrap_progress({"type": "progress", "data": data})["message"]
    {'content': 'Find it'}
    """
    data = row.get("data")
    inner, agent = get_in(data, "message"), get_text(data, "agentId")
    if row.get("type") != "progress" or get_text(data, "type") != "agent_progress":
        return None
    if not isinstance(inner, dict) or not agent:
        return None
    outer = {key: row[key] for key in _COPIED_KEYS if key in row}
    tie = {"isSidechain": True, "agentId": agent, "parentToolUseID": row.get("parentToolUseID")}
    return outer | inner | tie


def final_answer(row: _Row) -> _Row | None:
    """Return the final answer of a subagent as a row, given the row with the result of its call.

    Parameters
    ----------
    row : dict
        A row of any type.

    Returns
    -------
    dict or None
        The answer, as a row of a side chain. None if the row contains no result of a subagent, or if
        the subagent did not complete.

    Examples
    --------
    >>> result = {"status": "completed", "agentId": "a1", "content": [{"type": "text", "text": "b"}]}
    >>> final_answer({"type": "user", "toolUseResult": result})["message"]["content"]
    [{'type': 'text', 'text': 'b'}]
    """
    result = row.get("toolUseResult")
    agent, content = get_text(result, "agentId"), get_objects(result, "content")
    if not agent or not content or get_text(result, "status") != "completed":
        return None
    message = {"content": list(content), "usage": get_in(result, "usage")}
    outer = {key: row[key] for key in _COPIED_KEYS if key in row}
    return outer | {"type": "assistant", "isSidechain": True, "agentId": agent, "message": message}


@dataclass(frozen=True)
class SubagentFile:
    """The file of a subagent, and the file of the conversation that started it."""

    parent: Path
    "file of the conversation that started the subagent"
    parent_name: str
    "prefix of the recording ids in this file"
    parent_agent: str | None
    "id of the subagent that started this one; None: the main conversation started it"
    call: str | None
    "id of the call, if the file ``agent-ID.meta.json`` names it"

    @property
    def parent_id(self) -> str:
        """Id of the recording of the conversation that started the subagent."""
        agent = self.parent_agent
        return f"{self.parent_name}/side-{agent}" if agent else self.parent_name


def find_subagent_file(source: Source, session: str) -> SubagentFile | None:
    """Find the file of the conversation that started the subagent in a file.

    Parameters
    ----------
    source : Source
        The file that is being read.
    session : str
        Id of the session.

    Returns
    -------
    SubagentFile or None
        The files. None if the file has another name than those of subagents, if it is not on a local
        disk, or if the other file does not exist in the requested folder.
    """
    path = local_path(source.path)
    if path is None or not path.name.startswith("agent-") or not is_file_name(session):
        return None
    stem, _, suffix = path.name.partition(".")
    known = _read_meta(path, path.with_name(f"{stem}.meta.json"), source)
    agent = get_text(known, "parentAgentId")
    if agent and is_file_name(agent):
        candidates = [path.with_name(f"agent-{agent}.{suffix}")]
    else:
        candidates = [folder / f"{session}.{suffix}" for folder in path.parents[:_MAX_LEVELS]]
    parent = next(
        (e for e in candidates if e != path and is_related_file(path, e, source.root)), None
    )
    if parent is None:
        return None
    name = recording_prefix(path, source.name, parent)
    return SubagentFile(parent, name, agent, get_text(known, "toolUseId"))


def has_own_file(source: Source, agent: str) -> bool:
    """Check whether a subagent has a file of its own next to the file of its session.

    Parameters
    ----------
    source : Source
        The file of the session.
    agent : str
        Id of the subagent.

    Returns
    -------
    bool
        True if the file exists. False if the files are not on a local disk.
    """
    path = local_path(source.path)
    if path is None or not is_file_name(agent):
        return False
    stem, _, suffix = path.name.partition(".")
    session = path.with_name(stem)
    folders = (path.parent, session, session / "subagents")
    own = (folder / f"agent-{agent}.{suffix}" for folder in folders)
    return any(is_related_file(path, each, source.root) for each in own)


def _read_meta(path: Path, meta: Path, source: Source) -> Any:
    if not is_related_file(path, meta, source.root):
        return None
    try:
        return Source(meta, source.name).read_json()
    except ReadError as error:
        source.skip(f"broken file {meta.name}: {error.reason}")
        return None
