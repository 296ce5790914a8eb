"""A client that returns scripted replies, for tests without a model."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Callable, Generator, Sequence
from math import sqrt
from typing import TypeAlias

from ctxlab.errors import ModelUnavailable, SpecError
from ctxlab.llm.base import Embedding, Reply, Request
from ctxlab.messages.types import Message, Usage
from ctxlab.tokens.counter import get_counter
from ctxlab.tokens.profiles import UNCALIBRATED

ScriptedAnswer: TypeAlias = str | Message | Reply | Exception
"""One entry of a script; an exception is raised."""

_VECTOR_SIZE = 64
"dimension of the embedding vectors"


class ScriptedClient:
    """Client that returns scripted answers in order, or the result of one function.

    Usage is counted with the encoding of the requested model; the cost is 0.

    Parameters
    ----------
    *answers : str, Message, Reply, Exception or callable
        The answers in order; an exception is raised. Or one function that computes the answer from
        each request.

    Examples
    --------
    >>> client = ScriptedClient("Hello.", ModelUnavailable("busy"))
    >>> request = Request("gpt-4o", (Message("user", "Hi"),))
    >>> client.complete(request).text, client.complete_all([request])
    ('Hello.', [ModelUnavailable('busy')])
    >>> ScriptedClient(lambda request: request.messages[-1].text.upper()).complete(request).text
    'HI'
    """

    def __init__(self, *answers: ScriptedAnswer | Callable[[Request], ScriptedAnswer]) -> None:
        self.answers = answers
        self.requests: list[Request] = []
        "all requests so far, in order"
        self.embedded_texts: list[str] = []
        "all texts for which a vector was requested"
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<ScriptedClient: {len(self.answers)} answers, asked {len(self.requests)} times>"

    def __reduce__(self) -> tuple[type[ScriptedClient], tuple[object, ...]]:
        return type(self), self.answers

    def complete(self, request: Request, /) -> Reply:
        """Return the next answer.

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
        SpecError
            If no answer is left, or if a function is not the only answer.
        """
        with self._lock:
            number = len(self.requests)
            self.requests.append(request)
        answer: ScriptedAnswer | Callable[[Request], ScriptedAnswer]
        if len(self.answers) == 1 and callable(self.answers[0]):
            answer = self.answers[0](request)
        elif number < len(self.answers):
            answer = self.answers[number]
        else:
            raise SpecError(
                f"no scripted answer for request {number + 1}: the script has {len(self.answers)}; "
                "add more"
            )
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Reply):
            return answer
        if callable(answer):
            raise SpecError(
                "a function answers every request; pass it as the only answer of the script"
            )
        message = Message("assistant", answer) if isinstance(answer, str) else answer
        counter = get_counter(request.model, UNCALIBRATED)
        said = counter.count_text(message.text)
        said += sum(
            counter.count_text(c.name) + counter.count_text(c.arguments) for c in message.tool_calls
        )
        usage = Usage(counter.count_request(request.messages, request.tools), output=said)
        return Reply(message, usage, finish="tool_calls" if message.tool_calls else "stop")

    def complete_all(self, requests: Sequence[Request], /) -> list[Reply | ModelUnavailable]:
        """Return the replies, one request after the other, so that answers match requests in order.

        Parameters
        ----------
        requests : sequence of Request
            The requests.

        Returns
        -------
        list of Reply or ModelUnavailable
            One reply per request.
        """
        replies: list[Reply | ModelUnavailable] = []
        for request in requests:
            try:
                replies.append(self.complete(request))
            except ModelUnavailable as error:
                replies.append(error)
        return replies

    def stream(self, request: Request, /) -> Generator[str | Reply, None, None]:
        """Yield the next answer word by word; last, the whole reply.

        Parameters
        ----------
        request : Request
            The request.

        Yields
        ------
        str or Reply
            Pieces of the text; last, the whole reply.

        Examples
        --------
        >>> client = ScriptedClient("Hello there.")
        >>> [*pieces, reply] = client.stream(Request("gpt-4o", ()))
        >>> pieces, reply.text
        (['Hello ', 'there.'], 'Hello there.')
        """
        reply = self.complete(request)
        yield from re.findall(r"\s*\S+\s*|\s+", reply.text)
        yield reply

    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        """Return one vector per text; texts with common words have similar vectors.

        Each word increments one of 64 counters, chosen by its checksum.

        Parameters
        ----------
        model : str
            Name of the model, for counting tokens.
        texts : sequence of str
            The texts.

        Returns
        -------
        Embedding
            The vectors, in the order of the texts.
        """
        self.embedded_texts += texts
        counter = get_counter(model, UNCALIBRATED)
        return Embedding(
            [_hash_words(t) for t in texts], Usage(sum(map(counter.count_text, texts)))
        )


def _hash_words(text: str) -> list[float]:
    counts = [0.0] * _VECTOR_SIZE
    for word in re.findall(r"\w+", text.lower()):
        counts[zlib.crc32(word.encode()) % _VECTOR_SIZE] += 1
    length = sqrt(sum(count * count for count in counts)) or 1.0
    return [count / length for count in counts]
