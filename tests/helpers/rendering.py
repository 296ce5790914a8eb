"""Render a request as one string, as the model gets it, to check token counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.messages.types import Message
from ctxlab.tokens.tool_schemas import render_tools

CONTROL_TOKENS = ("\ufdd0start\ufdd1", "\ufdd0sep\ufdd1", "\ufdd0end\ufdd1")
"""Replacements for ``<|im_start|>``, ``<|im_sep|>`` and ``<|im_end|>`` that do not occur in texts."""


def render_request(
    messages: Iterable[Message], tools: Sequence[Mapping[str, Any]] = (), family: str = "openai"
) -> str:
    """Return a string with as many tokens, encoded in one pass, as the request without its images."""
    start, sep, end = CONTROL_TOKENS
    text = render_tools([dict(t) for t in tools], family) if tools else ""
    head = f"{start}{sep}{text}{end}" if text else ""
    return f"{head}{''.join(map(render_message, messages))}{start}assistant{sep}"


def render_message(message: Message) -> str:
    """Render the content of a message as a block, and each tool call as another block."""
    start, sep, end = CONTROL_TOKENS
    blocks = []
    if message.content or not message.tool_calls:
        header = message.role if message.name is None else f"{message.role}:{message.name}"
        blocks.append(f"{start}{header}{sep}{_content_text(message)}{end}")
    for call in message.tool_calls:
        blocks += [f"{start}assistant to=functions.{call.name}{sep}{call.arguments}{end}"]
    return "".join(blocks)


def _content_text(message: Message) -> str:
    """Return content parts as lines: images are empty, parts of unknown type are JSON."""
    content = message.content or ""
    parts = [{"text": content}] if isinstance(content, str) else content
    return "\n".join(map(_part_text, parts))


def _part_text(part: Mapping[str, Any]) -> str:
    if isinstance(part.get("text"), str):
        return str(part["text"])
    return "" if part.get("type") in ("image_url", "input_image", "image") else dump_json(part)
