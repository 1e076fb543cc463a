"""The metrics server of a driver: it takes reports, and serves the model of all queries.

====================  ================================================================================================
`GET /`               the page, for people
`GET /status.json`    the model (`status`): `?partitions=all`, or `?cluster=NAME`, `?cluster=NAME&topic=NAME` for details
`GET /metrics`        the series, for Prometheus; needs the extra `metrics`
`POST /report`        a report of one of our processes, which knows the token
====================  ================================================================================================

It is a process of its own: serving pages must not take time from the reader process, and the processes of a sink may end
with each batch. It ends when the driver does. Everything but `/report` is read-only, and needs no token: who can reach the
port can read. So it listens at the loopback interface unless told otherwise.

Guests are connections that have not shown the token. There are at most 200: a further one takes the place of the one that
was silent for longest. The head of a request has to be complete after 10 s, however often a byte of it arrives.
"""

from __future__ import annotations

import hmac
import json
import logging
import math
import re
import resource
import secrets
import socket
import threading
import time
from base64 import b64encode
from contextlib import suppress
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from urllib.parse import parse_qs, urlsplit

from dynamic_kafka import __version__
from dynamic_kafka.observe.export import exposition
from dynamic_kafka.observe.model import HISTORY_INTERVAL_MS, Model
from dynamic_kafka.observe.series import Samples, samples
from dynamic_kafka.observe.summary import Detail

__all__ = ["MetricsServer", "page"]

_log = logging.getLogger(__name__)

_LARGEST_REPORT = 64 * 2**20
_IDLE_S = 120.0
_HEAD_S = 10.0
_MOST_GUESTS = 200
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def _now_ms() -> int:
    return int(time.time() * 1000)


class Page(NamedTuple):
    """The status page, which asks for `/status.json` again and again, and the rules that a browser gets with it.

    Attributes:
        content: The HTML.
        policy: The Content-Security-Policy. The browser runs the page's own script and no other, asks this server and no
            other, and refuses to make HTML of text.
    """

    content: str
    policy: str


@cache
def page() -> Page:
    """Return the status page."""
    content = Path(__file__).with_name("page.html").read_text(encoding="utf-8")

    def allowed(tag: str) -> str:
        """Return the hashes of the page's elements of this kind."""
        texts = re.findall(rf"<{tag}>(.*?)</{tag}>", content, re.DOTALL)
        return " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in texts)

    rules = {
        "default-src": "'none'",
        "script-src": allowed("script"),
        "style-src": allowed("style"),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
    }
    return Page(content, "; ".join(f"{name} {value}" for name, value in rules.items()))


class _Guest(NamedTuple):
    """A connection without the token: when it last did something, and when the head of its request has to be complete."""

    seen: float
    deadline: float


