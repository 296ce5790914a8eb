"""Split UI messages of the Vercel AI SDK into the messages that were sent to the model.

A UI message has ``parts``. An assistant message may consist of several steps. Each step starts with
a ``step-start`` part or, in version 4, with a tool invocation that has a new ``step`` number. Each
step becomes an assistant message with its calls, followed by the tool results. A tool part contains
both a call and its result. Its type is ``tool-NAME``, ``dynamic-tool`` or, in version 4,
``tool-invocation``. Version 4 repeats the text and calls of a message under ``content`` and
``toolInvocations``, which are read only if there are no parts.

A call whose input is incomplete, because it was still streaming, is skipped and counted. If the user
denied a call, the reason of the user becomes the result of the call, as in the SDK.

References
----------
github.com/vercel/ai ``packages/ai/src/ui/ui-messages.ts`` at 0103ba5 and
``convert-to-model-messages.ts`` at 004d06c (versions 5 and 6); version 4.3 ``@ai-sdk/ui-utils``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxlab.formats.base import SkipCallback
from ctxlab.formats.fields import get_count, get_in, get_list, get_text, get_time

_DONE_STATES = ("output-available", "output-error", "output-denied", "result")
_UNFINISHED_STATES = ("input-streaming", "partial-call")
_UI_PART_TYPES = ("step-start", "dynamic-tool", "tool-invocation")


def is_ui_message(row: Any) -> bool:
    """Check whether a row is a UI message of the assistant with steps or tool calls.

    Parameters
    ----------
    row : Any
        A logged message.

    Returns
    -------
    bool
        True if the row has steps or tool parts of the Vercel AI SDK.

    Examples
    --------
    >>> is_ui_message({"role": "assistant", "parts": [{"type": "step-start"}]})
    True
    >>> is_ui_message({"role": "assistant", "parts": [{"type": "tool_call", "name": "ls"}]})
    False
    """
    if get_in(row, "role") != "assistant":
        return False
    parts = row.get("parts")
    if isinstance(parts, list):
        return any(get_in(p, "type") in _UI_PART_TYPES or is_ui_tool_part(p) for p in parts)
    return bool(get_list(row, "toolInvocations")) and "tool_calls" not in row


def is_ui_tool_part(part: Any) -> bool:
    """Check whether a part is a tool call with a type such as ``tool-NAME``.

    Parameters
    ----------
    part : Any
        A part of a UI message.

    Returns
    -------
    bool
        True if the type starts with ``tool-`` and the part has a ``state``.

    Examples
    --------
    >>> is_ui_tool_part({"type": "tool-ls", "toolCallId": "c", "state": "output-available"})
    True
    """
    kind = get_in(part, "type")
    return isinstance(kind, str) and kind.startswith("tool-") and isinstance(part.get("state"), str)


def split_ui_message(row: dict[str, Any], skip: SkipCallback) -> Iterator[dict[str, Any]]:
    """Split a UI message of the assistant into messages, as the SDK sends them to a model.

    Parameters
    ----------
    row : dict
        A UI message for which ``is_ui_message`` returns True.
    skip : Callable
        Called with a description of each call whose input is incomplete.

    Yields
    ------
    dict
        An assistant or tool message, in the SDK's format for model messages.
    """
    said: list[Any] = []
    results: list[dict[str, Any]] = []
    step = 0
    for part in _ui_parts(row):
        kind, invocation = get_in(part, "type"), get_in(part, "toolInvocation")
        now = get_count(invocation, "step") or step
        if kind == "step-start" or now != step:
            yield from _to_rows(row, said, results)
            said, results, step = [], [], now
        if kind != "tool-invocation" and kind != "dynamic-tool" and not is_ui_tool_part(part):
            said += [part] if kind != "step-start" else []
            continue
        body = invocation if isinstance(invocation, dict) else part
        state, output = body.get("state"), _tool_output(body)
        if state in _UNFINISHED_STATES:
            skip("tool call that was cut off")
            continue
        name = get_text(body, "toolName") or str(kind).removeprefix("tool-")
        held = [body[key] for key in ("input", "args", "rawInput") if body.get(key) is not None]
        its = {"toolCallId": body.get("toolCallId"), "toolName": name}
        said.append({"type": "tool-call", **its, "input": held[0] if held else {}})
        if state in _DONE_STATES:
            results.append({"type": "tool-result", **its, "output": output})
    yield from _to_rows(row, said, results)


def _ui_parts(row: dict[str, Any]) -> list[Any]:
    parts = row.get("parts")
    if isinstance(parts, list):
        return parts
    said = get_text(row, "content")
    calls = get_list(row, "toolInvocations")
    invoked = [{"type": "tool-invocation", "toolInvocation": each} for each in calls]
    return [*invoked, *([{"type": "text", "text": said}] if said else [])]


def _to_rows(row: dict[str, Any], said: list[Any], results: list[Any]) -> Iterator[dict[str, Any]]:
    if said:
        time = {"createdAt": row["createdAt"]} if get_time(row, "createdAt") else {}
        yield {"role": "assistant", "content": said} | time
    if results:
        yield {"role": "tool", "content": results}


def _tool_output(body: dict[str, Any]) -> dict[str, Any]:
    """Convert the output of a tool part to the SDK's format for tool results in model messages."""
    if body.get("state") == "output-error":
        return {"type": "error-text", "value": get_text(body, "errorText") or ""}
    if body.get("state") == "output-denied":
        return {"type": "execution-denied", "reason": get_in(body, "approval", "reason")}
    value = body.get("output", body.get("result"))
    return {"type": "text" if isinstance(value, str) else "json", "value": value}
