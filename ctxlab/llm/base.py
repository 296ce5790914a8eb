"""A model is asked through one small protocol, and every call leaves a record of what it took.

Strategies, agents and probes build a ``Request`` and hand it to whatever ``Client`` they were given;
``ctxlab.llm`` holds the clients. Nothing here knows a provider.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from ctxlab.errors import ModelUnavailable
from ctxlab.messages.types import Message, Usage

__all__ = [
    "Client",
    "ConfiguredClient",
    "Embedder",
    "Embedding",
    "IncrementalClient",
    "ModelCall",
    "Reply",
    "Request",
    "SplittableClient",
    "Streamer",
    "client_options",
    "split_for_workers",
]


class Request(msgspec.Struct, frozen=True):
    """What a model is asked; two equal requests are one question.

    >>> Request("gpt-5-mini", (Message("user", "Hi"),), max_tokens=100).replicate
    0
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    "tool definitions in OpenAI's shape"
    max_tokens: int | None = None
    "of the reply; None: whatever the provider allows"
    temperature: float | None = None
    "None: the provider's own, the only one that reasoning models take"
    replicate: int = 0
    "asks the same question once more, past every cache"


class Reply(msgspec.Struct, frozen=True):
    """What a model answered, and what the call took."""

    message: Message
    "the assistant's, its tool calls included"
    usage: Usage = Usage()
    "as the provider billed it"
    usd: float = 0.0
    "what it cost; nan where no price is known"
    finish: str | None = None
    "why it ended: stop, length, tool_calls, content_filter"
    attempts: int = 1
    "HTTP requests that it took, those that failed included"
    cached: bool = False
    "it came from disk: nothing was sent and nothing is billed again"

    @property
    def text(self) -> str:
        """What was said."""
        return self.message.text


class Embedding(NamedTuple):
    """Texts as vectors, in their order, and what the call took."""

    vectors: list[list[float]]
    usage: Usage = Usage()
    usd: float = 0.0
    attempts: int = 1
    cached: bool = False


@runtime_checkable
class Client(Protocol):
    """Something that can be asked.

    ``complete`` raises ``ModelRequestRejected`` for what would be refused again (a wrong key, a bad
    request) and ``ModelUnavailable`` where no answer came in spite of retries; nothing else.
    """

    def complete(self, request: Request, /) -> Reply:
        """The reply."""
        ...

    def complete_all(self, requests: Sequence[Request], /) -> list[Reply | ModelUnavailable]:
        """The replies in order, a few asked at a time; what stayed unanswered stands as its error."""
        ...


@runtime_checkable
class IncrementalClient(Protocol):
    """Something that gives the replies of several requests as they come; errors as ``Client``."""

    def complete_each(
        self,
        requests: Sequence[Request],
        /,
        on_reply: Callable[[int, Reply | ModelUnavailable], object] | None = None,
    ) -> Generator[tuple[int, Reply | ModelUnavailable], None, None]:
        """Each reply with the place of its request, given to ``on_reply`` before it is handed out."""
        ...


@runtime_checkable
class SplittableClient(Protocol):
    """Something whose limits, on calls at a time or on dollars, are divided among processes."""

    def split_for_workers(self, workers: int, /) -> Client:
        """A client for each of so many processes, which together keep to the limits of this one."""
        ...


@runtime_checkable
class ConfiguredClient(Protocol):
    """Something with options that change its answers, so that a cache must tell them apart."""

    @property
    def options(self) -> Mapping[str, Any]:
        """By name."""
        ...


def split_for_workers(client: Client, workers: int) -> Client:
    """Return the client for each of so many processes; one without limits serves all of them."""
    return client.split_for_workers(workers) if isinstance(client, SplittableClient) else client


def client_options(client: object) -> Mapping[str, Any]:
    """Return the options that change a client's answers; none where it has none."""
    return (client.options or {}) if isinstance(client, ConfiguredClient) else {}


@runtime_checkable
class Embedder(Protocol):
    """Something that turns texts into vectors; errors are those of ``Client``."""

    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        """A vector for each text."""
        ...


@runtime_checkable
class Streamer(Protocol):
    """Something that says its reply piece by piece; errors are those of ``Client``."""

    def stream(self, request: Request, /) -> Iterator[str | Reply]:
        """Pieces of the text as they come, and at last the whole reply.

        Closing the iterator early closes the connection. What is asked again after a failure is asked
        only as long as no piece was given.
        """
        ...


class ModelCall(NamedTuple):
    """One call that a strategy made itself."""

    request_index: int
    "the request of the agent before which it was made"
    model: str
    prompt_tokens: int
    "input tokens as billed"
    completion_tokens: int
    "output tokens as billed"
    usd: float
    "what it cost when it was made; nan where no price is known"
    attempts: int = 1
    "HTTP requests, those that failed included"
    cached: bool = False
    "the answer came from disk; the figures are those of the call that was made then"

    @classmethod
    def from_reply(
        cls, request_index: int, model: str, reply: Reply | ModelUnavailable
    ) -> ModelCall:
        """What a call took, answered or not."""
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