class MetricsServer(ThreadingHTTPServer):
    """The server. It listens as soon as it is made; `serve_forever` answers.

    Args:
        host: Where it listens.
        port: The port; 0 for any.

    Attributes:
        token: The secret that lets a process report.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128  # all workers come at once after a restart

    def __init__(self, host: str, port: int) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        self.token = secrets.token_urlsafe(32)
        self._model = Model(_now_ms(), __version__)
        self._lock = threading.Lock()
        self.only_loopback = host in _LOOPBACK
        self._guests: dict[Any, _Guest] = {}
        self._most_guests = min(_MOST_GUESTS, max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
        super().__init__((host, port), _Handler)
        threading.Thread(target=self._tick, name="dynamic-kafka-metrics-tick", daemon=True).start()

    @property
    def port(self) -> int:
        """Return the port."""
        return int(self.server_address[1])

    def take(self, report: Any) -> bool:
        """Take a report; False if the reporter has to send all of it."""
        with self._lock:
            return self._model.report(report, _now_ms())

    def gone(self, reporter: str) -> None:
        """Note that a process has ended."""
        with self._lock:
            self._model.gone(reporter, _now_ms())

    def status(self, detail: Detail | None = None) -> Any:
        """Return the status of all queries."""
        with self._lock:
            return self._model.status(_now_ms(), detail)

    def samples(self) -> Samples:
        """Return the samples of all series."""
        return samples(self.status())

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take a connection. It is a guest until it shows the token."""
        with self._lock:
            if len(self._guests) >= self._most_guests:
                self._cut(min(self._guests, key=lambda guest: self._guests[guest].seen))
            now = time.monotonic()
            self._guests[request] = _Guest(now, now + _HEAD_S)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._guests.pop(request, None)
        super().shutdown_request(request)

    def begins(self, request: Any) -> None:
        """Note that a request begins to arrive: its head has to be complete in time."""
        self._note(request, time.monotonic() + _HEAD_S)

    def is_complete(self, request: Any) -> None:
        """Note that the head of a request is complete."""
        self._note(request, math.inf)

    def trusts(self, request: Any) -> None:
        """Note that a connection knows the token, and is no guest any more."""
        with self._lock:
            self._guests.pop(request, None)

    def _note(self, request: Any, deadline: float) -> None:
        with self._lock:
            if request in self._guests:
                self._guests[request] = _Guest(time.monotonic(), deadline)

    def _cut(self, request: Any) -> None:
        """End a guest's connection; its thread finds the end of the data. Call with the lock."""
        del self._guests[request]
        with suppress(OSError):  # it is closed
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that go away."""
        del request
        _log.debug("A request from %s failed", client_address, exc_info=True)

    def _tick(self) -> None:
        while True:
            time.sleep(HISTORY_INTERVAL_MS / 1000)
            with self._lock:
                self._model.tick(_now_ms())
                now = time.monotonic()
                for request in [request for request, guest in self._guests.items() if guest.deadline < now]:
                    self._cut(request)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: MetricsServer
    server_version = "dynamic-kafka"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout: ClassVar[float] = _IDLE_S
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self._reporters: set[str] = set()

    def handle_one_request(self) -> None:
        """Wait for a request, and answer it."""
        if self.rfile.peek(1):  # type: ignore[attr-defined]  # it is a BufferedReader
            self.server.begins(self.request)
        super().handle_one_request()

    def parse_request(self) -> bool:
        """Read the head of a request."""
        is_right = super().parse_request()
        self.server.is_complete(self.request)
        return is_right

    def finish(self) -> None:
        for reporter in self._reporters:
            self.server.gone(reporter)
        super().finish()

    def do_GET(self) -> None:
        """Answer with a page, the status or the series."""
        if self.server.only_loopback and not _is_loopback(self.headers.get("Host", "")):
            # A page of another site in the user's browser may have been led here by its name (DNS rebinding).
            self._answer(HTTPStatus.FORBIDDEN, "This server is for this machine: use http://localhost\n")
            return
        url = urlsplit(self.path)
        match url.path:
            case "/":
                found = page()
                self._send(HTTPStatus.OK, found.content.encode(), "text/html; charset=utf-8", found.policy)
            case "/status.json":
                status = self.server.status(_detail(parse_qs(url.query)))
                self._answer(HTTPStatus.OK, json.dumps(status), "application/json")
            case "/metrics":
                self._metrics()
            case _:
                self._answer(HTTPStatus.NOT_FOUND, "There are /, /status.json and /metrics\n")

    def do_POST(self) -> None:
        """Take a report."""
        length = int(self.headers.get("Content-Length") or -1)
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.path != "/report" or not hmac.compare_digest(given.encode(), self.server.token.encode()):
            self.close_connection = True
            self._answer(HTTPStatus.FORBIDDEN, "Reports need the token of this server\n")
            return
        if not 0 < length <= _LARGEST_REPORT:
            self.close_connection = True
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The report is too large\n")
            return
        self.server.trusts(self.request)
        report = json.loads(self.rfile.read(length))
        accepted = self.server.take(report)
        if report["kind"] == "source":
            self._reporters.add(report["reporter"])
        self._answer(HTTPStatus.OK if accepted else HTTPStatus.CONFLICT, "")

    def _metrics(self) -> None:
        try:
            content, content_type = exposition(self.server.samples(), self.headers.get("Accept", ""))
        except ImportError:
            text = "/metrics needs prometheus-client: pip install 'pyspark-dynamic-kafka[metrics]' on the driver\n"
            self._answer(HTTPStatus.NOT_IMPLEMENTED, text)
            return
        self._send(HTTPStatus.OK, content, content_type)

    def _answer(self, status: HTTPStatus, text: str, content_type: str = "text/plain") -> None:
        self._send(status, text.encode(), f"{content_type}; charset=utf-8")

    def _send(self, status: HTTPStatus, content: bytes, content_type: str, policy: str = "default-src 'none'") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log a request as a debug line."""
        _log.debug(format, *args)


def _is_loopback(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    return name.strip("[]").lower() in _LOOPBACK


def _detail(query: dict[str, list[str]]) -> Detail:
    """Return which partitions the request asks for."""
    if query.get("partitions") == ["all"]:
        return lambda _cluster, _topic: True
    clusters, topics = query.get("cluster"), query.get("topic")
    if clusters is None:
        return lambda _cluster, _topic: False
    return lambda cluster, topic: cluster in clusters and (topics is None or topic in topics)
