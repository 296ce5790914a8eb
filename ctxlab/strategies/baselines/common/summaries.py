"""Write summaries as the products do: wrap them in a fixed text, or use them without checks."""

from __future__ import annotations

from collections.abc import Sequence

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.errors import ModelUnavailable
from ctxlab.llm.base import Request
from ctxlab.messages.types import Message, message_text
from ctxlab.strategies.summaries.fold import summarize
from ctxlab.strategies.summaries.llm import load_prompt
from ctxlab.strategies.summaries.transcript import format_transcript

MAX_WRAPPED_SUMMARY_TOKENS = 1500
"Default maximum tokens of a summary. The products have no limit except that of their model."
_MIN_SUMMARY_TOKENS = 40
_MAX_RESULT_CHARS = 500
_EMPTY_SUMMARY = "(nothing was said)"


def make_wrapped_summary(
    context: Context,
    start: int,
    stop: int,
    model: str | None = None,
    prefix: str = "",
    suffix: str = "",
    max_tokens: int = MAX_WRAPPED_SUMMARY_TOKENS,
    input_chars: int | None = None,
    strip: bool = False,
) -> Message:
    """Return the summary of entries ``[start, stop)``, wrapped in the text of a product.

    If the entries contain earlier summaries, the new summary includes their contents. A summary made
    without a model is limited to half of the tokens of the entries, or to 40 tokens if that is more.

    Parameters
    ----------
    context : Context
        Context of the entries; it is not edited.
    start, stop : int
        Range of entries to summarise.
    model : str, optional
        Name of the model that writes the summary. None: make an extractive summary.
    prefix, suffix : str, default ""
        Text before and after the summary.
    max_tokens : int
        Maximum tokens of the summary.
    input_chars : int, optional
        Number of characters to summarise, counted from the end of the entries. None: all.
    strip : bool, default False
        Remove white space around the summary.

    Returns
    -------
    Message
        Summary as a user message.
    """
    first = stop if input_chars is not None else start
    while input_chars is not None and input_chars > 0 and first > start:
        first -= 1
        input_chars -= _visible_chars(context.entries[first].message)
    entries = context.entries[first:stop]
    summaries = [e.message.text for e in entries if e.form is Form.SUMMARY]
    previous = "\n".join(text.removeprefix(prefix).removesuffix(suffix) for text in summaries)
    messages = [e.message for e in entries if e.form is not Form.SUMMARY]
    max_tokens = limit_tokens(sum(e.tokens for e in entries), model, max_tokens)
    said = write_unchecked_summary(context, previous, messages, max_tokens, model) or _EMPTY_SUMMARY
    return Message("user", prefix + (said.strip() if strip else said) + suffix)


def _visible_chars(message: Message) -> int:
    """Return the length of a message in the summariser's input, in which tool results are cut."""
    if message.role == "tool":
        return min(len(message.text), _MAX_RESULT_CHARS)
    return len(message_text(message))


def limit_tokens(source: int, model: str | None, most: int = MAX_WRAPPED_SUMMARY_TOKENS) -> int:
    """Return the maximum tokens of a summary; an extractive one is limited to half of ``source``.

    If half of ``source`` is less than 40 tokens, the limit of an extractive summary is 40 tokens.

    Parameters
    ----------
    source : int
        Tokens of the messages to summarise.
    model : str or None
        Name of the model that writes the summary. None: make an extractive summary.
    most : int
        Maximum tokens with or without a model.

    Returns
    -------
    int
        Maximum number of tokens.
    """
    return min(most, max(_MIN_SUMMARY_TOKENS, source // 2)) if model is None else most


def summarize_entries(
    context: Context,
    entries: Sequence[Entry],
    max_tokens: int,
    model: str | None,
    prefix: str = "",
    suffix: str = "",
) -> str:
    """Return a summary of entries, without checking it.

    If the first entry is an earlier summary, the new summary includes its contents.

    Parameters
    ----------
    context : Context
        Context of the entries; it is not edited.
    entries : sequence of Entry
        Entries to summarise; must not be empty.
    max_tokens : int
        Maximum tokens of the summary.
    model : str or None
        Name of the model that writes the summary. None: make an extractive summary.
    prefix, suffix : str, default ""
        Text around the earlier summary. It is removed from the summariser's input.

    Returns
    -------
    str
        Text of the new summary, without prefix and suffix.
    """
    previous, messages = "", [entry.message for entry in entries]
    if entries[0].form is Form.SUMMARY:
        previous = messages.pop(0).text.removeprefix(prefix).removesuffix(suffix)
    return write_unchecked_summary(context, previous, messages, max_tokens, model)


def write_unchecked_summary(
    context: Context, previous: str, messages: Sequence[Message], max_tokens: int, model: str | None
) -> str:
    """Return a summary that a model writes in one call, without checking the reply.

    If the model fails or the reply is empty, an extractive summary of at most ``max_tokens`` tokens is
    returned and the fallback is reported. The prompt states ``max_tokens`` as a number of words. A
    longer reply is used unchanged.

    Parameters
    ----------
    context : Context
        Context with the model client and the token counter.
    previous : str
        Summary of earlier messages; an empty string if there is none.
    messages : sequence of Message
        Messages to add to the summary.
    max_tokens : int
        Maximum tokens of the summary.
    model : str or None
        Name of the model that writes the summary. None: make an extractive summary.

    Returns
    -------
    str
        Summary that covers ``previous`` and ``messages``.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.llm import ScriptedClient
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> context = Context(Budget(99), History(TokenCounter("gpt-4o")))
    >>> context.history.client = ScriptedClient("A greeting, it was.", ModelUnavailable("busy"))
    >>> for _ in range(2):
    ...     write_unchecked_summary(context, "", [Message("user", "Hello")], 50, "gpt-4o")
    'A greeting, it was.'
    '- user: Hello'
    >>> context.events
    [(0, 'summary fallback: busy')]
    """
    if model is not None:
        rules = load_prompt("summary").replace("{words}", str(max_tokens * 3 // 4))
        earlier = [f"The summary so far: {previous}"] if previous else []
        told = "\n".join(earlier + format_transcript(messages))
        asked = Message("system", rules), Message("user", told)
        try:
            reply = context.ask(Request(model, asked))
        except ModelUnavailable as error:
            context.report(f"summary fallback: {error}")
        else:
            if reply.text.strip():
                return reply.text
            context.report("summary fallback: the reply is empty")
    return summarize(context, previous, messages, max_tokens)
