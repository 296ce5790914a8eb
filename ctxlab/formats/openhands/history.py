"""Build the messages that an OpenHands agent sent to its model from the events of a run.

All actions of one model response form one message. Each observation is placed directly after the
message with its call, even if other events are logged between them. The call is found by the ids of
the response and of the call in ``tool_call_metadata``. If they are missing, the call is found by
``cause``, the id of the action. The module ``openhands/events`` reads the files.

Actions of agents without function calling, commands of the user, observations and recalls are
converted to text in the same way as in OpenHands (``ConversationMemory``, in older versions
``CodeActAgent``). One difference remains: OpenHands adds template sentences to a recall, and this
module uses only the content of the event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common import chat_format
from ctxlab.formats.common.compactions import CompactionBuilder
from ctxlab.formats.common.usage import openai_usage
from ctxlab.formats.fields import (
    get_in,
    get_list,
    get_object,
    get_objects,
    get_text,
    get_time,
    require_object,
    require_text,
)
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Compaction, Message, ToolCall

_ACTION_TYPES = (
    *("run", "run_ipython", "browse", "browse_interactive", "read", "write", "edit", "delegate"),
    *("think", "call_tool_mcp", "task_tracking", "finish"),
)
_HIDDEN_OBSERVATIONS = ("null", "agent_state_changed", "success", "loop_detection", "condense")
_ACTION_TAGS = {
    "run": ("bash", "command"),
    "run_ipython": ("ipython", "code"),
    "browse_interactive": ("browse", "browser_actions"),
}
_INLINE_IMAGE = "![image](data:image/png;base64,"
_IMAGE_PLACEHOLDER = "![image](data:image/png;base64, ...) already displayed to user"
_TRUNCATION_NOTICE = "\n[... Observation truncated due to length ...]\n"


@dataclass
class _Unit:
    """A message with the results of its tool calls, and the ids of the events it was built from."""

    messages: list[Message]
    events: set[int]
    is_finish: bool = False
    calls: frozenset[str] = frozenset()
    started_calls: set[str] = field(default_factory=set)
    "ids of the calls whose action was read"
    answered_calls: set[str] = field(default_factory=set)
    "ids of the calls whose result was read"


@dataclass
class _Condensation:
    """One removal of events by a condenser, the part of OpenHands that shortens the context.

    The removed events have the ids in ``ids`` and the ids from ``first`` to ``last``.
    """

    ids: frozenset[int]
    first: int
    last: int
    summary: str | None

    def keeps(self, unit: _Unit) -> bool:
        """Return True if a unit stays in the context, that is, if none of its events was removed."""
        return not any(e in self.ids or self.first <= e <= self.last for e in unit.events)


@dataclass
class EventHistory:
    """Builder that converts the events of one run to messages."""

    skip: SkipCallback
    "called with a description of each event, or part of an event, that is skipped"
    function_calling: bool = True
    "True if the agent used function calling. If False, its actions are converted to text"
    shows_recalls: bool = False
    "True if OpenHands sent recalled knowledge to the model"
    max_observation_chars: int = 0
    "maximum length of an observation in characters. 0: unlimited"
    tools: tuple[dict[str, Any], ...] = ()
    "tool definitions of the run, in OpenAI's format"
    model: str | None = None
    "name of the model that wrote the first answer"
    _items: list[_Unit | _Condensation] = field(default_factory=list, init=False)
    _units_by_response: dict[str, _Unit] = field(default_factory=dict, init=False)
    _calls_by_event: dict[int, tuple[_Unit, str]] = field(default_factory=dict, init=False)

    def add(self, event: Any) -> None:
        """Add the next event of the run.

        Parameters
        ----------
        event : Any
            JSON value of the event.

        Raises
        ------
        ValueError
            If the event is malformed.
        """
        event = require_object(event, "an event")
        if get_text(event, "action"):
            self._add_action(event, event["action"], require_object(event.get("args"), "args"))
        elif get_text(event, "observation"):
            self._add_observation(event, event["observation"])
        else:
            raise ValueError("expected an action or an observation, got an event with neither")

    def build_messages(self) -> tuple[tuple[Message, ...], tuple[Compaction, ...]]:
        """Return the conversation that was built from the events.

        Returns
        -------
        messages : tuple of Message
            All messages of the run, in order.
        compactions : tuple of Compaction
            One compaction for each time a condenser removed events.
        """
        messages: list[Message] = []
        built = CompactionBuilder(messages)
        kept: list[tuple[int, _Unit]] = []
        last = next((i for i in reversed(self._items) if isinstance(i, _Unit)), None)
        for item in self._items:
            if isinstance(item, _Condensation):
                kept = [(place, unit) for place, unit in kept if item.keeps(unit)]
                spans = (range(place, place + len(unit.messages)) for place, unit in kept)
                built.add_summary(len(messages), item.summary, chain.from_iterable(spans))
                continue
            if item.is_finish and item is not last:
                item.messages[0] = _finish_as_text(item)
            kept.append((len(messages), item))
            messages += item.messages
        return tuple(messages), tuple(built.compactions)

    def _add_action(self, event: dict[str, Any], kind: str, args: dict[str, Any]) -> None:
        by_user = event.get("source") == "user"
        if kind == "system":
            self.tools = self.tools or get_objects(args, "tools")
            self._add_message(event, Message("system", get_text(args, "content")))
        elif kind == "condensation":
            self._add_condensation(args)
        elif kind == "message":
            images = args.get("image_urls") or args.get("images_urls")
            said = _with_images(get_text(args, "content") or "", images)
            self._add_message(event, Message("user" if by_user else "assistant", said))
        elif kind == "run" and by_user:
            command = get_text(args, "command") or ""
            self._add_message(event, Message("user", f"User executed the command:\n{command}"))
        elif isinstance(event.get("tool_call_metadata"), dict) and kind != "condensation_request":
            self._add_call(event, kind, args)
        elif by_user or kind not in _ACTION_TYPES:
            self.skip(f"action of type {kind}")
        elif self.function_calling and kind != "finish":
            self.skip(f"action of type {kind} without its call")
        else:
            self._add_message(event, Message("assistant", _action_text(kind, args)))

    def _add_message(self, event: dict[str, Any], message: Message) -> None:
        if not message.content:
            self.skip(f"empty {event['action']}")
            return
        self._items.append(_Unit([message.replace(time=_event_time(event))], _event_ids(event)))

    def _add_call(self, event: dict[str, Any], kind: str, args: dict[str, Any]) -> None:
        metadata = event["tool_call_metadata"]
        response = get_text(metadata, "model_response", "id") or ""
        id = get_text(metadata, "tool_call_id") or ""
        unit = self._units_by_response.get(response)
        if unit is None or id in unit.started_calls or id not in unit.calls:
            message = _build_answer(args, metadata, id).replace(time=_event_time(event))
            unit = _Unit([message], set(), calls=frozenset(c.id for c in message.tool_calls))
            self._items.append(unit)
            self._units_by_response[response] = unit
            self.model = self.model or get_text(metadata, "model_response", "model")
        unit.started_calls.add(id)
        unit.events |= _event_ids(event)
        unit.is_finish = unit.is_finish or kind == "finish"
        self._calls_by_event |= dict.fromkeys(_event_ids(event), (unit, id))

    def _add_observation(self, event: dict[str, Any], kind: str) -> None:
        content, extras = event.get("content"), event.get("extras")
        if content is not None:
            content = require_text(content, "content")
        if kind == "recall" or kind in _HIDDEN_OBSERVATIONS:
            recalled = _recall_text(extras) if kind == "recall" and self.shows_recalls else ""
            if recalled:
                told = Message("user", recalled, time=_event_time(event), extra={"recall": True})
                self._items.append(_Unit([told], _event_ids(event)))
            else:
                self.skip(f"observation of type {kind}")
            return
        unit, id = self._find_caller(event)
        if unit is not None and id in unit.answered_calls:
            self.skip("second result of a call")
            return
        if unit is None and id:
            self.skip("result without its call")
            return
        seen = _observation_text(kind, content or "", extras, self.function_calling)
        if unit is None and kind == "run" and self.function_calling:
            seen = f"\nObserved result of command executed by user:\n{seen}"
        shown = seen if kind == "read" else _truncate_middle(seen, self.max_observation_chars)
        if shown is not seen:
            self.skip("middle of a long observation")
        said = _with_images(shown, get_in(extras, "image_urls"))
        if unit is None:
            told = Message("user", said, time=_event_time(event))
            self._items.append(_Unit([told], _event_ids(event)))
            return
        name = get_text(event, "tool_call_metadata", "function_name")
        result = Message("tool", said, tool_call_id=id, name=name, time=_event_time(event))
        unit.messages.append(result)
        unit.answered_calls.add(id)
        unit.events |= _event_ids(event)

    def _find_caller(self, event: dict[str, Any]) -> tuple[_Unit | None, str]:
        """Find the tool call that an observation answers.

        Returns the unit that contains the call, or None if it is not found, and the id of the call.
        """
        metadata = event.get("tool_call_metadata")
        id = get_text(metadata, "tool_call_id") or ""
        unit = self._units_by_response.get(get_text(metadata, "model_response", "id") or "")
        if unit is not None and id in unit.calls:
            return unit, id
        cause = event.get("cause")
        return self._calls_by_event.get(cause, (None, id)) if isinstance(cause, int) else (None, id)

    def _add_condensation(self, args: dict[str, Any]) -> None:
        listed = args.get("forgotten_event_ids")
        ids = frozenset(i for i in listed or () if isinstance(i, int))
        first, last = args.get("forgotten_events_start_id"), args.get("forgotten_events_end_id")
        if not isinstance(first, int) or not isinstance(last, int):
            first, last = 0, -1
        if ids or first <= last:
            self._items.append(_Condensation(ids, first, last, get_text(args, "summary")))
        else:
            self.skip("condensation that forgets nothing")


def _finish_as_text(unit: _Unit) -> Message:
    """Replace the ``finish`` call in a message by the text of the call.

    OpenHands sends the message in this form if the user continued after ``finish``.
    """
    message = unit.messages[0]
    calls = tuple(call for call in message.tool_calls if call.id in unit.answered_calls)
    ends = (call for call in message.tool_calls if call.id not in unit.answered_calls)
    words = (value for call in ends for path, value in call.argument_leaves() if path == "message")
    return message.replace(tool_calls=calls, content=message.content or get_text(next(words, None)))


def _event_ids(event: dict[str, Any]) -> set[int]:
    id = event.get("id")
    return {id} if type(id) is int else set()


def _event_time(event: dict[str, Any]) -> float | None:
    return get_time(event, "timestamp")


def _action_text(kind: str, args: dict[str, Any]) -> str:
    """Return the text of an action of an agent without function calling.

    The text is the thought, followed by the action in a tag. If the type of the action has no tag,
    the action is written as JSON.

    >>> print(_action_text("run", {"thought": "Look.", "command": "ls"}))
    Look.
    <execute_bash>
    ls
    </execute_bash>
    """
    thought = get_text(args, "thought") or ""
    if kind in ("message", "finish"):
        return get_text(args, "content") or thought
    if kind == "delegate":
        tag, said = "browse", get_in(args, "inputs", "task")
    elif kind in _ACTION_TAGS:
        tag, key = _ACTION_TAGS[kind]
        said = args.get(key)
    else:
        rest = {key: value for key, value in args.items() if key != "thought"}
        return f"{thought}\n{dump_json({'action': kind, 'args': rest})}"
    return f"{thought}\n<execute_{tag}>\n{get_text(said) or ''}\n</execute_{tag}>"


def _observation_text(kind: str, content: str, extras: Any, function_calling: bool) -> str:
    r"""Return the text of an observation, as OpenHands sends it to the model.

    >>> _observation_text("run", "a.py", {"metadata": {"exit_code": 0}}, True)
    'a.py\n[Command finished with exit code 0]'
    """
    if kind == "run":
        content = _command_text(content, extras, function_calling)
    elif kind == "run_ipython" and _INLINE_IMAGE in content:
        lines = content.split("\n")
        content = "\n".join(_IMAGE_PLACEHOLDER if _INLINE_IMAGE in each else each for each in lines)
    elif kind == "delegate":
        content = get_text(extras, "outputs", "content") or content
    elif kind == "error":
        content += "\n[Error occurred in processing last action]"
    elif kind == "user_rejected":
        return f"OBSERVATION:\n{content}\n[Last action has been rejected by the user]"
    return content if function_calling else f"OBSERVATION:\n{content}"


def _recall_text(extras: Any) -> str:
    r"""Return recalled knowledge as text: facts about the workspace, then texts of microagents.

    >>> _recall_text({"date": "2025-05-01", "microagent_knowledge": [{"content": "Use git."}]})
    '2025-05-01\n\nUse git.'
    """
    keys = ("repo_name", "repo_directory", "repo_branch", "repo_instructions", "working_dir")
    told = [get_in(extras, key) for key in keys]
    objects = (get_object(extras, key) for key in ("runtime_hosts", "custom_secrets_descriptions"))
    told += [dump_json(each) for each in objects if each]
    later = ("additional_agent_instructions", "date", "conversation_instructions")
    told += [get_in(extras, key) for key in later]
    told += [get_in(each, "content") for each in get_list(extras, "microagent_knowledge")]
    return "\n\n".join(each for each in told if get_text(each))


def _truncate_middle(content: str, max_chars: int) -> str:
    r"""Remove the middle of a string with over ``max_chars`` characters. A maximum of 0 keeps all text.

    >>> _truncate_middle("abcdef", 4)
    'ab\n[... Observation truncated due to length ...]\nef'
    """
    if not max_chars or len(content) <= max_chars:
        return content
    half = max_chars // 2
    return content[:half] + _TRUNCATION_NOTICE + content[len(content) - half :]


def _build_answer(args: dict[str, Any], metadata: dict[str, Any], id: str) -> Message:
    """Build the assistant message that contains a tool call.

    If the logged answer of the model does not contain the call, the call is built from ``args``.
    """
    response = metadata.get("model_response")
    said = chat_format.first_choice(response)
    keys = ("content", "tool_calls", "reasoning_content")
    wire = {key: get_in(said, key) for key in keys} | {"role": "assistant"}
    message = message_from_dict(wire | {"content": chat_format.normalize_content(wire["content"])})
    if all(call.id != id for call in message.tool_calls):
        rest = {key: value for key, value in args.items() if key != "thought"}
        name = get_text(metadata, "function_name") or ""
        calls = (ToolCall(id, name, dump_json(rest)),)
        message = Message("assistant", get_text(args, "thought"), tool_calls=calls)
    return message.replace(usage=openai_usage(get_in(response, "usage")))


def _with_images(content: str, urls: Any) -> chat_format.Content:
    """Return the content of a message with text and images. Without image URLs, it is a string."""
    shown = [chat_format.image_part(url) for url in get_list(urls) if get_text(url)]
    return (chat_format.text_part(content), *shown) if shown else content


def _command_text(content: str, extras: Any, function_calling: bool) -> str:
    metadata = get_in(extras, "metadata")
    if not isinstance(metadata, dict):  # events of older OpenHands versions
        content += get_text(extras, "interpreter_details") or ""
        code, number = get_in(extras, "exit_code"), get_in(extras, "command_id")
        which = "" if function_calling else f" {number}"
        ended = f"\n[Command{which} finished with exit code {code}]" if type(code) is int else ""
        return content + ended
    return add_terminal_state(content, metadata)


def add_terminal_state(content: str, metadata: dict[str, Any]) -> str:
    r"""Add the state of the terminal to the output of a command, as OpenHands sends it to the model.

    Parameters
    ----------
    content : str
        The output of the command.
    metadata : dict
        The logged state of the terminal after the command.

    Returns
    -------
    str
        The output with its prefix and suffix, the working directory, the Python interpreter and the
        exit code.

    Examples
    --------
    >>> add_terminal_state("a.py", {"working_dir": "/w", "exit_code": 0})
    'a.py\n[Current working directory: /w]\n[Command finished with exit code 0]'
    """
    content = (get_text(metadata, "prefix") or "") + content + (get_text(metadata, "suffix") or "")
    if folder := get_text(metadata, "working_dir"):
        content += f"\n[Current working directory: {folder}]"
    if python := get_text(metadata, "py_interpreter_path"):
        content += f"\n[Python interpreter: {python}]"
    code = metadata.get("exit_code")
    if type(code) is int and code != -1:
        content += f"\n[Command finished with exit code {code}]"
    return content
