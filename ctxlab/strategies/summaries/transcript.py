"""Format messages as a transcript, which is the input of a model that writes a summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ctxlab.messages.types import Message

_MAX_ASSISTANT_CHARS, _MAX_CALL_CHARS, _MAX_RESULT_CHARS = 8000, 2000, 3000


def format_transcript(messages: Sequence[Message]) -> list[str]:
    """Format each message as a paragraph of a transcript.

    The middle of long assistant messages, tool calls and tool results is cut out. User messages are
    never cut.

    Parameters
    ----------
    messages : sequence of Message
        Messages to format.

    Returns
    -------
    list of str
        One paragraph for each message, in order.

    Examples
    --------
    >>> said = [Message("user", "Read it"), Message("assistant", "I will.")]
    >>> for paragraph in format_transcript(said):
    ...     print(paragraph)
    [user]
    Read it
    [assistant]
    I will.
    """
    names: dict[str, str] = {}
    paragraphs = []
    for message in messages:
        names.update((call.id, call.name) for call in message.tool_calls)
        tool = names.get(message.tool_call_id or "") or message.name or "a tool"
        head = f"result of {tool}" if message.role == "tool" else message.role
        paragraphs.append("\n".join((f"[{head}]", *_message_lines(message))))
    return paragraphs


def cut_middle(text: str, max_chars: int) -> str:
    r"""Replace the middle of a long string by a line that states the number of omitted characters.

    Two thirds of the kept characters are from the beginning, and one third is from the end.

    Parameters
    ----------
    text : str
        Text to shorten.
    max_chars : int
        Number of characters to keep, not including the inserted line.

    Returns
    -------
    str
        The shortened text; unchanged if it has at most ``max_chars`` characters.

    Examples
    --------
    >>> cut_middle("0123456789" * 9, 30)
    '01234567890123456789\n[… 60 characters left out]\n0123456789'
    """
    if len(text) <= max_chars:
        return text
    end = max_chars // 3
    begin = max_chars - end
    gone = f"\n[… {len(text) - max_chars} characters left out]\n"
    return text[:begin] + gone + text[len(text) - end :]


def _message_lines(message: Message) -> Iterator[str]:
    text = message.text
    if message.role == "tool":
        text = cut_middle(text, _MAX_RESULT_CHARS)
    elif message.role == "assistant":
        text = cut_middle(text, _MAX_ASSISTANT_CHARS)
    if text:
        yield text
    if isinstance(message.content, tuple):
        for part in message.content:
            if part.get("type") != "text":
                yield f"[{part.get('type') or 'a part that is no text'}]"
    for call in message.tool_calls:
        yield f"calls {call.name}({cut_middle(call.arguments, _MAX_CALL_CHARS)})"
