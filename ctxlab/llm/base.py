"""Requests, replies, the protocols of model clients, and the base class of ctxlab's own clients.

Strategies, agents and probes build a ``Request`` and pass it to any ``Client``. The clients are in
``ctxlab.llm``; this module knows no provider.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec
from typing_extensions import override

from ctxlab.errors import ModelRequestRejected, ModelUnavailable
from ctxlab.llm.concurrency import run_uninterrupted
from ctxlab.messages.types import Message, Usage


class Request(msgspec.Struct, frozen=True):
    """A request to a model; a cache stores one reply for all equal requests.

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
    "sampling temperature; None: the provider's default, the only one that reasoning models accept"
    replicate: int = 0
    "repetition of the same question: a cache stores one reply per number"


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


ReplyOrError: TypeAlias = Reply | ModelUnavailable
"""Result of one request of a batch."""

Replies: TypeAlias = Generator[tuple[int, ReplyOrError], None, None]
"""Results of a batch in order of arrival, each with the index of its request."""

OnReply: TypeAlias = Callable[[int, ReplyOrError], object] | None
"""None, or a function that is called with the index of a request and its result."""


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

    def complete_all(self, requests: Sequence[Request], /) -> list[ReplyOrError]:
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


class BaseClient(Client, ABC):
    """Base class of clients that answer a batch of requests reply by reply; errors as in ``Client``."""

    options: Mapping[str, Any] = {}
    "options that change the replies, so a cache must distinguish them"

    @abstractmethod
    def complete_each(self, requests: Sequence[Request], /, on_reply: OnReply = None) -> Replies:
        """Yield the replies as they arrive.

        A caller that leaves early must close the generator.

        Parameters
        ----------
        requests : sequence of Request
            The requests.
        on_reply : callable, optional
            Called with index and reply before the reply is yielded, also for calls that were still
            running when the caller left. It runs in a thread that no signal interrupts.

        Yields
        ------
        tuple of int and (Reply or ModelUnavailable)
            Index of the request and its reply.

        Raises
        ------
        ModelRequestRejected
            If a request or the key is not accepted.
        """

    @override
    def complete(self, request: Request, /) -> Reply:
        (reply,) = self.complete_all([request])
        if isinstance(reply, ModelUnavailable):
            raise reply
        return reply

    @override
    def complete_all(self, requests: Sequence[Request], /) -> list[ReplyOrError]:
        return [reply for _, reply in sorted(self.complete_each(requests), key=itemgetter(0))]

    def split_for_workers(self, workers: int, /) -> Client:
        """Return a client for each of several processes, which together keep this client's limits.

        Parameters
        ----------
        workers : int
            Number of processes.

        Returns
        -------
        Client
            Client for one process; this client if it has no limits.
        """
        return self


def complete_each(client: Client, requests: Sequence[Request], on_reply: OnReply = None) -> Replies:
    """Yield the replies of any client: from a ``BaseClient`` as they arrive, else all at once.

    Parameters
    ----------
    client : Client
        The client to call.
    requests : sequence of Request
        The requests.
    on_reply : callable, optional
        As in ``BaseClient.complete_each``.

    Yields
    ------
    tuple of int and (Reply or ModelUnavailable)
        Index of the request and its reply.
    """
    if isinstance(client, BaseClient):
        yield from client.complete_each(requests, on_reply)
        return
    replies = list(enumerate(client.complete_all(requests)))
    if on_reply is not None:
        run_uninterrupted(lambda: [on_reply(index, reply) for index, reply in replies])
    yield from replies


def complete_in_order(
    complete: Callable[[Request], Reply], requests: Sequence[Request], on_reply: OnReply = None
) -> Replies:
    """Yield the replies of a client that answers one request after the other.

    Parameters
    ----------
    complete : callable
        Returns the reply to a request, or raises ``ModelUnavailable``.
    requests : sequence of Request
        The requests.
    on_reply : callable, optional
        As in ``BaseClient.complete_each``.

    Returns
    -------
    generator of tuple of int and (Reply or ModelUnavailable)
        Index of each request and its reply.
    """

    def answer_each() -> Replies:
        for index, request in enumerate(requests):
            try:
                yield index, complete(request)
            except ModelUnavailable as error:
                yield index, error

    return report_replies(answer_each(), on_reply)


def report_replies(replies: Replies, on_reply: OnReply) -> Replies:
    """Yield replies, each after it was passed to ``on_reply``.

    Parameters
    ----------
    replies : generator of tuple of int and (Reply or ModelUnavailable)
        Index of each request and its reply.
    on_reply : callable or None
        As in ``BaseClient.complete_each``.

    Yields
    ------
    tuple of int and (Reply or ModelUnavailable)
        Index of the request and its reply.
    """
    with closing(replies):
        for index, reply in replies:
            if on_reply is not None:
                run_uninterrupted(partial(on_reply, index, reply))
            yield index, reply


def split_for_workers(client: Client, workers: int) -> Client:
    """Return a client for each of several processes; see ``BaseClient.split_for_workers``.

    Parameters
    ----------
    client : Client
        The client; one that is no ``BaseClient`` is returned unchanged.
    workers : int
        Number of processes.

    Returns
    -------
    Client
        Client for one process.
    """
    return client.split_for_workers(workers) if isinstance(client, BaseClient) else client


def client_options(client: object) -> Mapping[str, Any]:
    """Return the options that change a client's replies.

    Parameters
    ----------
    client : object
        The client.

    Returns
    -------
    mapping of str to object
        The options by name; empty if it is no ``BaseClient``.
    """
    return client.options if isinstance(client, BaseClient) else {}


def as_embedder(client: object) -> Embedder:
    """Return the client if it makes embeddings.

    Parameters
    ----------
    client : object
        The client.

    Returns
    -------
    Embedder
        The same client.

    Raises
    ------
    ModelRequestRejected
        If it has no ``embed`` method.
    """
    if not isinstance(client, Embedder):
        advice = "pass a client that makes embeddings"
        raise ModelRequestRejected(f"{client!r} has no embed method; {advice}")
    return client


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
    def from_reply(cls, request_index: int, model: str, reply: ReplyOrError) -> ModelCall:
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
        billed = reply.usage.total_input, reply.usage.output, reply.usd
        return cls(request_index, model, *billed, reply.attempts, reply.cached)
