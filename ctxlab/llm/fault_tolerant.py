"""A client wrapper for live agents that turns rejected requests into unavailable replies."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ctxlab.errors import ModelRequestRejected, ModelUnavailable
from ctxlab.llm.base import Client, Embedder, Embedding, Reply, Request

_log = logging.getLogger("ctxlab.llm")


class FaultTolerantClient:
    """Client that calls another client and never raises ``ModelRequestRejected``.

    In an evaluation, a wrong key must stop the experiment: a strategy that continues without its
    model would produce the numbers of another strategy. A live conversation must go on. So the
    first rejection is logged as an error by the logger ``ctxlab.llm``, and the strategy works
    without a model. The model is called again the next time, because the key may work by then.

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
        return f"FaultTolerantClient({self.client!r})"

    def complete(self, request: Request, /) -> Reply:
        """Return the reply to a request.

        Parameters
        ----------
        request : Request
            The request.

        Returns
        -------
        Reply
            The reply.

        Raises
        ------
        ModelUnavailable
            If there is no reply, for whatever reason.
        """
        try:
            return self.client.complete(request)
        except ModelRequestRejected as error:
            raise self._to_unavailable(error) from error

    def complete_all(self, requests: Sequence[Request], /) -> list[Reply | ModelUnavailable]:
        """Return the replies in order.

        Parameters
        ----------
        requests : sequence of Request
            The requests.

        Returns
        -------
        list of Reply or ModelUnavailable
            One reply or error per request. A rejection concerns the key or the settings, so it
            stands for all of them.
        """
        try:
            return self.client.complete_all(requests)
        except ModelRequestRejected as error:
            return [self._to_unavailable(error)] * len(requests)

    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        """Return one vector per text.

        Parameters
        ----------
        model : str
            Name of the embedding model.
        texts : sequence of str
            The texts.

        Returns
        -------
        Embedding
            The vectors, in the order of the texts.

        Raises
        ------
        ModelUnavailable
            If there is no reply, for whatever reason.
        """
        try:
            if not isinstance(self.client, Embedder):
                raise ModelRequestRejected(
                    f"{self.client!r} has no embed method; pass a client that makes embeddings"
                )
            return self.client.embed(model, texts)
        except ModelRequestRejected as error:
            raise self._to_unavailable(error) from error

    def _to_unavailable(self, error: ModelRequestRejected) -> ModelUnavailable:
        if not self._logged:
            self._logged = True
            _log.error(
                "the request to the strategy's model was rejected, so the strategy continues "
                "without a model: %s",
                error,
            )
        return ModelUnavailable(str(error))
