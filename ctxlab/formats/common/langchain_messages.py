"""Parse messages of LangChain, which are serialised in three forms.

The forms are:

- A constructor call, ``{lc, type: "constructor", id: [..., "AIMessage"], kwargs}``.
- ``{type, data}``.
- A flat object with ``type`` (or ``role``, which LangChain also accepts) and the other fields.

The same tool calls may be in ``tool_calls``, in blocks of the content, and in ``additional_kwargs``
in the format of the provider. They are read only once. Calls with arguments that are not valid JSON
are in ``invalid_tool_calls``. The older ``function_call`` and its result have no ids, so the
function name is used as id. The readers for LangChain files and traces use this module.

References
----------
langchain-core 1.8.2: ``load.dumpd``, ``messages_to_dict``, ``messages.content``,
``messages.block_translators``; langsmith 0.15.0 for the details that it adds.
"""

from __future__ import annotations

from typing import Any, cast

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common.api_content import ParsedContent, parse_tool_call, read_blocks
from ctxlab.formats.common.usage import anthropic_usage, langchain_usage, openai_usage
from ctxlab.formats.fields import first_text, get_in, get_text, require_list, require_object
from ctxlab.messages.types import ROLES, Message, Role, ToolCall, Usage

_ALIASES = {"human": "user", "ai": "assistant", "model": "assistant", "function": "tool"}
_ROLES = {**_ALIASES, "developer": "system"} | {role: role for role in ROLES}


def is_langchain_message(value: Any) -> bool:
    """Return True if a value is a LangChain message.

    The module docstring describes the three forms of a message. A flat object is recognised only by
    its ``type``, because an object with ``role`` may be a message of another API.

    Parameters
    ----------
    value : Any
        A JSON value.

    Returns
    -------
    bool
        True if the value is an object with a message type of LangChain.

    Examples
    --------
    >>> is_langchain_message({"type": "human", "data": {"content": "hi"}})
    True
    >>> is_langchain_message({"role": "user", "content": "hi"})
    False
    """
    if not isinstance(value, dict):
        return False
    if "lc" in value:
        return _message_kind(_last_item(value.get("id"))) in (*_ROLES, "chat")
    wrapped = isinstance(value.get("data"), dict) or "content" in value
    return wrapped and _message_kind(value.get("type")) in (*_ROLES, "chat")


def is_role(value: Any) -> bool:
    """Return True if a value is the role or the type of a message, such as ``user`` or ``human``.

    Parameters
    ----------
    value : Any
        A JSON value.

    Returns
    -------
    bool
        True if ``message_from_langchain`` accepts the value as the role of a message.

    Examples
    --------
    >>> is_role("developer"), is_role("get_weather")
    (True, False)
    """
    return _message_kind(value) in _ROLES


def message_from_langchain(value: Any, skip: SkipCallback) -> Message:
    """Parse a LangChain message in one of the three forms that the module docstring describes.

    Parameters
    ----------
    value : Any
        The logged message.
    skip : Callable
        Called with a description of each skipped block.

    Returns
    -------
    Message
        The parsed message.

    Raises
    ------
    ValueError
        If the value is not a LangChain message or is malformed.

    Examples
    --------
    >>> call = {"name": "ls", "args": {"path": "."}, "id": "c", "type": "tool_call"}
    >>> form = {"type": "ai", "data": {"content": "", "tool_calls": [call]}}
    >>> message_from_langchain(form, print).tool_calls
    (ToolCall(id='c', name='ls', arguments='{"path":"."}'),)
    """
    kind, fields = _unwrap(value)
    role = cast(Role, _ROLES[kind])
    content = fields.get("content")
    held = read_blocks(content, skip) if isinstance(content, list) else ParsedContent()
    for _ in held.results:
        skip("result within another message")
    said = held.content if isinstance(content, list) else content
    said = said if said is None or isinstance(said, (str, tuple)) else dump_json(said)
    if fields.get("artifact") is not None:
        skip("artifact of a tool result")
    extra = {"is_error": True} if fields.get("status") == "error" else {}
    name = get_text(fields, "name")
    if role != "assistant":
        id = get_text(fields, "tool_call_id") or (name if kind == "function" else None)
        answered = id if role == "tool" else None
        return Message(role, said or "", tool_call_id=answered, name=name, extra=extra)
    thought = get_in(fields, "additional_kwargs", "reasoning_content")
    thoughts = (thought, fields.get("reasoning_content"), fields.get("reasoning"))
    reasoning = "\n".join(held.reasoning) or first_text(thoughts)
    calls, usage = _parse_tool_calls(fields) or held.calls, _parse_usage(fields)
    return Message(role, said, calls, name=name, reasoning=reasoning, usage=usage, extra=extra)


def _unwrap(value: Any) -> tuple[str, dict[str, Any]]:
    """Return the kind of a message, such as ``human`` or ``ai``, and its fields in a flat dict."""
    value = require_object(value, "a message")
    if "lc" in value:
        kind, fields = _last_item(value.get("id")), value.get("kwargs")
    elif isinstance(value.get("data"), dict):
        kind, fields = value.get("type"), value["data"]
    else:
        kind, fields = value.get("type") or value.get("role"), value
    if not isinstance(fields, dict):
        found = f"got {type(fields).__name__}"
        raise ValueError(f"the kwargs of the message type {kind!r} must be an object, {found}")
    named = _message_kind(kind)
    if named == "chat":
        named = _message_kind(fields.get("role"))
    if named not in _ROLES:
        raise ValueError(f"expected a LangChain message type such as human or ai, got {kind!r}")
    return named, fields


def _message_kind(name: Any) -> str:
    """Shorten the type of a message, such as ``HumanMessage`` or ``HumanMessageChunk``, to ``human``."""
    if not isinstance(name, str):
        return ""
    return name.removesuffix("Chunk").removesuffix("Message").lower()


def _last_item(value: Any) -> Any:
    return value[-1] if isinstance(value, list) and value else None


def _parse_tool_calls(fields: dict[str, Any]) -> tuple[ToolCall, ...]:
    """Parse the tool calls of a message.

    The calls are read from ``tool_calls`` and ``invalid_tool_calls``. If both are empty, the calls in
    the provider's format are read.
    """
    calls = _listed(fields, "tool_calls") + _listed(fields, "invalid_tool_calls")
    raw = fields.get("additional_kwargs")
    for holder in (raw, fields):
        if not calls and isinstance(holder, dict):
            call = holder.get("function_call")
            calls = _listed(holder, "tool_calls") or _parse_function_call(call)
    return tuple(map(parse_tool_call, calls))


def _parse_function_call(value: Any) -> list[Any]:
    """Convert OpenAI's legacy ``function_call`` to a list of at most one call.

    The id of the call is the function name.
    """
    return [{"id": value.get("name"), **value}] if isinstance(value, dict) else []


def _listed(fields: dict[str, Any], key: str) -> list[Any]:
    return require_list(fields.get(key) or [], key)


def _parse_usage(fields: dict[str, Any]) -> Usage | None:
    """Parse the usage of a message, in LangChain's format or, if missing, in the provider's format."""
    told = fields.get("response_metadata")
    return (
        langchain_usage(fields.get("usage_metadata"))
        or openai_usage(get_in(told, "token_usage") or None)
        or anthropic_usage(get_in(told, "usage") or None)
    )
