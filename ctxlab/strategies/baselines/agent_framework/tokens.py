"""Token estimates of Microsoft Agent Framework.

The estimate is the number of characters of a message as JSON, divided by four.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from ctxlab.context.history import Entry, Form
from ctxlab.messages.types import Message
from ctxlab.strategies.baselines.agent_framework.groups import MessageGroup
from ctxlab.strategies.baselines.common.parts import split_parts
from ctxlab.strategies.helpers.message_blocks import block_end

_IMAGE_LINK = {"type": "uri", "media_type": "image/png"}


class TokenEstimates:
    """Token estimates for a context, updated while messages are only appended.

    Parameters
    ----------
    version : int
        Version of the context for which the estimates hold.
    by_start : dict of int to tuple of Entry and int
        Known estimates, by the position of the first entry of a block.
    """

    def __init__(self, version: int, by_start: dict[int, tuple[Entry, int]]) -> None:
        self.version, self.by_start, self.total, self._next_index = version, by_start, 0, 0

    def extend(self, entries: Sequence[Entry]) -> None:
        """Add the entries appended since the last call.

        Parameters
        ----------
        entries : sequence of Entry
            All entries of the context.
        """
        while self._next_index < len(entries):
            self.total += self._estimate(entries, self._next_index)
            self._next_index = block_end(entries, self._next_index)

    def group_tokens(self, entries: Sequence[Entry], group: MessageGroup) -> int:
        """Return the tokens of one group.

        Parameters
        ----------
        entries : sequence of Entry
            All entries of the context.
        group : MessageGroup
            A group of these entries.

        Returns
        -------
        int
            Estimated number of tokens.
        """
        index, total = group.start, 0
        while index < group.stop:
            total += self._estimate(entries, index)
            index = block_end(entries, index)
        return total

    def _estimate(self, entries: Sequence[Entry], index: int) -> int:
        first = entries[index]
        entry, tokens = self.by_start.get(first.start, (None, 0))
        if entry is not first:
            tokens = estimate_tokens(_message_json(entries[index : block_end(entries, index)]))
            self.by_start[first.start] = first, tokens
        return tokens


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text at four characters per token.

    Parameters
    ----------
    text : str
        The text.

    Returns
    -------
    int
        Number of tokens, at least 1.
    """
    return max(1, len(text) // 4)


def _message_json(block: Sequence[Entry]) -> str:
    """Return a message of the package as the JSON that it measures; its id is the position."""
    first = block[0]
    message_id = f"msg_{first.start}"
    if first.form is Form.SUMMARY:
        message_id = f"tool_summary_group_{message_id}"
    contents = [content for entry in block for content in _iter_contents(entry.message)]
    whole = {"contents": contents, "message_id": message_id, "role": first.message.role}
    return json.dumps(whole, ensure_ascii=False, sort_keys=True)


def _iter_contents(message: Message) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        result = {"type": "function_result", "result": message.text}
        yield {**result, "call_id": message.tool_call_id or "", "additional_properties": {}}
        return
    for part in split_parts(message):
        if part.is_image:
            kind, _, data = part.value.removeprefix("data:").partition(";base64,")
            made = {"type": "data", "media_type": kind} if data else _IMAGE_LINK
            yield {**made, "uri": part.value, "additional_properties": {}}
        else:
            yield {"type": "text", "text": part.value, "additional_properties": {}}
    for call in message.tool_calls:
        made = {"type": "function_call", "name": call.name, "arguments": call.arguments}
        yield {**made, "call_id": call.id, "hosted": False, "additional_properties": {}}


def format_for_summary(number: int, block: Sequence[Entry]) -> str:
    """Format a message of the package as input for its summariser.

    Parameters
    ----------
    number : int
        Number of the message in the input.
    block : sequence of Entry
        Entries that form one message of the package.

    Returns
    -------
    str
        One line.
    """
    parts: list[str] = []
    for entry in block:
        message = entry.message
        suffix = f" [call_id={message.tool_call_id}]" if message.tool_call_id else ""
        if message.role == "tool":
            parts.append(f"function_result: {message.text}{suffix}")
            continue
        texts = [part.value for part in split_parts(message) if part.value and not part.is_image]
        parts += [" ".join(texts)] if texts else []
        for call in message.tool_calls:
            suffix = f" [call_id={call.id}]" if call.id else ""
            parts.append(f"function_call {call.name}({call.arguments}){suffix}")
    kinds = (str(content["type"]) for entry in block for content in _iter_contents(entry.message))
    return f"{number}. [{block[0].message.role}] {'; '.join(parts) or ', '.join(kinds)}"
