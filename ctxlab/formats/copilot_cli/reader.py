"""Reader for session logs of GitHub Copilot CLI.

Copilot CLI writes one event per line, ``{type, data, id, timestamp, parentId}``, to
``~/.copilot/session-state/<session>/events.jsonl``. Its SDK and its JSON output contain the same events
and some more, which the product does not store.

- ``assistant.message`` events with the same ``apiCallId`` are one answer. In older logs without this id,
  the events of a turn (``assistant.turn_start``) up to the first result are one answer.
- ``tool.execution_complete`` contains the result of a call. The model received ``result.content``, or
  the error message if the tool failed. ``detailedContent``, ``contents``, ``structuredContent`` and
  ``citableSources`` repeat it or are for display. They are not read, and neither is ``toolTelemetry``.
  The results follow their answer in the order in which they arrived.
- A user message is read as it was sent (``transformedContent``), with the time and the reminders that
  Copilot CLI adds. A message that the user did not type has ``extra["source"]``. Notifications that a
  command or a subagent has finished are user messages too. Notifications for the user are skipped.
- Copilot CLI logs the system prompt again with every prompt. The first one becomes the system message.
  The others are skipped and counted, even if the system prompt changed. Tool definitions are not logged.
- The log contains only the output tokens of each answer (``outputTokens``). The input tokens are known
  if the file has ``assistant.usage`` events, which only the SDK and the JSON output contain.
  ``meta["shutdown"]`` contains the tokens that ``session.shutdown`` logged for each model.
- A compaction runs in the background from ``session.compaction_start`` to
  ``session.compaction_complete``. Messages after its start stay in the context. The summary is the
  message that the model received, which also contains the prompts that were replaced. The first answer
  after a compaction may have been requested before it. ``session.context_cleared`` is a compaction that
  keeps only the system message; its summary is the first message of the new context, if there is one.
- Events with an ``agentId`` belong to a subagent. Its conversation is a recording of its own, in the
  cluster of the session. Older logs name the tool call that started the subagent instead
  (``parentToolCallId``). ``meta["parent"]`` is the id of the recording that started the subagent, and
  ``meta["call_id"]`` the id of its tool call. ``meta`` also contains the id and the name of the
  subagent. If the call is not in the file, the parent is the main agent. The system prompts of subagents
  are not logged.
- Images are in the event itself or in an earlier ``session.binary_asset`` event. They follow the text of
  their message. Other attachments are counted, unless the text of the message contains them.
- Encrypted reasoning is counted if there is no readable reasoning. Results of commands that the user ran
  are skipped, because it is not known how the model receives them.
- All other events are skipped and counted by type: hooks (they repeat calls and results), permissions,
  starts of tools, ends of turns, aborts, errors, and events for display. A user message repeats the text
  of ``skill.invoked``. ``session.truncation`` does not name the messages that were left out. If the user
  goes back to an earlier message, Copilot CLI removes the later events from its log.

References
----------
Logs of Copilot CLI 1.0.64 to 1.0.74. github.com/github/copilot-sdk 1.0.14: the types of the events in
``nodejs/src/generated/session-events.ts``, ``docs/features/streaming-events.md``, and the recorded
requests in ``test/snapshots``, which show the message after a compaction and the list of attached files.
In the logs, ``preCompactionMessagesLength`` is the number of messages that this reader finds before the
compaction started, without the system message. Assumed: an asset comes before the events that name it,
and the model receives a notification only if it starts with ``<system_notification``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec import to_builtins

from ctxlab.formats.base import Format, SkipCallback, Source
from ctxlab.formats.common.chat_format import build_session
from ctxlab.formats.copilot_cli.conversation import EVENT_METHODS, ConversationBuilder
from ctxlab.formats.copilot_cli.events import parse_usage
from ctxlab.formats.fields import (
    first_text,
    get_count,
    get_object,
    get_text,
    get_time,
    is_short_value,
    require_object,
    require_text,
)
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Recording

_MODEL_TYPES = ("session.start", "session.resume", "session.model_change")
_SUBAGENT_TYPES = tuple(
    f"subagent.{verb}" for verb in ("started", "configured", "completed", "failed")
)
_SNIFFED_TYPES = frozenset({*EVENT_METHODS, *_MODEL_TYPES, "hook.start"})
_CONTEXT_KEYS = ("cwd", "branch", "repository")
_SUBAGENT_KEYS = (
    *("agentName", "totalTokens", "totalToolCalls", "durationMs", "cancelled", "error"),
)
_SHUTDOWN_KEYS = (
    *("shutdownType", "currentTokens", "systemTokens", "conversationTokens"),
    *("toolDefinitionsTokens", "totalNanoAiu"),
)


def sniff(head: FileHead) -> bool:
    """Check whether a file contains events of Copilot CLI.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if at least one row has the keys of an event and a type that Copilot CLI writes.
    """
    return any(
        isinstance(row, dict)
        and get_text(row, "type") in _SNIFFED_TYPES
        and isinstance(row.get("data"), dict)
        and {"id", "parentId"} <= row.keys()
        for row in head.rows
    )


def read(source: Source) -> Iterator[Recording]:
    """Read the conversation of the main agent and those of its subagents.

    Parameters
    ----------
    source : Source
        The file to read. Skipped content is reported to ``Source.skip``.

    Yields
    ------
    Recording
        The conversations that have messages: first that of the main agent, then those of the
        subagents in the order of their first events.
    """
    session = _Session(source.skip)
    for line, row in source.read_jsonl():
        with source.handle_errors(line):
            session.add(row)
    yield from session.build_recordings(source.name)


FORMAT = Format(
    "copilot-cli",
    "GitHub Copilot CLI sessions (~/.copilot/session-state)",
    sniff,
    read,
    versions="1.0.64 to 1.0.74; further events from source: SDK 1.0.14",
    not_read=(
        "not in the log: tool definitions, system prompts of subagents, input tokens (except "
        "in output of the SDK); left out: changed system prompts, encrypted reasoning, "
        "commands of the user"
    ),
)


@dataclass
class _Session:
    """The conversations of a log, and what the log says about the session and its subagents."""

    skip: SkipCallback
    cluster: str | None = field(default=None, init=False)
    meta: dict[str, Any] = field(default_factory=dict, init=False)
    shutdown: dict[str, Any] | None = field(default=None, init=False)
    assets: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    chats: dict[str, ConversationBuilder] = field(default_factory=dict, init=False)
    "agent id → conversation; the id of the main agent is an empty string"
    agents: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    "agent id → metadata of the subagent"
    calls: dict[str, str] = field(default_factory=dict, init=False)
    "agent id → id of the tool call that started the subagent"

    def __post_init__(self) -> None:
        self.chats[""] = ConversationBuilder(self.skip, self.assets)

    def add(self, row: Any) -> None:
        """Add the next event. Raise ``ValueError`` if it is malformed."""
        row = require_object(row, "an event")
        kind = require_text(row.get("type"), "type")
        if kind in EVENT_METHODS:
            data = require_object(row.get("data"), "data")
            agent = get_text(row, "agentId") or get_text(data, "parentToolCallId") or ""
            self._chat_of(agent).add(kind, data, get_time(row, "timestamp"))
        elif kind in _MODEL_TYPES:
            self._add_session_event(require_object(row.get("data"), "data"))
        elif kind in _SUBAGENT_TYPES:
            data = require_object(row.get("data"), "data")
            agent = first_text((row.get("agentId"), data.get("toolCallId"))) or ""
            self._add_subagent_event(require_text(agent or None, "agentId"), data)
        elif kind == "session.binary_asset":
            data = require_object(row.get("data"), "data")
            self.assets[require_text(data.get("assetId"), "assetId")] = data
        elif kind == "session.shutdown":
            self._add_shutdown(require_object(row.get("data"), "data"))
        else:
            self.skip(f"row of type {kind}")

    def build_recordings(self, name: str) -> Iterator[Recording]:
        """Yield the conversations as recordings. ``name`` is the id of the first one."""
        cluster = self.cluster or name
        built = {agent: chat.build() for agent, chat in self.chats.items()}
        spoken = [agent for agent, (messages, _) in built.items() if messages]
        ids = {agent: f"{name}/{agent}" if agent else name for agent in spoken}
        for agent, id in ids.items():
            about = self._subagent_meta(agent, ids) if agent else self._main_meta()
            models = self.chats[agent].models
            yield build_session(id, built[agent], models, cluster, self.meta | about)

    def _chat_of(self, agent: str) -> ConversationBuilder:
        if agent not in self.chats:
            self.chats[agent] = ConversationBuilder(self.skip, self.assets)
        return self.chats[agent]

    def _main_meta(self) -> dict[str, Any]:
        return {} if self.shutdown is None else {"shutdown": self.shutdown}

    def _subagent_meta(self, agent: str, ids: dict[str, str]) -> dict[str, Any]:
        """Return the metadata of a subagent. ``ids`` maps agents to the ids of their recordings."""
        about, call = self.agents.get(agent, {}), self.calls.get(agent, agent)
        others = (other for other in ids if other != agent)
        parent = next((each for each in others if call in self.chats[each].call_ids), None)
        if parent is not None:
            return about | {"parent": ids[parent], "call_id": call}
        return about | ({"parent": ids[""]} if "" in ids else {})

    def _add_session_event(self, data: dict[str, Any]) -> None:
        main = self.chats[""]
        main.model = first_text((data.get("newModel"), data.get("selectedModel"))) or main.model
        if (session := get_text(data, "sessionId")) and not self.meta:
            self.cluster = get_text(data, "detachedFromSpawningParentSessionId") or session
            self.meta["session"] = session
            if version := get_text(data, "copilotVersion"):
                self.meta["version"] = version
            context = get_object(data, "context")
            self.meta |= {key: v for key in _CONTEXT_KEYS if (v := get_text(context, key))}

    def _add_subagent_event(self, agent: str, data: dict[str, Any]) -> None:
        chat = self._chat_of(agent)
        chat.model = chat.model or get_text(data, "model")
        about = {key: data[key] for key in _SUBAGENT_KEYS if is_short_value(data.get(key))}
        self.agents.setdefault(agent, {"agentId": agent}).update(about)
        if call := get_text(data, "toolCallId"):
            self.calls[agent] = call

    def _add_shutdown(self, data: dict[str, Any]) -> None:
        if self.shutdown is not None:
            self.skip("earlier row of type session.shutdown")
        about = {key: data[key] for key in _SHUTDOWN_KEYS if is_short_value(data.get(key))}
        usage = {}
        for model, metric in get_object(data, "modelMetrics").items():
            billed = parse_usage(get_object(metric, "usage"))
            requests = get_count(metric, "requests", "count")
            usage[model] = {"requests": requests} | (to_builtins(billed) if billed else {})
        self.shutdown = about | {"models": usage}
