"""Requests, replies, the protocols of model clients, and the base class of ctxlab's own clients.

Strategies, agents and probes build a ``Request`` and pass it to any ``Client``. The clients are
implemented in the other modules of ``ctxlab.llm``. This module does not depend on any provider.
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
    """A request to a model. Requests with equal fields share one reply in a cache.

    To get several replies to the same messages, give each request a different ``replicate``.

    Examples
    --------
    >>> Request("gpt-5-mini", (Message("user", "Hi"),), max_tokens=100).replicate
    0
    """

    model: str
    "name of the model"
    messages: tuple[Message, ...]
    "messages to send, in order"
    tools: tuple[dict[str, Any], ...] = ()
    "tool definitions in OpenAI's format"
    max_tokens: int | None = None
    "maximum number of tokens of the reply; None uses the provider's maximum"
    temperature: float | None = None
    "sampling temperature; None uses the provider's default (reasoning models accept no other value)"
    replicate: int = 0
    "number that tells repetitions of a request apart; a cache stores one reply per number"


class Reply(msgspec.Struct, frozen=True):
    """A model's reply, with the usage and cost of the call."""

    message: Message
    "the assistant's message, including its tool calls"
    usage: Usage = Usage()
    "numbers of tokens that the provider billed"
    usd: float = 0.0
    "cost in USD; nan if the model's price is unknown"
    finish: str | None = None
    "why the reply ended: stop, length, tool_calls or content_filter; None if unknown"
    attempts: int = 1
    "number of HTTP requests, including failed ones"
    cached: bool = False
    "True if the reply was read from a cache, so that nothing was sent or billed"

    @property
    def text(self) -> str:
        """Text of the reply, without tool calls and hidden reasoning."""
        return self.message.text


ReplyOrError: TypeAlias = Reply | ModelUnavailable
"""Result of one request of a batch: its reply, or the error if the model did not reply."""

Replies: TypeAlias = Generator[tuple[int, ReplyOrError], None, None]
"""Generator of the results of a batch in order of arrival, each with the index of its request."""

OnReply: TypeAlias = Callable[[int, ReplyOrError], object] | None
"""Function that is called with the index of a request and its result; None if there is none."""


class Embedding(NamedTuple):
    """Embedding vectors of several strings, with the usage and cost of the call."""

    vectors: list[list[float]]
    "one vector per string, in the order of the strings"
    usage: Usage = Usage()
    "numbers of tokens that the provider billed"
    usd: float = 0.0
    "cost in USD; nan if the model's price is unknown"
    attempts: int = 1
    "number of HTTP requests, including failed ones"
    cached: bool = False
    "True if all vectors were read from a cache"


@runtime_checkable
class Client(Protocol):
    """A client that sends requests to a model and returns the replies.

    The methods raise ``ModelRequestRejected`` if a retry would be rejected too, for example because
    the API key is wrong or the request is invalid. They raise ``ModelUnavailable`` if the model does
    not reply after all retries. The only other exception is ``SpecError``, for a client or request
    with wrong settings.
    """

    def complete(self, request: Request, /) -> Reply:
        """Send a request and return its reply.

        Parameters
        ----------
        request : Request
            Request to send.

        Returns
        -------
        Reply
            Reply of the model.
        """

    def complete_all(self, requests: Sequence[Request], /) -> list[ReplyOrError]:
        """Send several requests and return their replies in the order of the requests.

        A client may send several requests at the same time.

        Parameters
        ----------
        requests : sequence of Request
            Requests to send.

        Returns
        -------
        list of Reply or ModelUnavailable
            For each request its reply, or the error if the model did not reply.
        """


@runtime_checkable
class Embedder(Protocol):
    """A client that computes embedding vectors. It raises the same exceptions as ``Client``."""

    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        """Return one embedding vector per string.

        Parameters
        ----------
        model : str
            Name of the embedding model.
        texts : sequence of str
            Strings to embed.

        Returns
        -------
        Embedding
            Vectors in the order of ``texts``, with usage and cost.
        """


@runtime_checkable
class Streamer(Protocol):
    """A client that streams replies. It raises the same exceptions as ``Client``."""

    def stream(self, request: Request, /) -> Iterator[str | Reply]:
        """Send a request; yield pieces of the reply's text as they arrive, then the whole reply.

        Closing the iterator early closes the connection. A failed call is retried only if no piece
        has been yielded yet.

        Parameters
        ----------
        request : Request
            Request to send.

        Yields
        ------
        str or Reply
            Pieces of the text as str, then the whole reply.
        """


