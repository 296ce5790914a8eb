"""Send images of tool results to each provider in a form that it accepts.

Anthropic and Gemini accept images in the result of a tool. OpenAI's Chat Completions API accepts only
text there, and compatible servers follow it. For these, the images become a user message after the
results.

References
----------
- Anthropic, "Tool use": content of ``tool_result`` blocks (read in November 2026)
- Google, "Function calling": multimodal function responses (read in November 2026)
- OpenAI, "Chat Completions": content of tool messages (read in November 2026)
"""

from __future__ import annotations

import re
from typing import Any

from ctxlab.llm.reasoning import find_provider
from ctxlab.tokens.images import is_image_part

_ACCEPTING = (
    (frozenset({"anthropic", "bedrock", "bedrock_converse", "vertex_ai", "azure_ai"}), "claude"),
    (frozenset({"gemini", "vertex_ai", "vertex_ai_beta"}), r"gemini-([3-9]|\d\d)"),
)
"providers, and a regular expression for the names of their models that accept images in tool results"
_REFERENCE = "[The image follows in the next message]"


def accepts_tool_images(model: str, provider: str | None = None) -> bool:
    """Return True if tool results in requests to a model may contain images.

    Parameters
    ----------
    model : str
        Name of the model, as litellm accepts it.
    provider : str, optional
        Name of the provider. By default, it is read from the name of the model.

    Returns
    -------
    bool
        False if the provider does not accept them, or if it is unknown.

    Examples
    --------
    >>> [accepts_tool_images(name) for name in ("claude-opus-4-8", "gpt-5", "openrouter/x/claude-4")]
    [True, False, False]
    """
    whose = find_provider(model, provider)
    return any(whose in known and re.search(names, model) for known, names in _ACCEPTING)


def move_tool_images(
    messages: list[dict[str, Any]], model: str, provider: str | None = None
) -> list[dict[str, Any]]:
    """Move images of tool results to a user message, for providers that accept them only there.

    The user message follows the last result of the same reply, because no other message may stand
    between results.

    Parameters
    ----------
    messages : list of dict
        Messages of a request, in OpenAI's format.
    model : str
        Name of the model that receives the request.
    provider : str, optional
        Name of the provider. By default, it is read from the name of the model.

    Returns
    -------
    list of dict
        Messages to send. The given messages are not changed.

    Examples
    --------
    >>> image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aQ=="}}
    >>> result = {"role": "tool", "tool_call_id": "c1", "content": [image]}
    >>> [sent["role"] for sent in move_tool_images([result], "gpt-5")]
    ['tool', 'user']
    >>> move_tool_images([result], "claude-opus-4-8") == [result]
    True
    """
    if accepts_tool_images(model, provider):
        return messages
    sent: list[dict[str, Any]] = []
    moved: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] != "tool" and moved:
            sent.append({"role": "user", "content": moved})
            moved = []
        content = message["content"]
        if message["role"] == "tool" and isinstance(content, list):
            if images := [part for part in content if is_image_part(part)]:
                call = f"Image of the result of tool call {message.get('tool_call_id')}:"
                moved += [{"type": "text", "text": call}, *images]
            texts = [str(part.get("text") or "") for part in content if part.get("type") == "text"]
            text = "\n".join([*texts, *([_REFERENCE] if images else [])])
            message = {**message, "content": text}
        sent.append(message)
    return [*sent, {"role": "user", "content": moved}] if moved else sent
