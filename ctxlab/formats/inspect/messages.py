"""Convert the messages of an Inspect log, and insert their attachments.

Reasoning parts become the hidden reasoning of a message. If the provider ran a tool itself (part
``tool_use``), the name, arguments and result become text of the answer. If a tool call failed, the
tool result is the error message, because Inspect sends it to the model instead of the content.
"""

from __future__ import annotations

import re
from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats import fields
from ctxlab.formats.base import SkipCallback, ignore_skip
from ctxlab.formats.common.chat_format import Content, join_parts, make_call, text_part
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import ContentPart, Message

_REFERENCE = re.compile(r'"(?:attachment|tc)://([^"\\]+)"')


class Attachments:
    """Long texts and images of a sample, to which messages refer by ``attachment://<hash>``.

    Parameters
    ----------
    attachments : Any
        Dict of the sample: hash → attachment. A value of another type means no attachments.
    skip : Callable, optional
        Called with a description of each missing attachment.
    """

    def __init__(self, attachments: Any, skip: SkipCallback = ignore_skip) -> None:
        self._attachments = fields.get_object(attachments)
        self._skip = skip

    def resolve(self, value: Any) -> str:
        """Return the attachment to which a string refers, or the string itself.

        Parameters
        ----------
        value : Any
            A reference such as ``attachment://<hash>``, or any other string.

        Returns
        -------
        str
            The attachment. ``value`` itself if it is not a reference or if the attachment is missing.

        Raises
        ------
        ValueError
            If ``value`` is not a string.
        """
        said = fields.require_text(value, "content")
        if not said.startswith(("attachment://", "tc://")):  # tc:// until Inspect 0.3.47
            return said
        return self._look_up(said.partition("://")[2]) or said

    def resolve_arguments(self, call: dict[str, Any]) -> str:
        """Return the arguments of a tool call, with references replaced by attachments.

        Parameters
        ----------
        call : dict
            The logged tool call. Its arguments are a JSON value or JSON text.

        Returns
        -------
        str
            The arguments as JSON text.
        """
        value = call.get("arguments")
        written = value if isinstance(value, str) else dump_json({} if value is None else value)
        return _REFERENCE.sub(self._replace_reference, written) if "://" in written else written

    def _replace_reference(self, reference: re.Match[str]) -> str:
        found = self._look_up(reference[1])
        return reference[0] if found is None else dump_json(found)

    def _look_up(self, key: str) -> str | None:
        found = self._attachments.get(key)
        if isinstance(found, str):
            return found
        self._skip("attachment missing from the log")
        return None


def parse_message(row: Any, attachments: Attachments, skip: SkipCallback) -> Message:
    """Convert a message of an Inspect log.

    Parameters
    ----------
    row : Any
        JSON value of the logged message.
    attachments : Attachments
        The attachments of the sample.
    skip : Callable
        Called with a description of each skipped content part.

    Returns
    -------
    Message
        The converted message, with attachments inserted.

    Raises
    ------
    ValueError
        If the message is malformed.
    """
    row = fields.require_object(row, "a message")
    content, reasoning = _parse_content(row.get("content"), attachments, skip)
    wire: dict[str, Any] = {"role": row.get("role"), "content": content, "extra": _build_extra(row)}
    wire["reasoning"] = "\n".join(filter(None, [fields.get_text(row, "reasoning"), *reasoning]))
    wire["tool_calls"] = [
        make_call(each.get("id"), each.get("function"), attachments.resolve_arguments(each))
        for each in fields.require_objects(row.get("tool_calls") or [], "tool_calls")
    ]
    if row.get("role") == "tool":
        wire["tool_call_id"], wire["name"] = row.get("tool_call_id"), row.get("function")
        if said := _error_text(row):
            wire["content"] = said
            if content and content != said:
                skip("content of a failed tool call, not sent to the model")
    return message_from_dict(wire)


def parse_tool(tool: Any, attachments: Attachments) -> dict[str, Any]:
    """Convert a tool definition of an Inspect log to OpenAI's format.

    Parameters
    ----------
    tool : Any
        JSON value of the logged definition.
    attachments : Attachments
        The attachments of the sample.

    Returns
    -------
    dict
        The definition in OpenAI's format.

    Raises
    ------
    ValueError
        If the tool has no name.
    """
    name = fields.get_text(tool, "name")
    if name is None:
        raise ValueError(f"expected a tool definition with a name, got {tool!r:.80}")
    function = {"name": name, "description": attachments.resolve(tool.get("description") or "")}
    if isinstance(tool.get("parameters"), dict):
        function["parameters"] = tool["parameters"]
    return {"type": "function", "function": function}


def _parse_content(
    value: Any, attachments: Attachments, skip: SkipCallback
) -> tuple[Content | None, list[str]]:
    """Return the content of a message without its reasoning parts, and the texts of these parts."""
    if not isinstance(value, list):
        return attachments.resolve("" if value is None else value), []
    parts: list[ContentPart] = []
    thoughts: list[str] = []
    for part in value:
        kind = fields.get_in(part, "type")
        if kind == "text":
            parts.append(text_part(attachments.resolve(part.get("text"))))
        elif kind == "reasoning":
            # Redacted reasoning is encrypted.
            key = "summary" if part.get("redacted") is True else "reasoning"
            thoughts.append(attachments.resolve(part.get(key) or part.get("summary") or ""))
        elif kind == "image":
            image = {"url": attachments.resolve(part.get("image"))}
            if part.get("detail") in ("low", "high"):
                image["detail"] = part["detail"]
            parts.append({"type": "image_url", "image_url": image})
        elif kind == "tool_use":
            parts.append(text_part(_tool_use_text(part, attachments)))
        else:
            skip(f"part of type {kind}")
    return join_parts(parts), thoughts


def _tool_use_text(part: dict[str, Any], attachments: Attachments) -> str:
    said = (part.get(key) for key in ("name", "arguments", "result", "error"))
    return "\n".join(attachments.resolve(each) for each in said if isinstance(each, str) and each)


def _error_text(row: dict[str, Any]) -> str | None:
    """Return the error message that the model received for a failed tool call."""
    return fields.get_text(row, "error", "message") or fields.get_text(row, "tool_error")


def _build_extra(row: dict[str, Any]) -> dict[str, Any]:
    extra = {key: row[key] for key in ("source", "metadata") if row.get(key)}
    if _error_text(row):
        extra["error"] = fields.get_text(row, "error", "type") or "unknown"
    return extra
