"""A live agent outlives its summariser: what is refused counts as unanswered, and is said aloud."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ctxlab.errors import ModelRequestRejected, ModelUnavailable
from ctxlab.llm.base import Client, Embedder, Embedding, Reply, Request

__all__ = ["FaultTolerantClient"]

_log = logging.getLogger("ctxlab.llm")


class FaultTolerantClient:
    """Asks another client and never raises ``ModelRequestRejected``: strategies do without a model.

    In the lab a wrong key ends an experiment, since its numbers would be another strategy's. A
    conversation that is under way goes on: the first refusal is an error of the logger ``ctxlab.llm``,
    and the model is asked again the next time, when the key may work.

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
        return f"FaultTolerantClient({self.client!r})"

    def complete(self, request: Request, /) -> Reply:
        """The reply; raises ``ModelUnavailable``."""
        try:
            return self.client.complete(request)
        except ModelRequestRejected as error:
            raise self._to_unavailable(error) from error

    def complete_all(self, requests: Sequence[Request], /) -> list[Reply | ModelUnavailable]:
        """The replies in order; a refusal, which is of the key or the settings, stands for all."""
        try:
            return self.client.complete_all(requests)
        except ModelRequestRejected as error:
            return [self._to_unavailable(error)] * len(requests)

    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        """A vector for each text; raises ``ModelUnavailable``."""
        try:
            if not isinstance(self.client, Embedder):
                raise ModelRequestRejected(
                    f"{self.client!r} makes no embeddings: give a client that does"
                )
            return self.client.embed(model, texts)
        except ModelRequestRejected as error:
            raise self._to_unavailable(error) from error

    def _to_unavailable(self, error: ModelRequestRejected) -> ModelUnavailable:
        if not self._logged:
            self._logged = True
            _log.error("the strategy's own model is refused, so it does without: %s", error)
        return ModelUnavailable(str(error))
