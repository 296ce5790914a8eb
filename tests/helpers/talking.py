"""An HTTP server on loopback with OpenAI's chat API that answers and fails by a script.

Use ``with talking(script) as server:`` and a client with ``api_base=server.address``. A script is an
action for all requests, a list of actions (one for each request; the last one is repeated), or a
function that takes the ``Call`` and returns an action. An action is a string or a ``Message`` to answer
with, a ``Said`` with more details, a status code, a ``Refusal``, a ``Fault``, a ``Raw`` body, a ``Slow``
action, or another function. Requests with ``"stream": true`` are answered with server-sent events.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, TypeAlias, Union
from unittest.mock import patch

from streamed import events

from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message
from ctxlab.messages.validation import Violation, find_violations
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.profiles import UNCALIBRATED


class Fault(Enum):
    HANG = "nothing comes, until the client goes away or the server ends"
    CUT = "headers and half of the body come, then the connection ends"
    DROP = "the connection ends before a byte has come"


class Refusal(NamedTuple):
    status: int
    retry_after: str | None = None
    "value of the header Retry-After"
    code: str | None = None
    says: str = "by the script"


class Said(NamedTuple):
    answer: str | Message | None
    finish: str | None = None
    "finish reason; None: stop, length or tool_calls, depending on the answer"
    cached: int = 0
    "number of prompt tokens billed as read from the cache"
    reasoning: int = 0
    "number of completion tokens billed for hidden reasoning, in addition to the answer"
    obeys: bool = True
    "True if the answer is cut at the maximum number of tokens of the request"
    pieces: tuple[str, ...] | int | None = None
    "pieces of a stream, or their number of characters"
    pace: float = 0.0
    "seconds between two pieces of a stream"
    breaks: Fault | Refusal | None = None
    "fault that ends a stream early; a refusal is sent as an event"
    after: int = 0
    "number of pieces before ``breaks``, not counting the first event with the role"


class Raw(NamedTuple):
    body: str
    "sent with status 200 without changes"


class Slow(NamedTuple):
    seconds: float
    then: Action


Action: TypeAlias = Union[
    str, int, Message, Said, Refusal, Fault, Raw, Slow, "Callable[[Call], Action]"
]

NOT_JSON = Raw("<html>Bad gateway</html>")
HALF_JSON = Raw('{"id": "x", "choices": [{"message"')
NO_CHOICES = Raw('{"id": "x", "object": "chat.completion", "model": "m", "choices": []}')
NULL_CONTENT = Said(None)
EMPTY = ""
ENORMOUS = Said("The summary of everything goes on without end. " * 2_000, obeys=False)
REPETITION = "and then and then and then " * 200

_KEYS = {"role", "content", "tool_calls", "tool_call_id", "name"}
_CODES = {
    400: "invalid_request_error",
    401: "invalid_api_key",
    403: "permission_denied",
    404: "model_not_found",
    429: "rate_limit_exceeded",
}


_STREAMED = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Transfer-Encoding": "chunked",
    "Connection": "close",
}


@dataclass
class Call:
    """One request to the server, and the outcome of it."""

    number: int
    "number of the request, from 0 in order of arrival"
    path: str
    key: str | None
    "value of the Authorization header after Bearer"
    body: dict[str, Any]
    messages: tuple[Message, ...] = ()
    texts: tuple[str, ...] = ()
    "texts of a request for embeddings"
    violations: list[Violation] = field(default_factory=list)
    "violations of OpenAI's validity rules"
    prompt: int = 0
    "number of tokens of the request, counted as OpenAI does"
    completion: int = 0
    "number of tokens of the answer; billed even if the connection was cut"
    outcome: str = "pending"
    "pending, answered, failed (error status), or interrupted (hung, cut or not readable)"
    status: int | None = None
    answer: Message | None = None

    @property
    def model(self) -> str:
        return str(self.body.get("model"))

    @property
    def max_tokens(self) -> int | None:
        """Maximum number of tokens of the reply."""
        return self.body.get("max_completion_tokens") or self.body.get("max_tokens")

    @property
    def text(self) -> str:
        """Texts of all messages, joined by line breaks."""
        return "\n".join(m.text for m in self.messages)


class Talker:
    """The running server: its address, its script, and the requests it got."""

    def __init__(self, script: Action | Sequence[Action], window: int | None) -> None:
        self.address = ""
        "URL to pass to clients as ``api_base``"
        self.script = script
        self.window = window
        "maximum number of tokens of prompt and reply; larger requests are refused"
        self.calls: list[Call] = []
        self.most_at_once = 0
        self.leaving = threading.Event()
        self._open = 0
        self._lock = threading.Lock()

    @property
    def attempts(self) -> int:
        return len(self.calls)

    @property
    def answered(self) -> int:
        return self._count("answered")

    @property
    def failed(self) -> int:
        return self._count("failed")

    @property
    def interrupted(self) -> int:
        return self._count("interrupted")

    @property
    def prompt(self) -> int:
        """Number of prompt tokens of answered requests."""
        return sum(c.prompt for c in self.calls if c.outcome == "answered")

    @property
    def completion(self) -> int:
        """Number of completion tokens of answered requests."""
        return sum(c.completion for c in self.calls if c.outcome == "answered")

    @property
    def unseen(self) -> int:
        """Number of tokens billed for interrupted requests, whose answers did not arrive."""
        return sum(c.prompt + c.completion for c in self.calls if c.outcome == "interrupted")

    def _count(self, outcome: str) -> int:
        return sum(c.outcome == outcome for c in self.calls)

    def arrived(self, path: str, key: str | None, body: dict[str, Any]) -> Call:
        with self._lock:
            call = Call(len(self.calls), path, key, body)
            self.calls.append(call)
            self._open += 1
            self.most_at_once = max(self.most_at_once, self._open)
        return call

    def left(self) -> None:
        with self._lock:
            self._open -= 1

    def action(self, call: Call) -> Action:
        script = self.script
        if isinstance(script, list):
            script = script[min(call.number, len(script) - 1)]
        return script  # type: ignore[return-value]


@contextmanager
def talking(
    script: Action | Sequence[Action] = "Understood.", window: int | None = None
) -> Iterator[Talker]:
    """Run a server for the duration of the block; hanging requests end with the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"] or 0)
            body = json.loads(self.rfile.read(size))
            key = (self.headers["Authorization"] or "").removeprefix("Bearer ") or None
            call = talker.arrived(self.path, key, body)
            try:
                refusal = _read(call, talker.window)
                self._act(call, refusal or talker.action(call))
            finally:
                talker.left()

        def _act(self, call: Call, action: Action) -> None:
            while isinstance(action, Slow) or callable(action):
                if isinstance(action, Slow):
                    time.sleep(action.seconds)
                    action = action.then
                else:
                    action = action(call)
            if isinstance(action, int):
                action = Refusal(action)
            if isinstance(action, Refusal):
                return self._refuse(call, action)
            if isinstance(action, Raw):
                call.outcome = "interrupted"
                return self._send(call, 200, action.body.encode())
            if call.texts:
                said = _embedded(call)
            else:
                said = _said(call, action if not isinstance(action, Fault) else "Too late.")
            if call.body.get("stream"):
                return self._stream(call, action, said)
            blob = json.dumps(said).encode()
            if not isinstance(action, Fault):
                call.outcome = "answered"
                return self._send(call, 200, blob)
            call.outcome = "interrupted"
            self.close_connection = True
            if action is Fault.HANG:
                self._hang()
            elif action is Fault.CUT:
                self._send(call, 200, blob, blob[: len(blob) // 2])
            return None

        def _stream(self, call: Call, action: Action, said: dict[str, Any]) -> None:
            call.outcome, self.close_connection = "interrupted", True
            if action in (Fault.HANG, Fault.DROP):
                return self._hang() if action is Fault.HANG else None
            how = action if isinstance(action, Said) else Said(None)
            usage = bool((call.body.get("stream_options") or {}).get("include_usage"))
            data = list(events(said, how.pieces, usage))
            stop = len(data) // 2 if action is Fault.CUT else 1 + how.after if how.breaks else None
            call.status = 200
            self.send_response(200)
            for name, value in _STREAMED.items():
                self.send_header(name, value)
            self.end_headers()
            for number, each in enumerate(data[:stop]):
                if number and how.pace:
                    time.sleep(how.pace)
                if number == len(data) - 1:
                    call.outcome = "answered"
                self._event(each)
            if stop is None:
                self.wfile.write(b"0\r\n\r\n")
            elif how.breaks is Fault.HANG:
                self._hang()
            elif isinstance(how.breaks, Refusal):
                self._event(json.dumps({"error": _error(how.breaks)}))
            return None

        def _event(self, data: str) -> None:
            event = f"data: {data}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.flush()

        def _hang(self) -> None:
            while not talker.leaving.wait(0.01) and not _gone(self.connection):
                pass

        def _refuse(self, call: Call, refusal: Refusal) -> None:
            call.outcome = "failed"
            headers = {"Retry-After": refusal.retry_after} if refusal.retry_after else {}
            self._send(
                call, refusal.status, json.dumps({"error": _error(refusal)}).encode(), None, headers
            )

        def _send(
            self,
            call: Call,
            status: int,
            whole: bytes,
            sent: bytes | None = None,
            headers: Any = (),
        ) -> None:
            call.status = status
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(whole)))
            # Otherwise clients keep sockets open, and litellm does not close all of them.
            self.send_header("Connection", "close")
            for name, value in dict(headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(whole if sent is None else sent)
            self.wfile.flush()

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Http(ThreadingHTTPServer):
        request_queue_size = 64

        def process_request(self, request: Any, client_address: Any) -> None:
            connections.append(request)
            super().process_request(request, client_address)

        def handle_error(self, request: Any, client_address: Any) -> None:
            if not isinstance(sys.exc_info()[1], OSError):
                super().handle_error(request, client_address)

    connections: list[socket.socket] = []
    talker = Talker(script, window)
    http = Http(("127.0.0.1", 0), Handler)
    talker.address = f"http://127.0.0.1:{http.server_port}/v1"
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        with (
            patch.dict(os.environ, NO_PROXY="127.0.0.1", no_proxy="127.0.0.1"),
            warnings.catch_warnings(),
        ):
            # litellm reads all attributes of a chunk, including those that pydantic deprecates.
            warnings.filterwarnings("ignore", "Accessing the 'model_", DeprecationWarning)
            yield talker
    finally:
        talker.leaving.set()
        http.shutdown()
        http.server_close()
        thread.join()
        for connection in connections:
            with suppress(OSError):  # the client may have closed it
                connection.shutdown(socket.SHUT_RDWR)


@cache
def _counter(model: str) -> TokenCounter:
    return TokenCounter(model, UNCALIBRATED)


def _read(call: Call, window: int | None) -> Refusal | None:
    """Parse a request and return the refusal if a provider would reject it; None otherwise."""
    body, counter = call.body, _counter(call.model)
    if call.path == "/v1/embeddings":
        given = body.get("input")
        call.texts = (given,) if isinstance(given, str) else tuple(given or ())
        call.prompt = sum(map(counter.count_text, call.texts))
        return None if call.texts else Refusal(400, says="input is empty")
    if call.path != "/v1/chat/completions":
        return Refusal(404, says=f"no such address: {call.path}")
    strange = {key for message in body["messages"] for key in message} - _KEYS
    if strange:
        return Refusal(400, says=f"unknown keys in messages: {sorted(strange)}")
    call.messages = tuple(map(message_from_dict, body["messages"]))
    call.violations = find_violations(call.messages, "openai")
    call.prompt = counter.count_request(call.messages, body.get("tools") or ())
    if call.violations:
        return Refusal(400, says=f"invalid messages: {call.violations}")
    wanted = call.prompt + (call.max_tokens or 0)
    if window is not None and wanted > window:
        says = f"This model's maximum context length is {window} tokens. You requested {wanted}."
        return Refusal(400, code="context_length_exceeded", says=says)
    return None


def _error(refusal: Refusal) -> dict[str, Any]:
    code = refusal.code or _CODES.get(refusal.status, "server_error")
    return {"message": refusal.says, "type": code, "param": None, "code": code}


def _said(call: Call, action: Any) -> dict[str, Any]:
    said = action if isinstance(action, Said) else Said(action)
    answer = said.answer
    message = answer if isinstance(answer, Message) else Message("assistant", answer)
    counter, finish = _counter(call.model), "tool_calls" if message.tool_calls else "stop"
    allowed = call.max_tokens
    if isinstance(message.content, str) and allowed and said.obeys:
        tokens = counter._encoding.encode_ordinary(message.content)
        if len(tokens) > allowed:
            message = message.replace(content=counter._encoding.decode(tokens[:allowed]))
            finish = "length"
    call.answer = message
    calls = sum(
        counter.count_text(c.name) + counter.count_text(c.arguments) for c in message.tool_calls
    )
    call.completion = counter.count_text(message.text) + calls + said.reasoning
    wire = message.to_dict()
    if message.reasoning:
        wire["reasoning_content"] = message.reasoning
    usage: dict[str, Any] = {
        "prompt_tokens": call.prompt,
        "completion_tokens": call.completion,
        "total_tokens": call.prompt + call.completion,
        "prompt_tokens_details": {"cached_tokens": said.cached},
        "completion_tokens_details": {"reasoning_tokens": said.reasoning},
    }
    return {
        "id": f"chatcmpl-{call.number}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": call.model,
        "choices": [{"index": 0, "message": wire, "finish_reason": said.finish or finish}],
        "usage": usage,
    }


def _embedded(call: Call) -> dict[str, Any]:
    vectors = [[len(text) / 100, text.count(" ") / 10, 1.0] for text in call.texts]
    packed = call.body.get("encoding_format") == "base64"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": base64.b64encode(struct.pack("<3f", *v)).decode() if packed else v,
        }
        for index, v in enumerate(vectors)
    ]
    usage = {"prompt_tokens": call.prompt, "total_tokens": call.prompt}
    return {"object": "list", "model": call.model, "data": data, "usage": usage}


def _gone(connection: socket.socket) -> bool:
    """Return True if the client has closed the connection."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
