"""An HTTP server of files on loopback that records its requests and can break off answers."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Asked(NamedTuple):
    path: str
    range: str | None
    sent: int
    "number of bytes sent of the body"


class Server:
    """Files by path, and settings that are read at each request."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.files: dict[str, bytes] = {}
        self.asked: list[Asked] = []
        self.ranges = True
        self.cut: int | None = None
        "number of bytes of a body after which the connection is closed; None to send the whole body"
        self.hold = threading.Event()
        "the connection of a cut body is closed when this event is set"
        self.hold.set()


@contextmanager
def serving() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = server.files.get(self.path)
            if body is None:
                server.asked.append(Asked(self.path, self.headers["Range"], 0))
                self.send_error(404)
                return
            wanted = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "")
            start = int(wanted[1]) if wanted and server.ranges else 0
            if start >= len(body):
                server.asked.append(Asked(self.path, self.headers["Range"], 0))
                self.send_error(416)
                return
            rest = body[start:]
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            sent = rest[: server.cut]
            server.asked.append(Asked(self.path, self.headers["Range"], len(sent)))
            self.wfile.write(sent)
            self.wfile.flush()
            if len(sent) < len(rest):
                server.hold.wait(60)
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = Server(http.server_port)
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.hold.set()
        http.shutdown()
        http.server_close()
        thread.join()
