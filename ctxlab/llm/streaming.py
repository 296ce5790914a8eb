"""Streamed replies, read from the network in a thread of their own.

Chunks are assembled here and not by litellm's ``stream_chunk_builder``, for two reasons: it counts
tokens itself if the provider reports no usage, and it merges parallel tool calls that share an
index.
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
from ctxlab.llm.base import Reply, ReplyOrError
from ctxlab.llm.concurrency import POLL_SECONDS, get_interruptibly
from ctxlab.llm.error_classification import classify_error
from ctxlab.llm.response_parsing import build_reply
from ctxlab.tokens.prices import Prices

STREAM_OPTIONS = {"stream": True, "stream_options": {"include_usage": True}}
"""Options that request a stream with its usage at the end."""

_JOIN_SECONDS = 5.0
"seconds that a thread has to close a connection that was cut"


class StreamInterrupted(Exception):
    """A stream ended after part of its text was passed on, so the request cannot be repeated."""


class StreamChannel:
    """Connects the thread that reads a stream with the consumer, who may cancel it."""

    def __init__(self) -> None:
        self.pieces: SimpleQueue[str | Reply | BaseException] = SimpleQueue()
        self.cancelled = threading.Event()
        self.sent_chars = 0
        "number of characters passed on so far"
        self.stream: Any = None
        "stream of litellm that ``cancel`` closes"

    def send(self, text: str) -> None:
        """Pass a piece of text on to the consumer.

        Parameters
        ----------
        text : str
            The piece.
        """
        self.sent_chars += len(text)
        self.pieces.put(text)

    def cancel(self) -> bool:
        """Cancel the call, from another thread than the one that reads.

        The socket is shut down, because closing it would not wake its reader. For some providers
        the socket is out of reach; then the connection is closed with the next piece or at the
        timeout.

        Returns
        -------
        bool
            True if the socket was shut down, so that the reader ends at once.
        """
        self.cancelled.set()
        with suppress(Exception):
            response = self.stream.completion_stream.response
            wire = response.extensions["network_stream"].get_extra_info("socket")
            wire.shutdown(socket.SHUT_RDWR)
            return True
        return False


def stream_in_thread(
    ask: Callable[[StreamChannel], ReplyOrError],
) -> Generator[str | Reply, None, None]:
    """Run ``ask`` in a thread and yield what it sends, then its reply.

    The thread starts when the first piece is requested, and Ctrl+C interrupts the wait at once.
    Closing the generator cancels the call. Errors of ``ask`` are raised here.

    Parameters
    ----------
    ask : callable
        Called with a ``StreamChannel``; returns the reply or an error.

    Yields
    ------
    str or Reply
        Pieces of the text; last, the whole reply.

    Examples
    --------
    >>> from ctxlab.errors import ModelUnavailable
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
        except BaseException as error:  # raised again in the thread that waits for it
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
        # A thread that is cut off in the middle of an import can keep the program from exiting.
        thread.join(_JOIN_SECONDS if channel.cancel() else POLL_SECONDS)


def parse_stream(prices: Prices, channel: StreamChannel, stream: Any) -> Reply:
    """Read litellm's stream, pass its text on to the channel, and build the reply.

    Errors of litellm are raised as they are if no text was passed on yet.

    Parameters
    ----------
    prices : Prices
        Prices of the model.
    channel : StreamChannel
        Receives the text as it arrives.
    stream : object
        Stream of litellm.

    Returns
    -------
    Reply
        The reply.

    Raises
    ------
    StreamInterrupted
        If the stream ends early, after some text was passed on.
    """
    heard = _PartialReply()
    channel.stream = stream
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
            return build_reply(prices, heard.message_data(), heard.finish, heard.usage)
        cancelled = channel.cancelled.is_set()
        why = "was cancelled" if cancelled else "ended without a finish reason"
        why = f"the stream {why}"
    finally:
        with suppress(Exception):
            stream.completion_stream.close()
    # Raised outside of the except clause, or its cause would be classified as worth a retry.
    raise StreamInterrupted(f"after {channel.sent_chars:,} characters: {why}")


class _PartialReply:
    """A reply that is assembled from chunks."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[dict[str, str]] = []
        self.finish: str | None = None
        self.usage: Any = None
        self._pending_surrogate = ""
        self._calls_by_index: dict[int, dict[str, str]] = {}

    def add_chunk(self, chunk: Any) -> str:
        """Add a chunk and return its text."""
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
        # A character may arrive as two surrogates in two chunks.
        self._pending_surrogate = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        self.text.append(repair_surrogates(text.removesuffix(self._pending_surrogate)))
        return self.text[-1]

    def is_complete(self, stream: Any) -> bool:
        """Return True if the provider sent a finish reason.

        litellm invents an end and a usage if a provider sends none. ``stream.chunks`` holds what
        arrived.
        """
        came = getattr(stream, "chunks", None)
        if came is not None:
            if not any(getattr(chunk, "choices", None) for chunk in came):
                raise ValueError("the response has no choices")
            if not any(getattr(chunk, "usage", None) for chunk in came):
                self.usage = None
        names = ("received_finish_reason", "intermittent_finish_reason")
        return any(getattr(stream, name, "?") for name in names)

    def message_data(self) -> dict[str, Any]:
        """Return content, tool calls and reasoning; add ids and names, which providers require."""
        taken = {""}
        for call in self.calls:
            if call["id"] in taken:
                call["id"] = f"call_{uuid.uuid4().hex}"
            taken.add(call["id"])
            call["name"] = call["name"] or "unnamed"
            call["arguments"] = repair_surrogates(call["arguments"]) or "{}"
        content = "".join(self.text) or (None if self.calls else "")
        return {"content": content, "tool_calls": self.calls, "reasoning": "".join(self.reasoning)}

    def _add_call_delta(self, delta: Any) -> None:
        function = delta.function
        id, name = delta.id or "", (getattr(function, "name", None) or "")
        arguments = getattr(function, "arguments", None) or ""
        call = self._find_call(getattr(delta, "index", None), id, name, arguments)
        call["id"] = call["id"] or id
        call["name"] = call["name"] or name
        call["arguments"] += arguments

    def _find_call(self, index: int | None, id: str, name: str, arguments: str) -> dict[str, str]:
        """Return the call that a delta belongs to; some providers number all calls 0, or none."""
        known = next((call for call in self.calls if id and call["id"] == id), None)
        if known is None:
            known = self._calls_by_index.get(index) if index is not None else None
            if index is None and self.calls and not id and not name:
                known = self.calls[-1]
            if known is not None and id and name and known["id"]:
                known = None
        if known is not None and name and arguments.strip() and _is_json(known["arguments"]):
            known = None  # that call is complete, so this is another one with the same index or id
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
