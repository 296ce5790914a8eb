"""A client wrapper for live agents that turns rejected requests into unavailable replies."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from typing_extensions import override

from ctxlab.errors import ModelRequestRejected, ModelUnavailable
from ctxlab.llm.base import Client, Embedder, Embedding, Reply, ReplyOrError, Request, as_embedder

_log = logging.getLogger("ctxlab.llm")


class FaultTolerantClient(Client, Embedder):
    """Client that calls another client and never raises ``ModelRequestRejected``.

    In an evaluation, a wrong key must stop the experiment: a strategy that continues without its
    model would produce the numbers of another strategy. A live conversation must go on. So the
    first rejection is logged as an error by the logger ``ctxlab.llm``, and the strategy works
    without a model. The model is called again the next time, because the key may work by then.
    A rejection concerns the key or the settings, so it stands for all requests of a batch.

    Parameters
    ----------
    client : Client
        The client to call.

    Examples
    --------
    >>> from ctxlab.llm import ScriptedClient
    >>> logging.getLogger("ctxlab.llm").addHandler(logging.NullHandler())
    >>> client = FaultTolerantClient(ScriptedClient(ModelRequestRejected("no such key")))
    >>> client.complete_all([Request("gpt-4o", ())])
    [ModelUnavailable('no such key')]
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._logged = False

    def __repr__(self) -> str:
        """Show the wrapped client."""
        return f"FaultTolerantClient({self.client!r})"

    @override
    def complete(self, request: Request, /) -> Reply:
        with self._rejection_as_unavailable():
            return self.client.complete(request)

    @override
    def complete_all(self, requests: Sequence[Request], /) -> list[ReplyOrError]:
        try:
            with self._rejection_as_unavailable():
                return self.client.complete_all(requests)
        except ModelUnavailable as error:
            return [error] * len(requests)

    @override
    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        with self._rejection_as_unavailable():
            return as_embedder(self.client).embed(model, texts)

    @contextmanager
    def _rejection_as_unavailable(self) -> Iterator[None]:
        try:
            yield
        except ModelRequestRejected as error:
            if not self._logged:
                self._logged = True
                text = "the strategy continues without its model, which rejected a request: %s"
                _log.error(text, error)
            raise ModelUnavailable(str(error)) from error
