"""Items of OpenAI's Responses API as messages, and back: reasoning, text and calls of an answer are one.

Whatever has a ``call_id`` is a call of the answer, and the item that gives it back is its result,
whatever tool it is of. What the provider ran itself, such as a web search, says it all in one item and
belongs to the answer, as does the reasoning that led to it. Source: OpenAI's reference of the
Responses API, "Input item list".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.messages.types import ContentPart, Message, ToolCall

__all__ = ["ResponseItems", "items_from_message", "messages_from_items"]

ResponseItems: TypeAlias = tuple[dict[str, Any], ...]
"""The items that are one message here."""

_OUTPUT_SUFFIXES = ("_output", "mcp_approval_response")
_ANSWER_TYPES = frozenset({"reasoning", "program", "mcp_list_tools", "mcp_approval_request"})
# Of a call or a result: what says which one it is, not what it says.
_IDENTIFYING_KEYS = frozenset({"type", "id", "call_id", "status", "name", "namespace", "caller"})


def messages_from_items(items: Sequence[Any]) -> Iterator[tuple[Message, ResponseItems]]:
    """Messages with the items that make them, in order.

    >>> call = {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}
    >>> output = {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a.py"}]}
    >>> said = [{"role": "user", "content": "Go"}, {"type": "reasoning", "id": "r"}, call, output]
    >>> [(message.role, len(own)) for message, own in messages_from_items(said)]
    [('user', 1), ('assistant', 2), ('tool', 1)]
    """
    answer: list[dict[str, Any]] = []
    calls: dict[str, str] = {}
    for item in items:
        if _is_answer_item(item):
            # Text after a call is the next answer: the call was the last thing that this one said.
            if item.get("role") == "assistant" and any(map(_call_id, answer)):
                yield _answer_message(answer), tuple(answer)
                answer = []
            answer.append(item)
            if call := _call_id(item):
                calls[str(item.get("id"))] = call
            continue
        if answer:
            yield _answer_message(answer), tuple(answer)
            answer = []
        yield _item_to_message(item, calls), (item,)
    if answer:
        yield _answer_message(answer), tuple(answer)


def items_from_message(message: Message, original: ResponseItems | None) -> ResponseItems:
    """The items of a message that a strategy made, or the original ones with what it changed of them."""
    if message.role == "assistant":
        return _update_answer_items(message, original) if original else _new_answer_items(message)
    item = dict(original[0]) if original else {}
    if message.role == "tool":
        if not original:
            item = {"type": "function_call_output", "call_id": message.tool_call_id}
        return (_replace_output(item, message),)
    if original and item.get("role") is None:
        return original  # of a kind that only its maker can write
    return ({"role": message.role, **item, "content": _to_response_content(message.content)},)


# --- from items -----------------------------------------------------------------------------------


def _item_type(item: Mapping[str, Any]) -> str:
    return str(item.get("type") or "")


def _is_answer_item(item: Mapping[str, Any]) -> bool:
    kind = _item_type(item)
    return item.get("role") == "assistant" or kind in _ANSWER_TYPES or kind.endswith("_call")


def _call_id(item: Mapping[str, Any]) -> str | None:
    """The id under which another item will answer this one; None where none will."""
    if _item_type(item) == "mcp_approval_request":
        return item.get("id")
    return item.get("call_id")


def _answer_message(items: Sequence[Mapping[str, Any]]) -> Message:
    calls = tuple(
        ToolCall(call, str(item.get("name") or _item_type(item)), _call_arguments(item))
        for item in items
        if (call := _call_id(item))
    )
    parts = [part for item in items if not _call_id(item) for part in _answer_parts(item)]
    return Message("assistant", _join_parts(parts) or (None if calls else ""), calls)


def _answer_parts(item: Mapping[str, Any]) -> Iterator[ContentPart]:
    """What an item of an answer says that is no call."""
    if item.get("role") == "assistant":
        yield from map(_to_chat_part, _as_list(item.get("content")))
    elif _item_type(item) == "image_generation_call":
        yield _to_image_part({"image_url": f"data:image/png;base64,{item.get('result') or ''}"})
    elif _item_type(item) != "reasoning":
        yield {"type": "text", "text": f"{_item_type(item)} {_payload_json(item)}"}


def _call_arguments(item: Mapping[str, Any]) -> str:
    return (
        item.get("arguments") or "{}"
        if _item_type(item) == "function_call"
        else _payload_json(item)
    )


def _payload_json(item: Mapping[str, Any]) -> str:
    return dump_json({key: said for key, said in item.items() if key not in _IDENTIFYING_KEYS})


def _item_to_message(item: Mapping[str, Any], calls: Mapping[str, str]) -> Message:
    if _item_type(item).endswith(_OUTPUT_SUFFIXES):
        # An older form of local_shell_call_output gives the id of the call's item.
        own = item.get("call_id") or item.get("approval_request_id") or str(item.get("id"))
        return Message("tool", _join_parts(_output_parts(item)), tool_call_id=calls.get(own, own))
    role = item.get("role")
    if role in ("user", "system", "developer"):
        parts = [_to_chat_part(part) for part in _as_list(item.get("content"))]
        return Message("user" if role == "user" else "system", _join_parts(parts))
    return Message("user", dump_json(item))  # an item of another kind: counted as what it is


def _output_parts(item: Mapping[str, Any]) -> list[ContentPart]:
    output = item.get("output")
    if output is None:
        return [{"type": "text", "text": _payload_json(item)}]
    return [_to_chat_part(part) for part in _as_list(output)]


def _as_list(content: Any) -> list[Any]:
    if content is None:
        return []
    return list(content) if isinstance(content, (list, tuple)) else [content]


def _to_chat_part(part: Any) -> ContentPart:
    """Text and pictures in OpenAI's chat shape; anything else as its JSON."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if _item_type(part) in ("input_image", "computer_screenshot"):
        return _to_image_part(part)
    said = part.get("text") if "text" in part else part.get("refusal")
    return {"type": "text", "text": said if isinstance(said, str) else dump_json(part)}


def _to_image_part(part: Mapping[str, Any]) -> ContentPart:
    """The keys of the item's own part go along, so that it can be written again."""
    beside = {key: said for key, said in part.items() if key not in ("type", "image_url")}
    return {"type": "image_url", "image_url": {"url": part.get("image_url") or "", **beside}}


def _join_parts(parts: Sequence[ContentPart]) -> str | tuple[ContentPart, ...]:
    """Text alone is one text."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return tuple(parts)


# --- to items -------------------------------------------------------------------------------------


def _new_answer_items(message: Message) -> ResponseItems:
    said: ResponseItems = ({"role": "assistant", "content": message.text},) if message.text else ()
    calls = (
        {"type": "function_call", "call_id": c.id, "name": c.name, "arguments": c.arguments}
        for c in message.tool_calls
    )
    return (*said, *calls)


def _update_answer_items(message: Message, original: ResponseItems) -> ResponseItems:
    """New text stands in the place of all that the answer said; calls that are left stay in theirs."""
    calls = {call.id: call for call in message.tool_calls}
    same = message.content == _answer_message(original).content
    spoke = next((item for item in original if item.get("role") == "assistant"), None)
    said = _replace_answer_text(spoke or {}, message.text) if message.text and not same else None
    made: list[dict[str, Any]] = []
    led = False  # whether what reasoning led to is there: it is refused without
    for item in reversed(original):
        stays = item if same else said if item is spoke else None
        if call := _call_id(item):
            stays = _replace_arguments(item, calls[call]) if call in calls else None
        elif _item_type(item) == "reasoning":
            stays = item if led else None
        led = stays is not None
        if stays is not None:
            made.append(stays)
    if said is not None and spoke is None:
        made.append(said)
    made.reverse()
    return tuple(made)


def _replace_answer_text(item: dict[str, Any], text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    listed = isinstance(item.get("content"), list)
    return {"role": "assistant", **item, "content": [part] if listed else text}


def _replace_arguments(item: dict[str, Any], call: ToolCall) -> dict[str, Any]:
    if call.arguments == _call_arguments(item):
        return item
    if _item_type(item) == "function_call":
        return item | {"arguments": call.arguments}
    try:
        said = parse_json(call.arguments)
    except ValueError:
        return item
    known = {key: value for key, value in item.items() if key not in _IDENTIFYING_KEYS}
    return item | said if isinstance(said, dict) and said.keys() == known.keys() else item


def _replace_output(item: dict[str, Any], message: Message) -> dict[str, Any]:
    """The result with another output, where its kind can hold text."""
    kind, output = _item_type(item), item.get("output")
    if kind == "shell_call_output":
        outcome = {"type": "exit", "exit_code": 0}
        first = output[0] if isinstance(output, list) and output else {}
        said = {"stdout": message.text, "stderr": "", "outcome": first.get("outcome", outcome)}
        return item | {"output": [said]}
    if kind in ("function_call_output", "custom_tool_call_output"):
        return item | {"output": _to_response_content(message.content)}
    if isinstance(output, str):
        return item | {"output": message.text}
    return item


def _to_response_content(content: Any) -> Any:
    if not isinstance(content, tuple):
        return content or ""
    return [_to_response_part(part) for part in content]


def _to_response_part(part: ContentPart) -> dict[str, Any]:
    if part.get("type") != "image_url":
        return {"type": "input_text", "text": str(part.get("text") or "")}
    image = dict(part["image_url"])
    url = image.pop("url", "")
    return {"type": "input_image", **({"image_url": url} if url else {}), **image}
