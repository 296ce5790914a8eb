"""No more dollars are spent than were allowed: a client asks through a purse."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any

from ctxlab.errors import (
    ModelRefused,
    ModelUnavailable,
)
from ctxlab.llm.base import (
    Client,
    Embedder,
    Embedding,
    Reply,
    Request,
)
from ctxlab.llm.batch_mixin import Each
from ctxlab.llm.cost_budget import (
    Purse,
    worst_case,
)

__all__ = ["CappedClient"]


class CappedClient(Each):
    """Asks another client as long as what it may cost stays within a bound.

    A call is begun only if its worst case fits beside what is spent and what is under way; where it
    would not fit even if nothing were under way, ``PurseEmpty`` (a ``ModelRefused``) is raised. What is
    under way by then ends, and is kept by a ``CachedClient`` above. A request without ``max_tokens``,
    or to a model without a known price, cannot be bounded and raises ``SpecError``.

    With ``LiteLLMClient`` every attempt is paid on its own; one that was cut counts at its worst case.
    Of any other client only what its replies say is known. The prices are ctxlab's: what they leave out
    (see ``Prices``), and a provider that writes more than ``max_tokens``, are beyond the bound.

    >>> from ctxlab.messages.types import Message
    >>> from ctxlab.llm import ScriptedClient
    >>> client = CappedClient(ScriptedClient("Hello."), 0.001)
    >>> client.complete(Request("gpt-4o", (Message("user", "Hi"),), max_tokens=10)).text
    'Hello.'
    """

    def __init__(self, client: Client, max_cost: float | Purse) -> None:
        self.client = client
        self.purse = max_cost if isinstance(max_cost, Purse) else Purse(max_cost)
        "what is spent and what is left"

    def __repr__(self) -> str:
        return f"CappedClient({self.client!r}, {self.purse.most})"

    @property
    def options(self) -> Any:
        """Of the client that is asked: another answer is wanted with others."""
        return getattr(self.client, "options", None)

    def shared(self, workers: int) -> CappedClient:
        """A client for each of several worker processes, with its part of what is left."""
        share = getattr(self.client, "shared", None)
        part = Purse(self.purse.left / workers)
        return CappedClient(share(workers) if share else self.client, part)

    def complete_each(
        self,
        requests: Sequence[Request],
        /,
        keep: Callable[[int, Reply | ModelUnavailable], object] | None = None,
    ) -> Generator[tuple[int, Reply | ModelUnavailable], None, None]:
        """The replies as they come, each given to ``keep`` before it is handed out."""
        each: Any = getattr(self.client, "complete_each", None)
        if each is not None:
            with closing(each(requests, keep, self.purse)) as replies:
                yield from replies
            return
        for place, request in enumerate(requests):
            reply = self._complete(request)
            if keep is not None:
                keep(place, reply)
            yield place, reply

    def stream(self, request: Request, /) -> Generator[str | Reply, None, None]:
        """Pieces of the reply as they come, then the reply; in one where the client does not stream."""
        streaming: Any = getattr(self.client, "stream", None)
        if streaming is None:
            reply = self.complete(request)
            if reply.text:
                yield reply.text
            yield reply
            return
        if hasattr(self.client, "complete_each"):
            with closing(streaming(request, self.purse)) as pieces:
                yield from pieces
            return
        with (
            self.purse.pay(request.model, worst_case(request)) as payment,
            closing(streaming(request)) as pieces,
        ):
            for piece in pieces:
                if isinstance(piece, Reply):
                    payment.usd = piece.usd
                yield piece

    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        """A vector for each text."""
        if not isinstance(self.client, Embedder):
            raise ModelRefused(f"{self.client!r} makes no embeddings: give a client that does")
        if hasattr(self.client, "complete_each"):
            return self.client.embed(model, texts, self.purse)  # type: ignore[call-arg]
        with self.purse.pay(model, 0.0) as payment:
            found = self.client.embed(model, texts)
            payment.usd = found.usd
        return found

    def _complete(self, request: Request) -> Reply | ModelUnavailable:
        most = worst_case(request)
        with self.purse.pay(request.model, most) as payment:
            try:
                reply = self.client.complete(request)
            except ModelUnavailable as error:
                payment.usd = most * error.attempts
                return error
            payment.usd = reply.usd + most * max(reply.attempts - 1, 0)
            return reply
