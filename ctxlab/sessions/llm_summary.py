"""Rolling summary of a session, written by a model with extraction as fallback."""

from __future__ import annotations

from collections.abc import Sequence

from ctxlab.context.context import Budget, Context
from ctxlab.context.history import History
from ctxlab.llm import FaultTolerantClient, LiteLLMClient
from ctxlab.llm.base import Client
from ctxlab.messages.types import Message
from ctxlab.sessions.resume_window import SummaryWriter
from ctxlab.strategies.summaries.fold import summarize
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.models import find_model

_CHARS_PER_TOKEN = 4  # typical of English prose


def llm_summary_writer(client: Client | None, model: str) -> SummaryWriter:
    """Return a function that extends a summary by asking a model.

    The function waits for the model. If the model call fails, it extracts the summary from the
    messages instead and raises nothing.

    Parameters
    ----------
    client : Client or None
        Client that sends the requests; None means a ``LiteLLMClient``.
    model : str
        Model that writes the summary.

    Returns
    -------
    SummaryWriter
        Function for ``ResumeWindow``.
    """
    lenient = FaultTolerantClient(client or LiteLLMClient())

    def write(previous: str, messages: Sequence[Message], limit: int) -> str:
        history = History(TokenCounter(model))
        history.client = lenient
        context = Context(Budget(find_model(model).limit), history)
        return summarize(context, previous, messages, limit // _CHARS_PER_TOKEN, model)

    return write
