"""What a strategy did beside its edits is on its account: what it reported, and whom it asked."""

from __future__ import annotations

from collections.abc import Sequence

from ctxlab.context.history import History
from ctxlab.errors import (
    ModelUnavailable,
    SpecError,
)
from ctxlab.llm.base import (
    Reply,
    Request,
    Spending,
)

__all__ = ["Account"]


class Account:
    """The part of a context that keeps the books; forks of a context share it."""

    def __init__(self, history: History) -> None:
        self.history = history
        "all that was appended; may reach further than this context does"
        self.turn = 0
        "how many requests have been sent"
        self.events: list[tuple[int, str]] = []
        "what strategies reported: ``(turn, what)``"
        self.spent: list[Spending] = []
        "a strategy's own model calls"

    def report(self, event: str) -> None:
        """Something happened that a reader of the results should know, such as a panic."""
        self.events.append((self.turn, event))

    def ask(self, request: Request) -> Reply:
        """Asks a model on the strategy's account; raises ``ModelError`` where there is no answer."""
        (reply,) = self.ask_all([request])
        if isinstance(reply, ModelUnavailable):
            raise reply
        return reply

    def ask_all(self, requests: Sequence[Request]) -> list[Reply | ModelUnavailable]:
        """Asks several at a time; what stayed unanswered stands as its error, in its place."""
        if self.history.client is None:
            models = ", ".join(sorted({request.model for request in requests}))
            raise SpecError(f"a strategy wants to ask {models}, and no client was given to ask it")
        replies = self.history.client.complete_all(requests)
        for request, reply in zip(requests, replies, strict=True):
            self.spend(request.model, reply)
        return replies

    def spend(self, model: str, reply: Reply | ModelUnavailable) -> None:
        """A call, answered or not, goes on the strategy's account."""
        self.spent.append(Spending.of(self.turn, model, reply))
