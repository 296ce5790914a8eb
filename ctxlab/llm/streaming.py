"""A reply is heard piece by piece, while a thread of its own listens to the network.

What litellm gives for a stream is put together here and not by its ``stream_chunk_builder``, which
counts tokens itself where the provider said nothing of usage, and takes parallel calls that share an
index for one.
"""

from __future__ import annotations

import json
import socket
import threading
import uuid
from collections.abc import Callable, Generator
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from ctxlab._utils.jsonio import repair_surrogates
from ctxlab.errors import ModelUnavailable
from ctxlab.llm.base import Reply
from ctxlab.llm.concurrency import POLL_SECONDS, get_interruptibly
from ctxlab.llm.error_classification import classify_error
from ctxlab.llm.response_parsing import BilledResponse, build_reply
from ctxlab.tokens.prices import Prices

__all__ = [
    "STREAM_OPTIONS",
    "StreamChannel",
    "StreamInterrupted",
    "parse_stream",
    "stream_in_thread",
]

STREAM_OPTIONS = {"stream": True, "stream_options": {"include_usage": True}}
"""What asks for a stream, and for its usage at the end."""


_JOIN_SECONDS = 5.0
"seconds that a thread has for putting away a connection that was cut"


class StreamInterrupted(Exception):
    """A stream ended in the middle of what it said, so that it cannot be asked for again."""


class StreamChannel:
    """A call under way: what is said goes into ``pieces``, and the listener may hang up."""

    def __init__(self) -> None:
        self.pieces: SimpleQueue[str | Reply | BaseException] = SimpleQueue()
        self.cancelled = threading.Event()
        self.sent_chars = 0
        "characters that were handed on"
        self._stream: Any = None

    def send(self, text: str) -> None:
        """Hands a piece on."""
        self.sent_chars += len(text)
        self.pieces.put(text)

    def attach(self, stream: Any) -> None:
        """What is listened to from now on."""
        self._stream = stream

    def cancel(self) -> bool:
        """Ends the call from another thread than the one that reads; whether it heard that at once.

        Closing a socket does not wake its reader, shutting it down does. Where there is no way to it,
        as with some providers, the connection is closed with the next piece or at the timeout.
        """
        self.cancelled.set()
        with suppress(Exception):
            response = self._stream.completion_stream.response
            wire = response.extensions["network_stream"].get_extra_info("socket")
            wire.shutdown(socket.SHUT_RDWR)
            return True
        return False


def stream_in_thread(
    ask: Callable[[StreamChannel], Reply | ModelUnavailable],
) -> Generator[str | Reply, None, None]:
    """What ``ask`` sends into its channel, then its reply; what it raises is raised here.

    It is called in a thread of its own once the first piece is wanted, so Ctrl+C is heard at once.
    Closing the generator hangs up.

    >>> def ask(channel):
    ...     channel.send("Hel")
    ...     channel.send("lo.")
    ...     return ModelUnavailable("busy")
    >>> try:
    ...     for piece in stream_in_thread(ask):
    ...         print(piece)
    ... except ModelUnavailable as error:
    ...     print(error)
    Hel
    lo.
    busy
    """
    channel = StreamChannel()

    def work() -> None:
        try:
            channel.pieces.put(ask(channel))
        except BaseException as error:  # it is raised where it is awaited
            channel.pieces.put(error)

    thread = threading.Thread(target=work, name="ctxlab-llm", daemon=True)
    try:
        thread.start()
        while isinstance(came := get_interruptibly(channel.pieces), str):
            yield came
        if isinstance(came, BaseException):
            raise came
        yield came
    finally:
        # What a program that ends cuts off in the middle of an import may keep it from ending.
        thread.join(_JOIN_SECONDS if channel.cancel() else POLL_SECONDS)


