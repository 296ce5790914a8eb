"""Requests, replies and the protocols of model clients.

Strategies, agents and probes build a ``Request`` and pass it to any ``Client``. The clients are in
``ctxlab.llm``; this module knows no provider.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from ctxlab.errors import ModelUnavailable
from ctxlab.messages.types import Message, Usage


class Request(msgspec.Struct, frozen=True):
    """A request to a model. Equal requests are the same question to a cache.

    Examples
    --------
    >>> Request("gpt-5-mini", (Message("user", "Hi"),), max_tokens=100).replicate
    0
    """

    model: str
    "name of the model"
    messages: tuple[Message, ...]
    "the messages, in order"
    tools: tuple[dict[str, Any], ...] = ()
    "tool definitions in OpenAI's format"
    max_tokens: int | None = None
    "maximum tokens of the reply; None: the provider's maximum"
    temperature: float | None = None
    "sampling temperature; None: the provider's default, all that reasoning models accept"
    replicate: int = 0
    "number of the repetition; another number asks the same question again, past every cache"


class Reply(msgspec.Struct, frozen=True):
    """A model's reply, with the usage and cost of the call."""

    message: Message
    "the assistant's message, with its tool calls"
    usage: Usage = Usage()
    "tokens as billed by the provider"
    usd: float = 0.0
    "cost in USD; nan if no price is known"
    finish: str | None = None
    "reason for the end: stop, length, tool_calls or content_filter"
    attempts: int = 1
    "number of HTTP requests, failed ones included"
    cached: bool = False
    "True if the reply came from disk: nothing was sent or billed"

    @property
    def text(self) -> str:
        """Text of the message."""
        return self.message.text


class Embedding(NamedTuple):
    """Vectors of several texts, with the usage and cost of the call."""

    vectors: list[list[float]]
    "one vector per text, in the order of the texts"
    usage: Usage = Usage()
    "tokens as billed by the provider"
    usd: float = 0.0
    "cost in USD; nan if no price is known"
    attempts: int = 1
    "number of HTTP requests, failed ones included"
    cached: bool = False
    "True if all vectors came from disk"


@runtime_checkable
class Client(Protocol):
    """A client that answers requests.

    The methods raise ``ModelRequestRejected`` if a repeated request would be rejected again (a
    wrong key, an invalid request), and ``ModelUnavailable`` if there is no reply in spite of
    retries. They raise nothing else.
    """

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
        """
        ...

    def complete_all(self, requests: Sequence[Request], /) -> list[Reply | ModelUnavailable]:
        """Return the replies in order, with a few calls at a time.

        Parameters
        ----------
        requests : sequence of Request
            The requests.

        Returns
        -------
        list of Reply or ModelUnavailable
            One reply per request; an unanswered request yields its error.
        """
        ...


@runtime_checkable
class IncrementalClient(Protocol):
    """A client that yields replies as they arrive; errors as in ``Client``."""

    def complete_each(
        self,
        requests: Sequence[Request],
        /,
        on_reply: Callable[[int, Reply | ModelUnavailable], object] | None = None,
    ) -> Generator[tuple[int, Reply | ModelUnavailable], None, None]:
        """Yield the replies as they arrive.

        Parameters
        ----------
        requests : sequence of Request
            The requests.
        on_reply : callable, optional
            Called with index and reply before the reply is yielded.

        Yields
        ------
        tuple of int and (Reply or ModelUnavailable)
            Index of the request and its reply.
        """
        ...


@runtime_checkable
class SplittableClient(Protocol):
    """A client whose limits (concurrent calls, cost) can be divided among processes."""

    def split_for_workers(self, workers: int, /) -> Client:
        """Return a client for each of several processes, which together keep this client's limits.

        Parameters
        ----------
        workers : int
            Number of processes.

        Returns
        -------
        Client
            Client for one process.
        """
        ...


@runtime_checkable
class ConfiguredClient(Protocol):
    """A client with options that change its replies, so a cache must distinguish them."""

    @property
    def options(self) -> Mapping[str, Any]:
        """The options by name."""
        ...


def split_for_workers(client: Client, workers: int) -> Client:
    """Return a client for each of several processes; a client without limits is returned unchanged.

    Parameters
    ----------
    client : Client
        The client.
    workers : int
        Number of processes.

    Returns
    -------
    Client
        Client for one process.
    """
    return client.split_for_workers(workers) if isinstance(client, SplittableClient) else client


def client_options(client: object) -> Mapping[str, Any]:
    """Return the options that change a client's replies.

    Parameters
    ----------
    client : object
        The client.

    Returns
    -------
    mapping of str to object
        The options by name; empty if the client has none.
    """
    return (client.options or {}) if isinstance(client, ConfiguredClient) else {}


@runtime_checkable
class Embedder(Protocol):
    """A client that makes embeddings; errors as in ``Client``."""

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
        """
        ...


@runtime_checkable
class Streamer(Protocol):
    """A client that streams its reply; errors as in ``Client``."""

    def stream(self, request: Request, /) -> Iterator[str | Reply]:
        """Yield pieces of the text as they arrive; last, the whole reply.

        Closing the iterator early closes the connection. A failed call is retried only if no piece
        has been yielded yet.

        Parameters
        ----------
        request : Request
            The request.

        Yields
        ------
        str or Reply
            Pieces of the text; last, the whole reply.
        """
        ...


class ModelCall(NamedTuple):
    """A model call that a strategy made itself."""

    request_index: int
    "index of the agent's request before which the call was made"
    model: str
    "name of the model"
    prompt_tokens: int
    "input tokens as billed"
    completion_tokens: int
    "output tokens as billed"
    usd: float
    "cost in USD when the call was made; nan if no price is known"
    attempts: int = 1
    "number of HTTP requests, failed ones included"
    cached: bool = False
    "True if the reply came from disk; tokens and cost are those of the original call"

    @classmethod
    def from_reply(
        cls, request_index: int, model: str, reply: Reply | ModelUnavailable
    ) -> ModelCall:
        """Build the record of a call from its reply or error.

        Parameters
        ----------
        request_index : int
            Index of the agent's request before which the call was made.
        model : str
            Name of the model.
        reply : Reply or ModelUnavailable
            Reply to the call, or the error if there was none.

        Returns
        -------
        ModelCall
            The record.
        """
        if isinstance(reply, ModelUnavailable):
            return cls(request_index, model, 0, 0, 0.0, reply.attempts)
        usage = reply.usage
        return cls(
            request_index,
            model,
            usage.total_input,
            usage.output,
            reply.usd,
            reply.attempts,
            reply.cached,
        )
