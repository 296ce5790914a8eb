"""A client that answers from a script, so that what asks a model can be tried without one."""

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

__all__ = ["ScriptedAnswer", "ScriptedClient"]

ScriptedAnswer: TypeAlias = str | Message | Reply | Exception
"""What a script holds; an exception is raised."""

_VECTOR_SIZE = 64
"numbers in a vector"


class ScriptedClient:
    """Gives the answers in their order, or what one function makes of each request.

    Usage is counted with the vocabulary of the model that is asked; it costs nothing. An answer too
    many that is asked for raises ``SpecError``.

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
        "every request, in order"
        self.embedded_texts: list[str] = []
        "every text that a vector was asked for"
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<ScriptedClient: {len(self.answers)} answers, asked {len(self.requests)} times>"

    def __reduce__(self) -> tuple[type[ScriptedClient], tuple[object, ...]]:
        return type(self), self.answers

    def complete(self, request: Request, /) -> Reply:
        """The next answer."""
        with self._lock:
            number = len(self.requests)
            self.requests.append(request)
        answer: ScriptedAnswer | Callable[[Request], ScriptedAnswer]
        if len(self.answers) == 1 and callable(self.answers[0]):
            answer = self.answers[0](request)
        elif number < len(self.answers):
            answer = self.answers[number]
        else:
            raise SpecError(f"the script holds {len(self.answers)} answers, and one more is wanted")
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Reply):
            return answer
        if callable(answer):
            raise SpecError("a function stands alone in a script: it answers every request")
        message = Message("assistant", answer) if isinstance(answer, str) else answer
        counter = get_counter(request.model, UNCALIBRATED)
        said = counter.count_text(message.text)
        said += sum(
            counter.count_text(c.name) + counter.count_text(c.arguments) for c in message.tool_calls
        )
        usage = Usage(counter.count_request(request.messages, request.tools), output=said)
        return Reply(message, usage, finish="tool_calls" if message.tool_calls else "stop")

    def complete_all(self, requests: Sequence[Request], /) -> list[Reply | ModelUnavailable]:
        """One after the other, so that the order of answers is that of requests."""
        replies: list[Reply | ModelUnavailable] = []
        for request in requests:
            try:
                replies.append(self.complete(request))
            except ModelUnavailable as error:
                replies.append(error)
        return replies

    def stream(self, request: Request, /) -> Generator[str | Reply, None, None]:
        """The next answer in pieces of a word each, then whole.

        >>> client = ScriptedClient("Hello there.")
        >>> [*pieces, reply] = client.stream(Request("gpt-4o", ()))
        >>> pieces, reply.text
        (['Hello ', 'there.'], 'Hello there.')
        """
        reply = self.complete(request)
        yield from re.findall(r"\s*\S+\s*|\s+", reply.text)
        yield reply

    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        """Texts that share words are near: each word adds to one of 64 numbers, by its checksum."""
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