def parse_stream(prices: Prices, channel: StreamChannel, stream: Any) -> BilledResponse:
    """What ``parse_reply`` gives, from litellm's stream, whose text goes to the channel as it comes.

    Raises what litellm raises, or ``StreamInterrupted`` where some text was already handed on.
    """
    heard = _PartialReply()
    channel.attach(stream)
    try:
        for chunk in stream:
            if channel.cancelled.is_set():
                break
            if text := heard.add_chunk(chunk):
                channel.send(text)
        whole = heard.is_complete(stream)
    except Exception as error:
        if not channel.sent_chars:
            raise
        why = classify_error(error).reason
    else:
        if whole:
            content = "".join(heard.text) or (None if heard.calls else "")
            wire = {"content": content, "tool_calls": heard.complete_calls()}
            return build_reply(prices, wire, "".join(heard.reasoning), heard.finish, heard.usage)
        why = (
            "nobody listens" if channel.cancelled.is_set() else "the stream ended without a reason"
        )
    finally:
        with suppress(Exception):
            stream.completion_stream.close()
    # Outside of the clause above, or what broke it would pass for something to try again.
    raise StreamInterrupted(f"after {channel.sent_chars:,} characters: {why}")


class _PartialReply:
    """A reply as far as it has come."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[dict[str, str]] = []
        self.finish: str | None = None
        self.usage: Any = None
        self._pending_surrogate = ""
        self._calls_by_index: dict[int, dict[str, str]] = {}

    def add_chunk(self, chunk: Any) -> str:
        """Adds a chunk; returns its text."""
        self.usage = getattr(chunk, "usage", None) or self.usage
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        self.finish = choice.finish_reason or self.finish
        delta = choice.delta
        for each in getattr(delta, "tool_calls", None) or ():
            self._add_call_delta(each)
        self.reasoning.append(getattr(delta, "reasoning_content", None) or "")
        text = self._pending_surrogate + (getattr(delta, "content", None) or "")
        # A character may come in two halves, each with an escape of its own.
        self._pending_surrogate = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        self.text.append(repair_surrogates(text.removesuffix(self._pending_surrogate)))
        return self.text[-1]

    def is_complete(self, stream: Any) -> bool:
        """Whether the provider said all that it had to say.

        litellm makes up an end, and tokens, where a provider gave none: what came is in its list.
        """
        came = getattr(stream, "chunks", None)
        if came is not None:
            if not any(getattr(chunk, "choices", None) for chunk in came):
                raise ValueError("the answer holds no choices")
            if not any(getattr(chunk, "usage", None) for chunk in came):
                self.usage = None
        ends = [getattr(stream, f"{when}_finish_reason", "?") for when in _FINISH_PREFIXES]
        return any(ends)

    def complete_calls(self) -> list[dict[str, str]]:
        """The calls; what came without an id of its own or a name gets one, as providers want it."""
        taken = {""}
        for call in self.calls:
            if call["id"] in taken:
                call["id"] = f"call_{uuid.uuid4().hex}"
            taken.add(call["id"])
            call["name"] = call["name"] or "unnamed"
            call["arguments"] = repair_surrogates(call["arguments"]) or "{}"
        return self.calls

    def _add_call_delta(self, delta: Any) -> None:
        function = delta.function
        id, name = delta.id or "", (getattr(function, "name", None) or "")
        arguments = getattr(function, "arguments", None) or ""
        call = self._find_call(getattr(delta, "index", None), id, name, arguments)
        call["id"] = call["id"] or id
        call["name"] = call["name"] or name
        call["arguments"] += arguments

    def _find_call(self, index: int | None, id: str, name: str, arguments: str) -> dict[str, str]:
        """The call that a delta belongs to; some providers number all calls 0, or none."""
        known = next((call for call in self.calls if id and call["id"] == id), None)
        if known is None:
            known = self._calls_by_index.get(index) if index is not None else None
            if index is None and self.calls and not id and not name:
                known = self.calls[-1]
            if known is not None and id and name and known["id"]:
                known = None
        if known is not None and name and arguments.strip() and _is_json(known["arguments"]):
            known = None  # it was complete: this is another one, under the same number or id
        if known is None:
            known = {"id": "", "name": "", "arguments": ""}
            self.calls.append(known)
        if index is not None:
            self._calls_by_index[index] = known
        return known


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


_FINISH_PREFIXES = ("received", "intermittent")
