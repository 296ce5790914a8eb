"""Replace a range of messages in a context by a summary, with or without a model."""

from __future__ import annotations

from collections.abc import Sequence

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.errors import ModelUnavailable
from ctxlab.messages.types import Message
from ctxlab.strategies.summaries.extractive import extract_summary
from ctxlab.strategies.summaries.llm import SummaryRejected, SummaryWriter
from ctxlab.strategies.summaries.structured import extract_structured_summary

SUMMARY_HEADER = "Summary of the conversation so far:\n"
"First line of every message that contains a summary."


def fold_into_summary(
    context: Context,
    start: int,
    stop: int,
    max_tokens: int,
    model: str | None = None,
    prompt: str = "summary",
) -> bool:
    """Replace entries ``[start, stop)`` of a context by one summary, if the summary is shorter.

    If the first of these entries is a summary, the new summary extends it. If the new summary is not
    shorter than the messages that it replaces, it is rejected and the rejection is reported as an
    event.

    Parameters
    ----------
    context : Context
        The context to edit.
    start, stop : int
        Range of entries to replace.
    max_tokens : int
        Maximum tokens of the summary, without its header.
    model : str, optional
        Model that writes the summary. None: the summary is extracted without a model.
    prompt : str, default "summary"
        Name of a built-in prompt or path of a file, as accepted by ``load_prompt``.

    Returns
    -------
    bool
        True if the entries were replaced, False if the summary was rejected.
    """
    folded = context.entries[start:stop]
    messages, before = [entry.message for entry in folded], sum(entry.tokens for entry in folded)
    extends = folded[0].form is Form.SUMMARY
    previous = messages.pop(0).text.removeprefix(SUMMARY_HEADER) if extends else ""
    said = summarize(context, previous, messages, max_tokens, model, prompt, SUMMARY_HEADER)
    message = Message("user", SUMMARY_HEADER + said)
    tokens = context.history.counter.count_message(message, by_line=True)
    if tokens >= before:
        context.report("summary rejected: not shorter than the messages it replaces")
        return False
    context.fold(start, stop, message, tokens=tokens)
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
    """Extend a summary by new messages, with or without a model.

    If the model fails or its reply is not a usable summary, the summary is extracted without a
    model, and the failure is reported as an event.

    Parameters
    ----------
    context : Context
        Context with the model client and the token counter. Its messages are not changed.
    previous : str
        Summary to extend; empty to start a new summary.
    messages : sequence of Message
        Messages to add to the summary.
    max_tokens : int
        Maximum tokens of the summary.
    model : str, optional
        Model that writes the summary. None: the summary is extracted without a model.
    prompt : str, default "summary"
        Name of a built-in prompt or path of a file, as accepted by ``load_prompt``.
    header : str, default ""
        Text that the caller will put before the summary. Its tokens are not counted.

    Returns
    -------
    str
        The extended summary, without the header.
    """
    write = extract_structured_summary if prompt == "structured" else extract_summary
    counter = context.history.counter
    empty = counter.count_text(header)

    def count(said: str) -> int:
        # A summary extends another, and those of several budgets have most lines in common.
        return counter.count_text(header + said, by_line=True) - empty

    def extract(messages: Sequence[Message], tokens: int, previous: str = "") -> str:
        # Estimate the characters per token from the previous summary.
        chars = tokens * len(previous) // max(count(previous), 1) if previous else 4 * tokens
        while True:
            said = write(previous, messages, chars)
            used = count(said)
            if used <= tokens or chars == 0:
                return said
            chars = chars * tokens // used  # non-Latin scripts have fewer characters per token

    if model is not None and max_tokens > 0:
        try:
            writer = SummaryWriter(context, model, prompt, max_tokens)
            return writer.summarize(previous, messages, extract)
        except (ModelUnavailable, SummaryRejected) as error:
            context.report(f"summary fallback: {error}")
    return extract(messages, max_tokens, previous)
