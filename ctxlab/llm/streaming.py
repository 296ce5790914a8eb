"""Read streamed replies in a separate thread and assemble them from their chunks.

litellm's ``stream_chunk_builder`` is not used, for two reasons: it counts tokens itself if the
provider reports no usage, and it merges parallel tool calls that have the same index.
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
from ctxlab.llm.reasoning import join_thinking_blocks
from ctxlab.llm.response_parsing import build_reply, call_signature, text_signatures
from ctxlab.tokens.prices import Prices

STREAM_OPTIONS = {"stream": True, "stream_options": {"include_usage": True}}
"""Arguments for litellm that request a stream with the usage at its end."""

_JOIN_SECONDS = 5.0
"maximum seconds to wait for the reading thread after its connection was shut down"


class StreamInterrupted(Exception):
    """Error for a stream that ended early. The request is not retried."""


class StreamChannel:
    """Channel that passes the text of a stream from the reading thread to the consumer.

    The consumer can cancel the stream.
    """

    def __init__(self) -> None:
        self.pieces: SimpleQueue[str | Reply | BaseException] = SimpleQueue()
        self.cancelled = threading.Event()
        self.sent_chars = 0
        "number of characters sent to the consumer so far"
        self.stream: Any = None
        "litellm's stream; ``cancel`` shuts its connection down"

    def send(self, text: str) -> None:
        """Send a piece of text to the consumer.

        Parameters
        ----------
        text : str
            Piece of the reply's text.
        """
        self.sent_chars += len(text)
        self.pieces.put(text)

    def cancel(self) -> bool:
        """Cancel the stream. Call this from the consumer's thread, not from the reading thread.

        The socket is shut down rather than closed, because closing it would not wake the reading
        thread. For some providers the socket is not accessible. The connection is then closed when
        the next piece arrives or at the timeout.

        Returns
        -------
        bool
            True if the socket was shut down, so that the reading thread ends at once.
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
    """Run ``ask`` in a thread; yield the pieces of text that it sends, then its reply.

    The thread starts when the first piece is requested. Ctrl+C interrupts the wait for a piece at
    once. Closing the generator cancels the call. An error that ``ask`` returns or raises is raised
    by the generator.

    Parameters
    ----------
    ask : callable
        Function that takes a ``StreamChannel``, sends pieces of text to it, and returns the reply or
        an error.

    Yields
    ------
    str or Reply
        Pieces of the text as str, then the whole reply.

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


def parse_stream(prices: Prices, channel: StreamChannel, stream: Any, provider: str = "") -> Reply:
    """Read litellm's stream, send its text to the channel, and build the reply.

    If the stream fails before any text was sent, litellm's exception is raised unchanged.

    Parameters
    ----------
    prices : Prices
        Prices of the model.
    channel : StreamChannel
        Channel that receives the text as it arrives.
    stream : object
        Stream returned by ``litellm.completion``.
    provider : str, default ""
        Name of the provider that replies, which is stored with the reasoning.

    Returns
    -------
    Reply
        Message with its tool calls, usage and cost.

    Raises
    ------
    StreamInterrupted
        If the stream ends without a finish reason, is cancelled, or fails after text was sent.
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
            return build_reply(prices, heard.message_data(), heard.finish, heard.usage, provider)
        cancelled = channel.cancelled.is_set()
        why = "was cancelled" if cancelled else "ended without a finish reason"
        why = f"it {why}"
    finally:
        with suppress(Exception):
            stream.completion_stream.close()
    # Raised outside of the except clause; otherwise the cause would be classified as retryable.
    raise StreamInterrupted(f"the stream stopped after {channel.sent_chars:,} characters: {why}")


class _PartialReply:
    """A reply that is assembled from the chunks of a stream."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.thinking: list[dict[str, Any]] = []
        self.signatures: list[str] = []
        self.calls: list[dict[str, str]] = []
        self.finish: str | None = None
        self.usage: Any = None
        self._pending_surrogate = ""
        self._calls_by_index: dict[int, dict[str, str]] = {}

    def add_chunk(self, chunk: Any) -> str:
        """Add a chunk to the reply and return the text that the chunk adds."""
        self.usage = getattr(chunk, "usage", None) or self.usage
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        self.finish = choice.finish_reason or self.finish
        delta = choice.delta
        for each in getattr(delta, "tool_calls", None) or ():
            self._add_call_delta(each)
        self.reasoning.append(getattr(delta, "reasoning_content", None) or "")
        self.thinking += getattr(delta, "thinking_blocks", None) or ()
        self.signatures += text_signatures(delta)
        text = self._pending_surrogate + (getattr(delta, "content", None) or "")
        # A character may arrive as two surrogates in two chunks.
        self._pending_surrogate = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        self.text.append(repair_surrogates(text.removesuffix(self._pending_surrogate)))
        return self.text[-1]

    def is_complete(self, stream: Any) -> bool:
        """Return True if the provider sent a finish reason. Also discard a usage that litellm added.

        If the provider sends no finish reason or no usage object, litellm adds its own. If no chunk
        in ``stream.chunks`` contains a usage object, ``usage`` was added by litellm and is set to
        None.
        """
        came = getattr(stream, "chunks", None)
        if came is not None:
            if not any(getattr(chunk, "choices", None) for chunk in came):
                raise ValueError("Expected a reply in the response, got an empty list of choices")
            if not any(getattr(chunk, "usage", None) for chunk in came):
                self.usage = None
        names = ("received_finish_reason", "intermittent_finish_reason")
        return any(getattr(stream, name, "?") for name in names)

    def message_data(self) -> dict[str, Any]:
        """Return the content, tool calls and reasoning of the message.

        Missing or repeated ids of tool calls, and missing names, are replaced by generated ones,
        because providers require them.
        """
        taken = {""}
        for call in self.calls:
            if call["id"] in taken:
                call["id"] = f"call_{uuid.uuid4().hex}"
            taken.add(call["id"])
            call["name"] = call["name"] or "unnamed"
            call["arguments"] = repair_surrogates(call["arguments"]) or "{}"
        content = "".join(self.text) or (None if self.calls else "")
        return {
            "content": content,
            "tool_calls": self.calls,
            "reasoning": "".join(self.reasoning),
            "thinking_blocks": join_thinking_blocks(self.thinking),
            "signatures": self.signatures,
        }

    def _add_call_delta(self, delta: Any) -> None:
        function = delta.function
        id, name = delta.id or "", (getattr(function, "name", None) or "")
        arguments = getattr(function, "arguments", None) or ""
        call = self._find_call(getattr(delta, "index", None), id, name, arguments)
        call["id"] = call["id"] or id
        call["name"] = call["name"] or name
        call["arguments"] += arguments
        if signature := call_signature(delta):
            call["signature"] = signature

    def _find_call(self, index: int | None, id: str, name: str, arguments: str) -> dict[str, str]:
        """Return the tool call that a chunk continues; add a new call if the chunk begins one.

        All parameters are fields of the chunk. The index alone does not identify a call, because
        some providers send index 0 or no index for all calls.
        """
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
