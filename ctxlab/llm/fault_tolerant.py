"""A client for live agents that raises ``ModelUnavailable`` instead of ``ModelRequestRejected``."""

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

    In an evaluation, a wrong API key must stop the experiment, because a strategy without its model
    would produce the results of a different strategy. A live conversation, however, must continue.
    This client therefore raises ``ModelUnavailable`` instead of ``ModelRequestRejected``, and the
    strategy continues without a model. The first rejection is logged as an error by the logger
    ``ctxlab.llm``. The next request calls the model again, because the key may work by then. A
    rejection concerns the key or the settings, so all requests of a batch get the same error.

    Parameters
    ----------
    client : Client
        Client that sends the requests.

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
                text = "a request was rejected, and the strategy continues without its model: %s"
                _log.error(text, error)
            raise ModelUnavailable(str(error)) from error
