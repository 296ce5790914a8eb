"""Send the hidden reasoning of a model back to the providers that need it, and to no other.

Some models continue a loop of tool calls only with the reasoning of their earlier replies: as blocks
with a signature, as signatures without text, or as plain text. litellm sends it if a message contains
it. A provider without a row in ``REASONING_RETURNS`` never receives reasoning, and no provider receives
that of another one, for instance after the user has changed the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from ctxlab.messages.types import Message
from ctxlab.tokens.reasoning import ReasoningRule, find_reasoning_rule

STATE_KEY = "reasoning_state"
"""Key of ``Message.extra`` with what a provider needs to continue its reasoning: the name of the
provider, and its blocks or signatures. The text of the reasoning is in ``Message.reasoning``."""

_UNPREFIXED = {"claude": "anthropic", "gemini": "vertex_ai"}
_SIGNATURE_SEPARATOR = (
    "__thought__"  # litellm appends the signature of a call of Gemini to the call's id
)


class ReasoningReturn(NamedTuple):
    """Rule that says in which form a provider gets the reasoning of its earlier replies back."""

    providers: frozenset[str]
    "names of the provider in litellm"
    models: str
    "regular expression for the names of its models"
    form: Literal["thinking_blocks", "signatures", "reasoning_content"]
    "key of litellm's messages that contains the reasoning"
    replies: Literal["all", "with_calls", "current_turn"]
    """replies whose reasoning is sent: all of them, those with tool calls, or those with tool calls
    since the last message of the user"""


REASONING_RETURNS: tuple[ReasoningReturn, ...] = (
    ReasoningReturn(
        frozenset({"anthropic", "bedrock", "bedrock_converse", "vertex_ai", "azure_ai"}),
        "claude",
        "thinking_blocks",
        "all",
    ),
    ReasoningReturn(
        frozenset({"gemini", "vertex_ai", "vertex_ai_beta"}), "gemini", "signatures", "all"
    ),
    ReasoningReturn(
        frozenset({"deepseek"}), r"v3[.-]?2", "reasoning_content", "current_turn"
    ),
    ReasoningReturn(
        frozenset({"deepseek"}), r"v[4-9]|flash|reasoner|chat", "reasoning_content", "with_calls"
    ),
    ReasoningReturn(
        frozenset({"moonshot"}), r"kimi-k(2-thinking|2\.[5-9]|[3-9])", "reasoning_content",
        "with_calls",
    ),
    ReasoningReturn(
        frozenset({"zai"}), r"glm-(4\.[5-9]|[5-9])", "reasoning_content", "current_turn"
    ),
)  # fmt: skip
"""Rules by provider and model; the first that fits holds. Sources, read in November 2026:

- Anthropic, "Extended thinking": blocks are sent back complete and unchanged, with their signatures. The
  provider itself ignores those that it no longer needs.
- Google, "Thought signatures": a signature is sent back in the part that contained it. Gemini 3 rejects
  a call of the current turn without its signature.
- DeepSeek, "Thinking mode": from V4 on, the reasoning of each reply with tool calls is required in all
  later requests. V3.2 requires it until the next message of the user. ``deepseek-chat`` and
  ``deepseek-reasoner`` are other names of the newest version.
- Moonshot, "Using thinking models": ``reasoning_content`` of replies with tool calls is kept in the
  messages; without it, the request is rejected.
- Z.ai, "Thinking mode": thinking between tool calls is returned together with the tool results. Thinking
  of earlier turns is kept only with a setting of the endpoint.

OpenAI's Chat Completions API accepts no reasoning. OpenRouter and MiniMax use ``reasoning_details``,
which litellm does not convert."""


def find_reasoning_return(model: str, provider: str | None = None) -> ReasoningReturn | None:
    """Return the rule that says which reasoning a request to a model contains.

    Parameters
    ----------
    model : str
        Name of the model, as litellm accepts it.
    provider : str, optional
        Name of the provider. By default, it is read from the name of the model.

    Returns
    -------
    ReasoningReturn or None
        The rule; None if no reasoning is sent.

    Examples
    --------
    >>> find_reasoning_return("claude-opus-4-8").form
    'thinking_blocks'
    >>> find_reasoning_return("deepseek/deepseek-v4-flash").replies
    'with_calls'
    >>> find_reasoning_return("gpt-5"), find_reasoning_return("openrouter/anthropic/claude-opus-4-8")
    (None, None)
    """
    whose = find_provider(model, provider)
    known = (rule for rule in REASONING_RETURNS if whose in rule.providers)
    return next((rule for rule in known if re.search(rule.models, model)), None)


def counted_reasoning(model: str) -> ReasoningRule:
    """Return which reasoning counts towards the size of a live request to a model.

    Parameters
    ----------
    model : str
        Name of the model.

    Returns
    -------
    {"keep", "current_turn", "clear"}
        Rule of the model as in ``find_reasoning_rule``; ``clear`` if no reasoning text is sent.

    Examples
    --------
    >>> [counted_reasoning(name) for name in ("claude-opus-4-8", "gemini/gemini-3-pro", "gpt-5")]
    ['keep', 'clear', 'clear']
    """
    rule = find_reasoning_return(model)
    if rule is None or rule.form == "signatures":
        return "clear"
    if rule.form == "thinking_blocks":
        return find_reasoning_rule(model)
    return "current_turn" if rule.replies == "current_turn" else "keep"


def reasoning_state(
    provider: str,
    blocks: Iterable[Any] | None,
    signatures: Iterable[str] | None,
    call_signatures: Sequence[str | None],
) -> dict[str, Any]:
    """Return what to store with a reply, so that its reasoning can be sent back.

    Parameters
    ----------
    provider : str
        Name of the provider.
    blocks : iterable, optional
        Thinking blocks of the reply.
    signatures : iterable of str, optional
        Signatures of the text of the reply.
    call_signatures : sequence of str or None
        Signature of each tool call, in the order of the calls.

    Returns
    -------
    dict
        Value of ``STATE_KEY``.

    Examples
    --------
    >>> reasoning_state("gemini", None, None, ["s1", None])
    {'provider': 'gemini', 'call_signatures': ['s1', None]}
    """
    state: dict[str, Any] = {"provider": provider}
    if blocks:
        state["thinking_blocks"] = [dict(block) for block in blocks]
    if signatures:
        state["signatures"] = list(signatures)
    if any(call_signatures):
        state["call_signatures"] = list(call_signatures)
    return state


def join_thinking_blocks(pieces: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join the pieces of thinking blocks that arrive in a stream. A signature ends a block.

    Text without a signature is left out, because providers reject it.

    Parameters
    ----------
    pieces : iterable of dict
        Pieces in the order of the stream.

    Returns
    -------
    list of dict
        Complete blocks.

    Examples
    --------
    >>> join_thinking_blocks([{"type": "thinking", "thinking": "I "}, {"thinking": "see"},
    ...     {"type": "thinking", "thinking": "", "signature": "s"}])
    [{'type': 'thinking', 'thinking': 'I see', 'signature': 's'}]
    """
    blocks: list[dict[str, Any]] = []
    text: list[str] = []
    for piece in pieces:
        if piece.get("type") == "redacted_thinking":
            blocks.append({"type": "redacted_thinking", "data": piece.get("data")})
            text = []
            continue
        text.append(piece.get("thinking") or "")
        if signature := piece.get("signature"):
            blocks.append({"type": "thinking", "thinking": "".join(text), "signature": signature})
            text = []
    return blocks


