"""A client that returns prepared replies, for tests without a model."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Callable, Generator, Sequence
from math import sqrt
from typing import TypeAlias

from typing_extensions import override

from ctxlab.errors import SpecError
from ctxlab.llm.base import (
    BaseClient,
    Embedder,
    Embedding,
    OnReply,
    Replies,
    Reply,
    Request,
    Streamer,
    complete_in_order,
)
from ctxlab.messages.types import Message, Usage
from ctxlab.tokens.counter import get_counter
from ctxlab.tokens.profiles import UNCALIBRATED

ScriptedAnswer: TypeAlias = str | Message | Reply | Exception
"""One prepared answer of a ``ScriptedClient``. An exception stands for a request that fails."""

_VECTOR_SIZE = 64
"dimension of the embedding vectors"


class ScriptedClient(BaseClient, Embedder, Streamer):
    """Client for tests that returns prepared answers in order, or the answers of a function.

    Requests of a batch are answered one after the other. Usage is counted with the encoding of the
    requested model, and the cost is 0. A request raises ``SpecError`` when all answers have been
    used. A stream yields the text word by word. An embedding vector consists of 64 normalized word
    counts. The checksum of a word selects one of the counts, so strings that share words have
    similar vectors.

    Parameters
    ----------
    *answers : str, Message, Reply, Exception or callable
        Answers in the order of the requests, or one function that takes a request and returns the
        answer. An exception stands for a request that fails: ``complete`` raises it, and
        ``complete_all`` returns it in place of the reply.

    Examples
    --------
    >>> from ctxlab.errors import ModelUnavailable
    >>> client = ScriptedClient("Hello.", ModelUnavailable("busy"))
    >>> request = Request("gpt-4o", (Message("user", "Hi"),))
    >>> client.complete(request).text, client.complete_all([request])
    ('Hello.', [ModelUnavailable('busy')])
    >>> ScriptedClient(lambda request: request.messages[-1].text.upper()).complete(request).text
    'HI'
    >>> [*pieces, reply] = ScriptedClient("Hello there.").stream(request)
    >>> pieces, reply.text
    (['Hello ', 'there.'], 'Hello there.')
    """

    def __init__(self, *answers: ScriptedAnswer | Callable[[Request], ScriptedAnswer]) -> None:
        self.answers = answers
        self.requests: list[Request] = []
        "all requests so far, in order"
        self.embedded_texts: list[str] = []
        "all strings for which a vector was requested"
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        """Show the number of answers and the number of requests so far."""
        return f"<ScriptedClient: {len(self.answers)} answers, asked {len(self.requests)} times>"

    def __reduce__(self) -> tuple[type[ScriptedClient], tuple[object, ...]]:
        """Pickle the answers, without the requests so far."""
        return type(self), self.answers

    @override
    def complete_each(self, requests: Sequence[Request], /, on_reply: OnReply = None) -> Replies:
        return complete_in_order(self._next_reply, requests, on_reply)

    @override
    def stream(self, request: Request, /) -> Generator[str | Reply, None, None]:
        reply = self.complete(request)
        yield from re.findall(r"\s*\S+\s*|\s+", reply.text)
        yield reply

    @override
    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        self.embedded_texts += texts
        counter = get_counter(model, UNCALIBRATED)
        tokens = sum(map(counter.count_text, texts))
        return Embedding([_hash_words(text) for text in texts], Usage(tokens))

    def _next_reply(self, request: Request) -> Reply:
        with self._lock:
            number = len(self.requests)
            self.requests.append(request)
        answers = self.answers
        if len(answers) == 1 and callable(answers[0]):
            answers = (answers[0](request),) * (number + 1)
        if number >= len(answers):
            told = f"request {number + 1} (answers given: {len(answers)})"
            raise SpecError(f"the client has no answer for {told}; pass more answers")
        match answers[number]:
            case Exception() as error:
                raise error
            case Reply() as reply:
                return reply
            case Message() as message:
                pass
            case str() as text:
                message = Message("assistant", text)
            case _:
                raise SpecError(
                    "Expected each answer to be a str, Message, Reply or Exception, got "
                    f"{answers[number]!r}; to answer by a function, pass it as the only argument"
                )
        calls = message.tool_calls
        counter = get_counter(request.model, UNCALIBRATED)
        written = [message.text, *(text for c in calls for text in (c.name, c.arguments))]
        prompt = counter.count_request(request.messages, request.tools)
        usage = Usage(prompt, output=sum(map(counter.count_text, written)))
        return Reply(message, usage, finish="tool_calls" if calls else "stop")


def _hash_words(text: str) -> list[float]:
    counts = [0.0] * _VECTOR_SIZE
    for word in re.findall(r"\w+", text.lower()):
        counts[zlib.crc32(word.encode()) % _VECTOR_SIZE] += 1
    length = sqrt(sum(count * count for count in counts)) or 1.0
    return [count / length for count in counts]
