"""An HTTP server in the process of a test, with the test's own answers."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

__all__ = ["Answer", "Request", "WebServer", "as_json"]


class Request(NamedTuple):
    """What the server was asked; the names of headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Answer = tuple[int, Mapping[str, str], bytes]
"""The status, the headers and the body. A header without a value is left out, also `Content-Length`."""


def as_json(status: int, content: Any) -> Answer:
    """An answer in JSON."""
    return status, {"Content-Type": "application/json"}, json.dumps(content).encode()


class WebServer:
    """Listens on 127.0.0.1 until the end of the `with` block.

    Args:
        answer: The answer to a request; it may be replaced at any time.

    Attributes:
        reason: The words after the status; None for the usual ones.
        requests: All requests.
        url: The address, without a path.
    """

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self.answer = answer
        self.reason: str | None = None
        self.requests: list[Request] = []
        web = self

        class Handler(BaseHTTPRequestHandler):
            def handle_one(self) -> None:
                headers = {key.lower(): value for key, value in self.headers.items()}
                request = Request(
                    self.command, self.path, headers, self.rfile.read(int(headers.get("content-length", 0)))
                )
                web.requests.append(request)
                status, fields, body = web.answer(request)
                self.send_response(status, web.reason)
                for key, value in {"Content-Length": str(len(body)), **fields}.items():
                    if value:
                        self.send_header(key, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = handle_one  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Nothing on standard error."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self._thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def secure(self, context: ssl.SSLContext) -> None:
        """Speak https from now on."""
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.url = self.url.replace("http:", "https:")

    def __exit__(self, *_: object) -> None:
        self.http.shutdown()
        self.http.server_close()
        self._thread.join()
