"""Convert items of OpenAI's Responses API to messages and back.

The reasoning, text and tool calls of one model response form one assistant message. The output of a
tool call is another item with the same ``call_id``, and forms a tool message. Tools that the
provider runs itself, such as web search, are different: the call and its output are one item, which
belongs to the assistant message.

References
----------
OpenAI API reference, Responses API, "Input item list".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ctxlab._utils.jsonio import dump_json
from ctxlab.messages.types import ContentPart, Message, ToolCall

ResponseItems: TypeAlias = tuple[dict[str, Any], ...]
"""Items of the Responses API that form one message."""

_OUTPUT_SUFFIXES = ("_output", "mcp_approval_response")
_ANSWER_TYPES = frozenset({"reasoning", "program", "mcp_list_tools", "mcp_approval_request"})
# Keys that identify a tool call or its output. All other keys are the payload of the item.
_IDENTIFYING_KEYS = frozenset({"type", "id", "call_id", "status", "name", "namespace", "caller"})


def messages_from_items(items: Sequence[Any]) -> Iterator[tuple[Message, ResponseItems]]:
    """Group items of the Responses API into messages.

    A message consists of one or more items.

    Parameters
    ----------
    items : sequence of dict
        Input items of the Responses API.

    Yields
    ------
    (Message, ResponseItems)
        Each message in order, with the items that it consists of.

    Examples
    --------
    >>> call = {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}
    >>> output = {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a.py"}]}
    >>> said = [{"role": "user", "content": "Go"}, {"type": "reasoning", "id": "r"}, call, output]
    >>> [(message.role, len(own)) for message, own in messages_from_items(said)]
    [('user', 1), ('assistant', 2), ('tool', 1)]
    """
    answer: list[dict[str, Any]] = []
    calls: dict[str, str] = {}
    for item in items:
        continues = _is_answer_item(item)
        if item.get("role") == "assistant" and any(map(_call_id, answer)):
            continues = False  # text after a call begins the next assistant message
        if answer and not continues:
            yield _answer_message(answer), tuple(answer)
            answer = []
        if not _is_answer_item(item):
            yield _item_to_message(item, calls), (item,)
            continue
        answer.append(item)
        if call := _call_id(item):
            calls[str(item.get("id"))] = call
    if answer:
        yield _answer_message(answer), tuple(answer)


def items_from_message(message: Message, original: ResponseItems | None) -> ResponseItems:
    """Convert a message, which a strategy may have changed, to items of the Responses API.

    Parameters
    ----------
    message : Message
        Message to convert.
    original : ResponseItems or None
        Items that the message consisted of before the change. Unchanged content is copied from
        these items. None if the strategy created the message.

    Returns
    -------
    ResponseItems
        Items to send.
    """
    if message.role == "assistant":
        return _update_answer_items(message, original) if original else _new_answer_items(message)
    item = dict(original[0]) if original else {}
    if message.role == "tool":
        if not original:
            item = {"type": "function_call_output", "call_id": message.tool_call_id}
        return (_replace_output(item, message),)
    if original and item.get("role") is None:
        return original  # an item of another kind, whose content cannot be replaced
    return ({"role": message.role, **item, "content": _to_response_content(message.content)},)


# --- from items -----------------------------------------------------------------------------------


def _item_type(item: Mapping[str, Any]) -> str:
    return str(item.get("type") or "")


def _is_answer_item(item: Mapping[str, Any]) -> bool:
    kind = _item_type(item)
    return item.get("role") == "assistant" or kind in _ANSWER_TYPES or kind.endswith("_call")


def _call_id(item: Mapping[str, Any]) -> str | None:
    """Return the id that a tool call and its output have in common; None for other items."""
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
    """Yield the content parts of an assistant item that is not a tool call."""
    if item.get("role") == "assistant":
        yield from map(_to_chat_part, _as_list(item.get("content")))
    elif _item_type(item) == "image_generation_call":
        yield _to_image_part({"image_url": f"data:image/png;base64,{item.get('result') or ''}"})
    elif _item_type(item) != "reasoning":
        yield {"type": "text", "text": f"{_item_type(item)} {_payload_json(item)}"}


def _call_arguments(item: Mapping[str, Any]) -> str:
    if _item_type(item) == "function_call":
        return item.get("arguments") or "{}"
    return _payload_json(item)


def _payload_json(item: Mapping[str, Any]) -> str:
    return dump_json({key: said for key, said in item.items() if key not in _IDENTIFYING_KEYS})


def _item_to_message(item: Mapping[str, Any], calls: Mapping[str, str]) -> Message:
    if _item_type(item).endswith(_OUTPUT_SUFFIXES):
        # In older local_shell_call_output items, ``id`` is the id of the item with the call.
        own = item.get("call_id") or item.get("approval_request_id") or str(item.get("id"))
        output = item.get("output")
        content = _to_content(_payload_json(item) if output is None else output)
        return Message("tool", content, tool_call_id=calls.get(own, own))
    role = item.get("role")
    if role in ("user", "system", "developer"):
        return Message("user" if role == "user" else "system", _to_content(item.get("content")))
    return Message("user", dump_json(item))  # items of other kinds are counted as JSON


def _to_content(content: Any) -> str | tuple[ContentPart, ...]:
    return _join_parts([_to_chat_part(part) for part in _as_list(content)])


def _as_list(content: Any) -> list[Any]:
    if content is None:
        return []
    return list(content) if isinstance(content, (list, tuple)) else [content]


def _to_chat_part(part: Any) -> ContentPart:
    """Convert a content part to OpenAI's chat format; parts of unknown kinds become JSON text."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if _item_type(part) in ("input_image", "computer_screenshot"):
        return _to_image_part(part)
    said = part.get("text") if "text" in part else part.get("refusal")
    return {"type": "text", "text": said if isinstance(said, str) else dump_json(part)}


def _to_image_part(part: Mapping[str, Any]) -> ContentPart:
    """Convert an image to OpenAI's chat format.

    All other keys of the image are kept, so that it can be converted back to an item.
    """
    beside = {key: said for key, said in part.items() if key not in ("type", "image_url")}
    return {"type": "image_url", "image_url": {"url": part.get("image_url") or "", **beside}}


def _join_parts(parts: Sequence[ContentPart]) -> str | tuple[ContentPart, ...]:
    """Join content parts to one string if all are text; otherwise return them as a tuple."""
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
    """Return the original items with the text and tool calls of a changed assistant message."""
    calls = {call.id: call for call in message.tool_calls}
    same = message.content == _answer_message(original).content
    spoke = next((item for item in original if item.get("role") == "assistant"), None)
    said = _replace_answer_text(spoke or {}, message.text) if message.text and not same else None
    made: list[dict[str, Any]] = []
    led = False  # the API rejects reasoning without the next item
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
    said = call.parse_arguments()
    known = {key: value for key, value in item.items() if key not in _IDENTIFYING_KEYS}
    return item | said if isinstance(said, dict) and said.keys() == known.keys() else item


def _replace_output(item: dict[str, Any], message: Message) -> dict[str, Any]:
    """Return a tool result item with the content of ``message`` as its output.

    If the type of the item does not allow text as output, the item is returned unchanged.
    """
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
