"""Convert the messages of one opencode session to a recording.

opencode stores a session as an info object and a list of messages. A message has an info object
(``role``, model, usage) and a list of parts. They are converted in the way in which opencode itself
builds its requests:

- A user message contains the texts, images and notes of its parts. Texts that opencode added itself
  (``synthetic``) are sent too. If all texts of a message are synthetic, ``extra["synthetic"]`` is
  True. Texts marked ``ignored``, and files whose text is also stored in a text part, are not sent.
- An assistant message contains the texts, reasoning and tool calls of one request. Old messages
  contain several requests, each after a ``step-start`` part, and become several messages. A
  ``step-finish`` part contains the usage and the cost of its request.
- A tool part contains the call and its result. If opencode stopped before the tool ended, the model
  gets a fixed text as result.
- An answer that ended with an error is not sent again and is skipped. An answer that the user stopped
  is sent again if it has a text or a call.
- A compaction consists of a user message with a ``compaction`` part, and of the answer with the
  summary. From then on, opencode sends the summary, the messages from ``tail_start_id`` on, and all
  later messages. If the summary failed, the user message remains as a question. Older versions
  stored only the answer with the summary. The usage of this answer is not kept.
- If opencode cleared an old tool result, the part has the time (``time.compacted``) and still contains
  the whole output. The message keeps the output, and a compaction of kind ``clear`` lists the call
  before the next message after this time.
- While a session is reverted (``revert``), the messages that the user took back are still stored. They
  are skipped.
- Older versions logged the system prompt with each answer. In newer versions, a user message may have
  an addition to the system prompt (``system``). The first system prompt of a session becomes a system
  message. opencode 2 stores notes to the model as messages of role ``system``. If other messages precede
  a note, it becomes a user message, because many providers refuse it. Tool definitions are not recorded.
- The session of a subagent is a session of its own, in the cluster of its parent (see ``subagents``).
  ``meta["parent"]`` is the id of the recording that started it, and ``meta["call_id"]`` the id of the
  tool call. If the parent is not read, ``meta["parent"]`` is the id of its session. The result of a call
  that started or continued a subagent has the id of its session in ``extra["subagent"]``.

In the recorded usage, ``input`` excludes the tokens of the cache. In newer versions, ``output`` excludes
``reasoning``; the field ``total`` tells which rule holds.

References
----------
github.com/sst/opencode (now github.com/anomalyco/opencode), versions 0.5 to 1.18, in
``packages/opencode/src/session``: ``message-v2.ts`` (``toModelMessages``, ``filterCompacted``),
``compaction.ts``, ``revert.ts`` and ``index.ts`` (``getUsage``). The reader was compared with real
exports of 1.14 and 1.18. These contain no compactions, so compactions follow the source code only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ctxlab.formats.base import SkipCallback, Source, ignore_skip
from ctxlab.formats.common.chat_format import build_session, most_common_model
from ctxlab.formats.common.compactions import CompactionBuilder
from ctxlab.formats.fields import (
    get_in,
    get_list,
    get_number,
    get_objects,
    get_text,
    require_object,
    require_objects,
    texts_in,
)
from ctxlab.formats.io.files import PathOrUrl
from ctxlab.formats.opencode.parts import (
    SUMMARY_QUESTION,
    convert_steps,
    convert_user_parts,
    parse_milliseconds,
    parse_usage,
)
from ctxlab.messages.types import Compaction, Message, Recording

_BARE_PART_TYPES = ("step-start", "reasoning")
_META_KEYS = {
    "session": "id",
    "version": "version",
    "title": "title",
    "cwd": "directory",
    "agent": "agent",
    "parent": "parentID",
}


class StoredMessage(NamedTuple):
    """A stored message of a session, with the place that errors name."""

    info: Any
    "JSON value of the message without its parts"
    parts: Any
    "JSON list of the parts of the message"
    path: PathOrUrl
    "path of the file that contains the message"
    number: int
    "index of the message in the session"


def build_recording(
    source: Source,
    id: str,
    info: dict[str, Any],
    rows: Sequence[StoredMessage],
    cluster: str | None = None,
) -> Recording | None:
    """Convert a session to a recording.

    Parameters
    ----------
    source : Source
        The file with the session. Skipped content is counted by its ``skip`` method.
    id : str
        Id of the recording.
    info : dict
        The info object of the session. Empty if it is unknown.
    rows : sequence of StoredMessage
        The messages of the session, in order.
    cluster : str, optional
        Cluster of the recording. By default, the id of the parent session, or of the session if it
        has no parent.

    Returns
    -------
    Recording or None
        The recording, or None if the session has no messages for the model.

    Raises
    ------
    ReadError
        If a message is malformed and ``on_error`` is ``"raise"``.
    """
    rows = list(_drop_reverted(rows, info.get("revert"), source.skip))
    builder = _SessionBuilder(source.skip, _find_summaries(rows))
    builder.add_system(rows)
    for row in rows:
        place = Source(row.path, source.name, source.on_error)
        with place.handle_errors(row.number, "message"):
            builder.add(row)
        for reason, count in place.pop_skipped().items():
            source.skip(reason, count=count)
    if not builder.models and not any(each.role == "user" for each in builder.messages):
        return None
    meta: dict[str, Any] = {
        name: value for name, key in _META_KEYS.items() if (value := get_text(info, key))
    }
    if builder.agent:
        meta.setdefault("agent", builder.agent)
    if provider := most_common_model(builder.providers):
        meta["provider"] = provider
    if cost := get_number(info, "cost"):
        meta["cost"] = cost
    session = get_text(info, "id") or next((get_text(row.info, "sessionID") for row in rows), None)
    cluster = cluster or get_text(info, "parentID") or session
    return build_session(
        id, (builder.messages, builder.list_compactions()), builder.models, cluster, meta
    )


def _drop_reverted(
    rows: Sequence[StoredMessage], revert: Any, skip: SkipCallback
) -> Iterator[StoredMessage]:
    """Yield the messages that the user did not take back.

    ``revert`` names the first message that was taken back, or the first part of this message.
    """
    first, first_part = get_text(revert, "messageID"), get_text(revert, "partID")
    ids = [get_text(row.info, "id") for row in rows]
    end = ids.index(first) if first in ids else len(rows)
    yield from rows[:end]
    for row in rows[end:]:
        parts = [get_in(part, "id") for part in get_list(row.parts)]
        if row is rows[end] and first_part in parts:
            kept = row.parts[: parts.index(first_part)]
            for _ in parts[len(kept) :]:
                skip("part taken back")
            yield row._replace(parts=kept)
        else:
            skip("message taken back")


def _find_summaries(rows: Sequence[StoredMessage]) -> dict[str, str]:
    """Return the answers that contain the summary of a finished compaction.

    The result maps the id of the answer to the id of the message that it answers.
    """
    questions = {
        get_text(row.info, "id")
        for row in rows
        if any(part.get("type") == "compaction" for part in get_objects(row.parts))
    }
    found: dict[str, str] = {}
    for row in rows:
        id, parent = get_text(row.info, "id"), get_text(row.info, "parentID")
        is_summary = get_in(row.info, "role") == "assistant" and get_in(row.info, "summary") is True
        # Older versions did not log how an answer finished.
        finished = get_text(row.info, "finish") or parent not in questions
        if id and is_summary and finished and not get_in(row.info, "error"):
            found[id] = parent or ""
    return found


def _is_sent_again(info: dict[str, Any], parts: list[dict[str, Any]]) -> bool:
    """Check whether opencode sends an answer to the model again. It leaves out failed answers."""
    if not info.get("error"):
        return True
    stopped = get_text(info, "error", "name") == "MessageAbortedError"
    return stopped and any(part.get("type") not in _BARE_PART_TYPES for part in parts)


class _Summary(NamedTuple):
    """A compaction that replaced messages by a summary."""

    sent: list[Message]
    "messages that opencode sent instead"
    kept: range
    "positions of the messages that were kept"
    trigger: str | None


class _ClearedResult(NamedTuple):
    """A tool result that opencode cleared."""

    call: str
    "id of the tool call"
    place: int
    "position of the first message after the result"
    time: float
    "time at which it was cleared, in seconds since 1970"


@dataclass
class _SessionBuilder:
    """Builder that converts the messages of one session. They are added in order."""

    skip: SkipCallback
    "called with a description of each skipped message or part"
    summaries: dict[str, str]
    "id of an answer with a summary → id of the message that it answers"
    messages: list[Message] = field(default_factory=list, init=False)
    "messages built so far"
    models: Counter[str] = field(default_factory=Counter, init=False)
    "model → number of its answers"
    providers: Counter[str] = field(default_factory=Counter, init=False)
    "provider → number of answers"
    agent: str | None = field(default=None, init=False)
    "agent that the first user message was sent to, such as ``build`` or ``plan``"
    _summaries: dict[int, list[_Summary]] = field(default_factory=dict, init=False)
    "position of the first message after a compaction → the compactions at this position"
    _cleared: list[_ClearedResult] = field(default_factory=list, init=False)
    _starts: dict[str, int] = field(default_factory=dict, init=False)
    _compaction_parts: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)

    def add_system(self, rows: Sequence[StoredMessage]) -> None:
        """Add the first recorded system prompt, and count its changes.

        Parameters
        ----------
        rows : sequence of StoredMessage
            All messages of the session.
        """
        recorded = [texts_in(get_in(row.info, "system")) for row in rows]
        prompts = [prompt for prompt in recorded if any(prompt)]
        for prompt, previous in zip(prompts[1:], prompts, strict=False):
            if prompt != previous:
                self.skip("change of the system prompt")
        self.messages += [Message("system", text) for text in (prompts or [()])[0] if text]

    def add(self, row: StoredMessage) -> None:
        """Add the next message of the session.

        Parameters
        ----------
        row : StoredMessage
            The message as stored.

        Raises
        ------
        ValueError
            If the message is malformed. In this case no message is added.
        """
        info = require_object(row.info, "info of a message")
        parts = require_objects(row.parts, "parts of a message")
        id, role, start = get_text(info, "id") or "", info.get("role"), len(self.messages)
        if role == "user":
            self._add_user(id, info, parts)
        elif role == "system":
            self._add_note(info, parts)
        elif role != "assistant":
            self.skip(f"message of role {role}")
        elif id in self.summaries:
            self._add_summary(id, parts)
        elif _is_sent_again(info, parts):
            self._add_answer(info, parts)
        else:
            self.skip("interrupted answer")
        if id:
            self._starts.setdefault(id, start)

    def list_compactions(self) -> list[Compaction]:
        """Return the compactions of the session, in order.

        Returns
        -------
        list of Compaction
            The summaries and the cleared results. All results that were cleared between the same two
            messages are one compaction.
        """
        calls: dict[int, list[str]] = {}
        for call, start, time in self._cleared:
            later = range(start, len(self.messages))
            places = (place for place in later if _is_sent_after(self.messages[place], time))
            calls.setdefault(next(places, len(self.messages)), []).append(call)
        built = CompactionBuilder(self.messages, self.skip)
        for place in sorted({*calls, *self._summaries}):
            for sent, kept, trigger in self._summaries.get(place, ()):
                built.add_summary(place, sent, kept, trigger=trigger)
            if place in calls:
                built.add_clearing(place, calls[place])
        return built.compactions

    def _add_user(self, id: str, info: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        finished = id in self.summaries.values()
        said = convert_user_parts(parts, self.skip, is_compacted=finished)
        asked = next((part for part in parts if part.get("type") == "compaction"), None)
        if asked is not None:
            self._compaction_parts[id] = asked
        if said is not None:
            texts = [part for part in parts if part.get("type") == "text"]
            is_synthetic = all(part.get("synthetic") for part in texts) and bool(texts)
            extra = {"synthetic": True} if is_synthetic else {}
            time = parse_milliseconds(info, "time", "created")
            self.messages.append(Message("user", said, time=time, extra=extra))
        elif asked is None:
            self.skip("message without content")
        self.agent = self.agent or get_text(info, "agent")

    def _add_note(self, info: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        """Add a note of opencode 2. After the first other message, it becomes a user message."""
        if any(message.role != "system" for message in self.messages):
            self._add_user("", info, parts)
        elif text := convert_user_parts(parts, self.skip, is_compacted=False):
            self.messages.append(Message("system", text))

    def _add_answer(self, info: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        steps = convert_steps(parts, parse_milliseconds(info, "time", "created"), self.skip)
        if len(steps) == 1 and steps[0].answer.usage is None:
            steps[0].answer.usage = parse_usage(info.get("tokens"))
        for step in steps:
            if step.is_empty:
                self.skip("answer without content")
                continue
            self.messages += step.messages
            end = len(self.messages)
            self._cleared += [
                _ClearedResult(call, end, time) for call, time in step.cleared.items()
            ]
            if model := get_text(info, "modelID"):
                self.models[model] += 1
            if provider := get_text(info, "providerID"):
                self.providers[provider] += 1

    def _add_summary(self, id: str, parts: list[dict[str, Any]]) -> None:
        texts = (
            text for step in convert_steps(parts, None, ignore_skip) for text in step.answer.texts
        )
        asked = self._compaction_parts.get(self.summaries[id], {})
        here = len(self.messages)
        first = self._starts.get(get_text(asked, "tail_start_id") or "", here)
        triggers = {True: "auto", False: "manual"}
        trigger = triggers.get(asked["auto"]) if isinstance(asked.get("auto"), bool) else None
        sent = [Message("user", SUMMARY_QUESTION)] if asked else []
        if summary := "\n\n".join(texts):
            sent.append(Message("assistant", summary))
        self._summaries.setdefault(here, []).append(_Summary(sent, range(first, here), trigger))


def _is_sent_after(message: Message, time: float) -> bool:
    return message.role != "tool" and message.time is not None and message.time > time
