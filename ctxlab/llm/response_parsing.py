"""Convert litellm's responses to messages, billed tokens and cost."""

from __future__ import annotations

from typing import Any

from ctxlab.llm.base import Embedding, Reply
from ctxlab.llm.reasoning import STATE_KEY, reasoning_state, split_call_id
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Usage
from ctxlab.tokens.prices import Prices


def parse_reply(prices: Prices, response: Any, provider: str = "") -> Reply:
    """Parse litellm's response to a chat request.

    The cost is computed from ctxlab's own prices, so that it agrees with tables and reports.

    Parameters
    ----------
    prices : Prices
        Prices of the model.
    response : object
        Response of ``litellm.completion``.
    provider : str, default ""
        Name of the provider that replied, which is stored with the reasoning.

    Returns
    -------
    Reply
        Message with its tool calls, usage and cost.

    Raises
    ------
    ValueError
        If the list ``choices`` of the response is empty.
    """
    if not response.choices:
        raise ValueError("Expected a reply in the response, got an empty list of choices")
    choice = response.choices[0]
    said = choice.message
    calls = [
        {
            "id": call.id,
            "name": call.function.name,
            "arguments": call.function.arguments,
            "signature": call_signature(call),
        }
        for call in said.tool_calls or ()
    ]
    data = {
        "content": said.content,
        "tool_calls": calls,
        "reasoning": getattr(said, "reasoning_content", None),
        "thinking_blocks": getattr(said, "thinking_blocks", None),
        "signatures": text_signatures(said),
    }
    return build_reply(
        prices, data, choice.finish_reason, getattr(response, "usage", None), provider
    )


def text_signatures(said: Any) -> list[str]:
    """Return the signatures of the text of a reply of Gemini, or of a piece of it.

    Parameters
    ----------
    said : object
        litellm's message, or a delta of its stream.

    Returns
    -------
    list of str
        Signatures; empty if there are none.
    """
    fields = getattr(said, "provider_specific_fields", None)
    found = fields.get("thought_signatures") if isinstance(fields, dict) else None
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def call_signature(call: Any) -> str | None:
    """Return the signature of a tool call of Gemini.

    Parameters
    ----------
    call : object
        litellm's tool call, or a piece of it in a stream.

    Returns
    -------
    str or None
        Signature; None if the provider sent none.
    """
    for holder in (call, getattr(call, "function", None)):
        fields = getattr(holder, "provider_specific_fields", None)
        signature = fields.get("thought_signature") if isinstance(fields, dict) else None
        if isinstance(signature, str) and signature:
            return signature
    return None


def build_reply(
    prices: Prices, data: dict[str, Any], finish: str | None, usage: Any, provider: str = ""
) -> Reply:
    """Build a reply from the fields of a message, the finish reason and litellm's usage.

    Parameters
    ----------
    prices : Prices
        Prices of the model.
    data : dict
        Fields ``content``, ``tool_calls``, ``reasoning``, ``thinking_blocks`` and ``signatures`` of the
        message. A tool call may have a ``signature``. The dict is modified.
    finish : str or None
        Why the reply ended, as in ``Reply.finish``.
    usage : object
        litellm's usage object, or None if the provider reports no usage.
    provider : str, default ""
        Name of the provider that replied, which is stored with the reasoning.

    Returns
    -------
    Reply
        Message with its tool calls, usage and cost.
    """
    data |= {"role": "assistant", "reasoning": data["reasoning"] or None}
    signatures = list[str | None]()
    for call in data["tool_calls"]:
        call["id"], in_id = split_call_id(call["id"] or "")
        signatures.append(call.pop("signature", None) or in_id)
    blocks = data.pop("thinking_blocks", None)
    state = reasoning_state(provider, blocks, data.pop("signatures", None), signatures)
    if provider and (data["reasoning"] or len(state) > 1):
        data["extra"] = {STATE_KEY: state}
    billed = _parse_usage(usage)
    return Reply(message_from_dict(data), billed, prices.cost(billed), finish)


def parse_embedding(expected: int, token_price: float, response: Any) -> Embedding:
    """Parse litellm's response to an embedding request.

    Parameters
    ----------
    expected : int
        Number of strings that were sent.
    token_price : float
        Price of one input token in USD.
    response : object
        Response of ``litellm.embedding``.

    Returns
    -------
    Embedding
        Vectors in the order of the strings, with usage and cost.

    Raises
    ------
    ValueError
        If the number of vectors in the response is not ``expected``.
    """
    rows = sorted(response.data, key=lambda row: row["index"])
    vectors = [[float(x) for x in row["embedding"]] for row in rows]
    if len(vectors) != expected:
        raise ValueError(f"Expected {expected} embedding vectors, got {len(vectors)}")
    usage = Usage(_get_number(response.usage, "prompt_tokens"))
    return Embedding(vectors, usage, usage.input * token_price)


def _parse_usage(usage: Any) -> Usage:
    """Convert litellm's usage object to ``Usage``.

    litellm includes cached tokens in ``prompt_tokens``; ``Usage`` counts them separately.
    """
    prompt, output = _get_number(usage, "prompt_tokens"), _get_number(usage, "completion_tokens")
    details = getattr(usage, "prompt_tokens_details", None)
    read = _get_number(details, "cached_tokens") or _get_number(usage, "cache_read_input_tokens")
    write = _get_number(details, "cache_creation_tokens")
    write = write or _get_number(usage, "cache_creation_input_tokens")
    lifetimes = getattr(details, "cache_creation_token_details", None)
    hour = _get_number(lifetimes, "ephemeral_1h_input_tokens")
    thought = _get_number(getattr(usage, "completion_tokens_details", None), "reasoning_tokens")
    return Usage(max(prompt - read - write, 0), read, write, output, thought, hour)


def _get_number(figures: Any, name: str) -> int:
    value = getattr(figures, name, None)
    return int(value) if isinstance(value, (int, float)) else 0