class BaseClient(Client, ABC):
    """Base class of clients that can yield each reply of a batch as soon as it arrives.

    The methods raise the same exceptions as the methods of ``Client``.
    """

    options: Mapping[str, Any] = {}
    "options that change the replies; a cache includes them in its keys"

    @abstractmethod
    def complete_each(self, requests: Sequence[Request], /, on_reply: OnReply = None) -> Replies:
        """Send several requests and yield each reply as soon as it arrives.

        A caller that stops before the last reply must close the generator.

        Parameters
        ----------
        requests : sequence of Request
            Requests to send.
        on_reply : callable, optional
            Called with the index of a request and its reply or error, before that reply is yielded.
            If the caller closes the generator early, the function is also called for the requests that
            are still running. The function runs in a thread that no signal interrupts.

        Yields
        ------
        tuple of int and (Reply or ModelUnavailable)
            Index of the request, and its reply or error.

        Raises
        ------
        ModelRequestRejected
            If the provider rejects a request or the API key.
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
        """Return a client for one of several processes that share this client's limits.

        Limits, such as a cost limit, are divided by the number of processes.

        Parameters
        ----------
        workers : int
            Number of processes.

        Returns
        -------
        Client
            Client to use in each process; this client itself if it has no limits.
        """
        return self


def complete_each(client: Client, requests: Sequence[Request], on_reply: OnReply = None) -> Replies:
    """Send several requests with any client and yield their replies.

    A ``BaseClient`` yields each reply as soon as it arrives. For any other client, all replies are
    yielded after the last one has arrived.

    Parameters
    ----------
    client : Client
        Client that sends the requests.
    requests : sequence of Request
        Requests to send.
    on_reply : callable, optional
        Called with each reply; see ``BaseClient.complete_each``.

    Yields
    ------
    tuple of int and (Reply or ModelUnavailable)
        Index of the request, and its reply or error.
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
    """Send requests one after the other and yield their replies.

    Parameters
    ----------
    complete : callable
        Function that takes a request and returns its reply. If it raises ``ModelUnavailable``, the
        error is yielded instead of a reply.
    requests : sequence of Request
        Requests to send.
    on_reply : callable, optional
        Called with each reply; see ``BaseClient.complete_each``.

    Returns
    -------
    generator of tuple of int and (Reply or ModelUnavailable)
        Index of each request, and its reply or error.
    """

    def answer_each() -> Replies:
        for index, request in enumerate(requests):
            try:
                yield index, complete(request)
            except ModelUnavailable as error:
                yield index, error

    return report_replies(answer_each(), on_reply)


def report_replies(replies: Replies, on_reply: OnReply) -> Replies:
    """Pass each reply to ``on_reply``, then yield it.

    Parameters
    ----------
    replies : generator of tuple of int and (Reply or ModelUnavailable)
        Index of each request, and its reply or error.
    on_reply : callable or None
        Called with each reply; see ``BaseClient.complete_each``.

    Yields
    ------
    tuple of int and (Reply or ModelUnavailable)
        Index of the request, and its reply or error.
    """
    with closing(replies):
        for index, reply in replies:
            if on_reply is not None:
                run_uninterrupted(partial(on_reply, index, reply))
            yield index, reply


def split_for_workers(client: Client, workers: int) -> Client:
    """Return a client for one of several processes that share a client's limits.

    Parameters
    ----------
    client : Client
        Client with the limits; see ``BaseClient.split_for_workers``.
    workers : int
        Number of processes.

    Returns
    -------
    Client
        Client to use in each process; ``client`` itself if it does not derive from ``BaseClient``.
    """
    return client.split_for_workers(workers) if isinstance(client, BaseClient) else client


def client_options(client: object) -> Mapping[str, Any]:
    """Return the options of a client that affect its replies, such as ``reasoning_effort``.

    Parameters
    ----------
    client : object
        Client, or any other object.

    Returns
    -------
    mapping of str to object
        Options by name; empty if ``client`` does not derive from ``BaseClient``.
    """
    return client.options if isinstance(client, BaseClient) else {}


def as_embedder(client: object) -> Embedder:
    """Check that a client can compute embeddings, and return the client.

    Parameters
    ----------
    client : object
        Client to check.

    Returns
    -------
    Embedder
        ``client`` itself.

    Raises
    ------
    ModelRequestRejected
        If the client has no ``embed`` method.
    """
    if not isinstance(client, Embedder):
        advice = "pass one with an embed method, such as LiteLLMClient"
        raise ModelRequestRejected(f"Expected an embedding client, got {client!r}; {advice}")
    return client


class ModelCall(NamedTuple):
    """Record of a model call that a strategy made, for example to write a summary."""

    request_index: int
    "index of the agent's request before which the call was made"
    model: str
    "name of the model"
    prompt_tokens: int
    "number of billed input tokens"
    completion_tokens: int
    "number of billed output tokens"
    usd: float
    "cost in USD when the call was made; nan if the model's price is unknown"
    attempts: int = 1
    "number of HTTP requests, including failed ones"
    cached: bool = False
    "True if the reply was read from a cache; tokens and cost are those of the original call"

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
            Reply to the call, or the error if the model did not reply.

        Returns
        -------
        ModelCall
            Record of the call; its tokens and cost are 0 if the model did not reply.
        """
        if isinstance(reply, ModelUnavailable):
            return cls(request_index, model, 0, 0, 0.0, reply.attempts)
        billed = reply.usage.total_input, reply.usage.output, reply.usd
        return cls(request_index, model, *billed, reply.attempts, reply.cached)
