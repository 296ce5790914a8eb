"""Items of OpenAI's Responses API as messages, and back: reasoning, text and calls of an answer are one.

Whatever has a ``call_id`` is a call of the answer, and the item that gives it back is its result,
whatever tool it is of. What the provider ran itself, such as a web search, says it all in one item and
belongs to the answer, as does the reasoning that led to it. Source: OpenAI's reference of the
Responses API, "Input item list".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ctxlab._utils.jsonio import (
    dump_json,
    parse_json,
)
from ctxlab.messages.types import (
    Message,
    Part,
    ToolCall,
)

__all__ = ["Items", "items_of", "messages_of"]

Items: TypeAlias = tuple[dict[str, Any], ...]
"""The items that are one message here."""

_OUTPUTS = ("_output", "mcp_approval_response")
_PARTS_OF_ANSWERS = frozenset({"reasoning", "program", "mcp_list_tools", "mcp_approval_request"})
# Of a call or a result: what says which one it is, not what it says.
_NAMES = frozenset({"type", "id", "call_id", "status", "name", "namespace", "caller"})


def messages_of(items: Sequence[Any]) -> Iterator[tuple[Message, Items]]:
    """Messages with the items that make them, in order.

    >>> call = {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}
    >>> output = {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a.py"}]}
    >>> said = [{"role": "user", "content": "Go"}, {"type": "reasoning", "id": "r"}, call, output]
    >>> [(message.role, len(own)) for message, own in messages_of(said)]
    [('user', 1), ('assistant', 2), ('tool', 1)]
    """
    answer: list[dict[str, Any]] = []
    calls: dict[str, str] = {}
    for item in items:
        if _of_answer(item):
            # Text after a call is the next answer: the call was the last thing that this one said.
            if item.get("role") == "assistant" and any(map(_call_id, answer)):
                yield _answer(answer), tuple(answer)
                answer = []
            answer.append(item)
            if call := _call_id(item):
                calls[str(item.get("id"))] = call
            continue
        if answer:
            yield _answer(answer), tuple(answer)
            answer = []
        yield _single(item, calls), (item,)
    if answer:
        yield _answer(answer), tuple(answer)


def items_of(message: Message, original: Items | None) -> Items:
    """The items of a message that a strategy made, or the original ones with what it changed of them."""
    if message.role == "assistant":
        return _answered(message, original) if original else _new_answer(message)
    item = dict(original[0]) if original else {}
    if message.role == "tool":
        if not original:
            item = {"type": "function_call_output", "call_id": message.tool_call_id}
        return (_with_output(item, message),)
    if original and item.get("role") is None:
        return original  # of a kind that only its maker can write
    return ({"role": message.role, **item, "content": _content(message.content)},)


# --- from items -----------------------------------------------------------------------------------


def _kind(item: Mapping[str, Any]) -> str:
    return str(item.get("type") or "")


def _of_answer(item: Mapping[str, Any]) -> bool:
    kind = _kind(item)
    return item.get("role") == "assistant" or kind in _PARTS_OF_ANSWERS or kind.endswith("_call")


def _call_id(item: Mapping[str, Any]) -> str | None:
    """The id under which another item will answer this one; None where none will."""
    if _kind(item) == "mcp_approval_request":
        return item.get("id")
    return item.get("call_id")


def _answer(items: Sequence[Mapping[str, Any]]) -> Message:
    calls = tuple(
        ToolCall(call, str(item.get("name") or _kind(item)), _arguments(item))
        for item in items
        if (call := _call_id(item))
    )
    parts = [part for item in items if not _call_id(item) for part in _said(item)]
    return Message("assistant", _joined(parts) or (None if calls else ""), calls)


def _said(item: Mapping[str, Any]) -> Iterator[Part]:
    """What an item of an answer says that is no call."""
    if item.get("role") == "assistant":
        yield from map(_part, _listed(item.get("content")))
    elif _kind(item) == "image_generation_call":
        yield _image({"image_url": f"data:image/png;base64,{item.get('result') or ''}"})
    elif _kind(item) != "reasoning":
        yield {"type": "text", "text": f"{_kind(item)} {_rest(item)}"}


def _arguments(item: Mapping[str, Any]) -> str:
    return item.get("arguments") or "{}" if _kind(item) == "function_call" else _rest(item)


def _rest(item: Mapping[str, Any]) -> str:
    return dump_json({key: said for key, said in item.items() if key not in _NAMES})


def _single(item: Mapping[str, Any], calls: Mapping[str, str]) -> Message:
    if _kind(item).endswith(_OUTPUTS):
        # An older form of local_shell_call_output gives the id of the call's item.
        own = item.get("call_id") or item.get("approval_request_id") or str(item.get("id"))
        return Message("tool", _joined(_output(item)), tool_call_id=calls.get(own, own))
    role = item.get("role")
    if role in ("user", "system", "developer"):
        parts = [_part(part) for part in _listed(item.get("content"))]
        return Message("user" if role == "user" else "system", _joined(parts))
    return Message("user", dump_json(item))  # an item of another kind: counted as what it is


def _output(item: Mapping[str, Any]) -> list[Part]:
    output = item.get("output")
    if output is None:
        return [{"type": "text", "text": _rest(item)}]
    return [_part(part) for part in _listed(output)]


def _listed(content: Any) -> list[Any]:
    if content is None:
        return []
    return list(content) if isinstance(content, (list, tuple)) else [content]


def _part(part: Any) -> Part:
    """Text and pictures in OpenAI's chat shape; anything else as its JSON."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if _kind(part) in ("input_image", "computer_screenshot"):
        return _image(part)
    said = part.get("text") if "text" in part else part.get("refusal")
    return {"type": "text", "text": said if isinstance(said, str) else dump_json(part)}


def _image(part: Mapping[str, Any]) -> Part:
    """The keys of the item's own part go along, so that it can be written again."""
    beside = {key: said for key, said in part.items() if key not in ("type", "image_url")}
    return {"type": "image_url", "image_url": {"url": part.get("image_url") or "", **beside}}


def _joined(parts: Sequence[Part]) -> str | tuple[Part, ...]:
    """Text alone is one text."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return tuple(parts)


# --- to items -------------------------------------------------------------------------------------


def _new_answer(message: Message) -> Items:
    said: Items = ({"role": "assistant", "content": message.text},) if message.text else ()
    calls = (
        {"type": "function_call", "call_id": c.id, "name": c.name, "arguments": c.arguments}
        for c in message.tool_calls
    )
    return (*said, *calls)


def _answered(message: Message, original: Items) -> Items:
    """New text stands in the place of all that the answer said; calls that are left stay in theirs."""
    calls = {call.id: call for call in message.tool_calls}
    same = message.content == _answer(original).content
    spoke = next((item for item in original if item.get("role") == "assistant"), None)
    said = _with_answer(spoke or {}, message.text) if message.text and not same else None
    made: list[dict[str, Any]] = []
    led = False  # whether what reasoning led to is there: it is refused without
    for item in reversed(original):
        stays = item if same else said if item is spoke else None
        if call := _call_id(item):
            stays = _with_arguments(item, calls[call]) if call in calls else None
        elif _kind(item) == "reasoning":
            stays = item if led else None
        led = stays is not None
        if stays is not None:
            made.append(stays)
    if said is not None and spoke is None:
        made.append(said)
    made.reverse()
    return tuple(made)


def _with_answer(item: dict[str, Any], text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    listed = isinstance(item.get("content"), list)
    return {"role": "assistant", **item, "content": [part] if listed else text}


def _with_arguments(item: dict[str, Any], call: ToolCall) -> dict[str, Any]:
    if call.arguments == _arguments(item):
        return item
    if _kind(item) == "function_call":
        return item | {"arguments": call.arguments}
    try:
        said = parse_json(call.arguments)
    except ValueError:
        return item
    known = {key: value for key, value in item.items() if key not in _NAMES}
    return item | said if isinstance(said, dict) and said.keys() == known.keys() else item


def _with_output(item: dict[str, Any], message: Message) -> dict[str, Any]:
    """The result with another output, where its kind can hold text."""
    kind, output = _kind(item), item.get("output")
    if kind == "shell_call_output":
        outcome = {"type": "exit", "exit_code": 0}
        first = output[0] if isinstance(output, list) and output else {}
        said = {"stdout": message.text, "stderr": "", "outcome": first.get("outcome", outcome)}
        return item | {"output": [said]}
    if kind in ("function_call_output", "custom_tool_call_output"):
        return item | {"output": _content(message.content)}
    if isinstance(output, str):
        return item | {"output": message.text}
    return item


def _content(content: Any) -> Any:
    if not isinstance(content, tuple):
        return content or ""
    return [_their_part(part) for part in content]


def _their_part(part: Part) -> dict[str, Any]:
    if part.get("type") != "image_url":
        return {"type": "input_text", "text": str(part.get("text") or "")}
    image = dict(part["image_url"])
    url = image.pop("url", "")
    return {"type": "input_image", **({"image_url": url} if url else {}), **image}
