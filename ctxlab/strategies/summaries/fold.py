"""Every strategy that summarizes does it here: one message says what those that it replaces held."""

from __future__ import annotations

from collections.abc import Sequence

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.errors import ModelUnavailable
from ctxlab.messages.types import Message
from ctxlab.strategies.summaries.extractive import extract_summary
from ctxlab.strategies.summaries.llm import SummaryRejected, summarize_with_model
from ctxlab.strategies.summaries.structured import extract_structured_summary

__all__ = ["SUMMARY_HEADER", "fold_into_summary", "header_tokens", "summarize"]

SUMMARY_HEADER = "Summary of the conversation so far:\n"


def fold_into_summary(
    context: Context,
    start: int,
    stop: int,
    max_tokens: int,
    model: str | None = None,
    prompt: str = "summary",
    header: str = SUMMARY_HEADER,
) -> bool:
    """Entries ``[start, stop)`` become one summary of at most ``max_tokens``, if that is shorter.

    A summary that already stands at ``start`` is extended. Returns whether it was done; what was
    rejected is reported.
    """
    folded = context.entries[start:stop]
    previous = ""
    if folded[0].form is Form.SUMMARY:
        previous = folded[0].message.text.removeprefix(header)
        folded = folded[1:]
    messages = [entry.message for entry in folded]
    said = summarize(context, previous, messages, max_tokens, model, prompt, header)
    message = Message("user", header + said)
    before = sum(entry.tokens for entry in context.entries[start:stop])
    if context.history.counter.count_message(message) >= before:
        context.report("summary rejected: longer than what it stands for")
        return False
    context.fold(start, stop, message)
    context.report("summary")
    return True


def summarize(
    context: Context,
    previous: str,
    messages: Sequence[Message],
    max_tokens: int,
    model: str | None = None,
    prompt: str = "summary",
    header: str = "",
) -> str:
    """The summary so far, extended by what the messages say, in at most ``max_tokens`` tokens.

    ``header``: what will stand before it, counted with it and not among its tokens.

    Where the model fails or writes what is no summary, it is written without one and that is reported.
    """

    def fallback(messages: Sequence[Message], tokens: int, previous: str = "") -> str:
        return _summarize_without_model(context, previous, messages, tokens, prompt, header)

    if model is not None and max_tokens > 0:
        try:
            return summarize_with_model(
                context, previous, messages, max_tokens, model, prompt, fallback
            )
        except (ModelUnavailable, SummaryRejected) as error:
            context.report(f"summary fallback: {error}")
    return fallback(messages, max_tokens, previous)


def _summarize_without_model(
    context: Context,
    previous: str,
    messages: Sequence[Message],
    max_tokens: int,
    prompt: str,
    header: str,
) -> str:
    """Without a model: structured where that is what was asked for."""
    write = extract_structured_summary if prompt == "structured" else extract_summary
    counter = context.history.counter
    chars, empty = 4 * max_tokens, counter.count_text(header)

    def count(said: str) -> int:
        # With the header, as it will be sent, so that it is counted once.
        return counter.count_text(header + said) - empty

    if previous:  # what comes now has about as many characters a token as what was written then
        chars = max_tokens * len(previous) // max(count(previous), 1)
    while True:
        said = write(previous, messages, chars)
        used = count(said)
        if used <= max_tokens or chars == 0:
            return said
        chars = chars * max_tokens // used  # other scripts than Latin have fewer characters a token


def header_tokens(context: Context, header: str = SUMMARY_HEADER) -> int:
    """Tokens of a summary message before anything is said in it."""
    return context.history.counter.count_message(Message("user", header))