def split_call_id(id: str) -> tuple[str, str | None]:
    """Separate the id of a tool call from the signature that litellm appends to ids of Gemini.

    Parameters
    ----------
    id : str
        Id of the call as litellm returns it.

    Returns
    -------
    id : str
        Id without the signature.
    signature : str or None
        Signature; None if there is none.

    Examples
    --------
    >>> split_call_id("call_1__thought__abc"), split_call_id("call_2")
    (('call_1', 'abc'), ('call_2', None))
    """
    short, separator, signature = id.partition(_SIGNATURE_SEPARATOR)
    return (short, signature) if separator else (id, None)


def messages_with_reasoning(
    messages: Sequence[Message], model: str, provider: str | None = None
) -> list[dict[str, Any]]:
    """Convert messages to litellm's format, with the reasoning that the provider needs.

    Parameters
    ----------
    messages : sequence of Message
        Messages of the request, in order.
    model : str
        Name of the model that receives the request.
    provider : str, optional
        Name of the provider. By default, it is read from the name of the model.

    Returns
    -------
    list of dict
        Messages to send.

    Examples
    --------
    >>> thought = Message("assistant", "Yes.", reasoning="Easy.", extra={STATE_KEY: {
    ...     "provider": "anthropic", "thinking_blocks": [{"type": "thinking", "signature": "s"}]}})
    >>> messages_with_reasoning([thought], "claude-opus-4-8")[0]["thinking_blocks"]
    [{'type': 'thinking', 'signature': 's'}]
    >>> "thinking_blocks" in messages_with_reasoning([thought], "gpt-5")[0]
    False
    """
    rule = find_reasoning_return(model, provider)
    sent = [message.to_dict() for message in messages]
    if rule is None:
        return sent
    turn = max((i for i, m in enumerate(messages) if m.role == "user"), default=0)
    for position, (message, wire) in enumerate(zip(messages, sent, strict=True)):
        state = message.extra.get(STATE_KEY)
        if not isinstance(state, dict) or state.get("provider") not in rule.providers:
            continue
        if rule.replies != "all" and not message.tool_calls:
            continue
        if rule.replies == "current_turn" and position < turn:
            continue
        _add_reasoning(wire, message, rule, state)
    return sent


def _add_reasoning(
    wire: dict[str, Any], message: Message, rule: ReasoningReturn, state: dict[str, Any]
) -> None:
    if rule.form == "reasoning_content":
        if message.reasoning:
            wire["reasoning_content"] = message.reasoning
    elif rule.form == "thinking_blocks":
        if blocks := state.get("thinking_blocks"):
            wire["thinking_blocks"] = blocks
    else:
        if signatures := state.get("signatures"):
            wire["provider_specific_fields"] = {"thought_signatures": signatures}
        for call, signature in zip(
            wire.get("tool_calls", ()), state.get("call_signatures", ()), strict=False
        ):
            if signature:
                call["provider_specific_fields"] = {"thought_signature": signature}


def find_provider(model: str, provider: str | None = None) -> str:
    """Return the name of the provider that litellm calls for a model.

    Parameters
    ----------
    model : str
        Name of the model.
    provider : str, optional
        Name of the provider, if a client sets it.

    Returns
    -------
    str
        ``provider`` if it is given, else the prefix of the name, else the provider of a well-known name;
        empty if it is unknown.

    Examples
    --------
    >>> find_provider("deepseek/deepseek-chat"), find_provider("claude-opus-4-8"), find_provider("gpt-5")
    ('deepseek', 'anthropic', '')
    """
    if provider:
        return provider
    prefix, slash, _ = model.partition("/")
    if slash:
        return prefix
    # litellm assigns these names to a provider without a prefix.
    return next((whose for name, whose in _UNPREFIXED.items() if model.startswith(name)), "")
