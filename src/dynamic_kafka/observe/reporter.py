"""Sends the reports of a process to the metrics server, in the background.

One daemon thread for each reporter, one connection that is kept. A report is made in the thread when it is due, and is
everything that the reporter knows. If it cannot be sent it is dropped and counted, and another one is made that says it all.
So neither Spark's calls nor tasks wait for anything here, apart from `first_address`.

Reports are a second apart, and further if they are large: making and sending them takes at most 1 % of a core. When reports
cannot be sent, the next ones follow after 2, 4, 8, 16 and 32 s. After five in a row the reporter makes another one only if
there is something new: a worker process may outlive the server, and another process may listen at its port by then.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from dynamic_kafka.observe.place import Address

__all__ = ["Reporter", "new_name"]

_log = logging.getLogger(__name__)

_INTERVAL_S = 1.0
_SHARE = 0.01
_TIMEOUT_S = 5.0
_MOST_FAILURES = 5
_LAST_S = 1.0


def new_name() -> str:
    """Return a random name for a reporter."""
    return uuid.uuid4().hex[:16]


class Reporter:
    """Sends reports. Created without I/O; the thread starts with the first `wake`, or with `start`.

    Args:
        address: Returns the address of the server, or raises; called in the thread before each connection.
        make: Makes the report, without `sequence` and `dropped`. It gets whether all has to be said: the server may not
            have the last report. It returns None if there is nothing to report.
        interval_s: The time between two reports when nobody wakes the reporter; None if only then.
    """

    def __init__(
        self,
        address: Callable[[], Address],
        make: Callable[[bool], dict[str, Any] | None],
        *,
        interval_s: float | None = None,
    ) -> None:
        self._find_address, self._make, self._interval_s = address, make, interval_s
        self._changed = threading.Condition()
        self._woken = self._closed = False
        self._thread: threading.Thread | None = None
        self._connection: socket.socket | None = None
        self._looked = threading.Event()
        self._sequence = time.time_ns() // 1000  # also higher than those of a process before with the same name
        self._has_all = False
        self._failures = 0
        self.address: Address | None = None
        self.dropped = 0

    def start(self) -> None:
        """Have reports sent from now on."""
        if self._thread is None:
            self._woken = True
            self._thread = threading.Thread(target=self._run, name="dynamic-kafka-metrics", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Have a report sent as soon as the last one is a second ago."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()
        self.start()

    def first_address(self, timeout_s: float) -> Address | None:
        """Return the address of the server. The first call waits until it is found, or cannot be found.

        Args:
            timeout_s: The longest wait. Nobody waits after it again.
        """
        self._looked.wait(timeout_s)
        self._looked.set()
        return self.address

    def close(self) -> None:
        """Send a last report, and end the thread. Waits for up to a second."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_LAST_S)

    def _run(self) -> None:
        rest_s = 0.0
        while True:
            with self._changed:
                if not self._closed:
                    self._changed.wait_for(lambda: self._closed, rest_s)
                    self._changed.wait_for(
                        lambda: self._closed or self._woken,
                        None if self._interval_s is None else max(0.0, self._interval_s - rest_s),
                    )
                self._woken, closed = False, self._closed
            began = time.thread_time()
            self._report()
            if closed:
                break
            rest_s = max(_INTERVAL_S * 2**self._failures, (time.thread_time() - began) / _SHARE)
        self._disconnect()

    def _connect(self) -> socket.socket:
        """Return a connection to the server of now."""
        try:
            self.address = self._find_address()
        except Exception as error:
            _log.log(logging.DEBUG if self._failures else logging.WARNING, "%s", error)
            raise
        finally:
            self._looked.set()
        return socket.create_connection((self.address.host, self.address.port), _TIMEOUT_S)

    def _report(self) -> None:
        try:
            report = self._make(not self._has_all)
            if report is None:
                return
            self._has_all = self._send(report)
            if not self._has_all and (report := self._make(True)) is not None:  # the server asks for all
                self._has_all = self._send(report)
            self._failures = 0
        except Exception:  # noqa: BLE001  whatever it is, the query goes on
            self.dropped += 1
            self._failures = min(self._failures + 1, _MOST_FAILURES)
            self._has_all = False
            if self._failures < _MOST_FAILURES:
                self._woken = True
            self._disconnect()
            _log.debug("A report could not be sent (%d so far)", self.dropped, exc_info=True)

    def _send(self, report: dict[str, Any]) -> bool:
        """Send a report, and return whether the server has all of it now."""
        is_kept = self._connection is not None
        if self._connection is None:
            self._connection = self._connect()
        assert self.address is not None
        self._sequence += 1
        body = json.dumps({**report, "sequence": self._sequence, "dropped": self.dropped}).encode()
        try:
            status = _post(self._connection, self.address, body)
        except (OSError, ValueError):
            if not is_kept:
                raise
            self._disconnect()  # the server has closed a connection that was not used for long
            return self._send(report)
        if status not in (HTTPStatus.OK, HTTPStatus.CONFLICT):
            raise ConnectionError(f"The metrics server answered {status}")
        return status == HTTPStatus.OK

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _post(connection: socket.socket, address: Address, body: bytes) -> int:
    """Post a report, and return the status of the answer. By hand, because `http.client` takes 20 ms of a new process.

    Raises:
        OSError: If there is no answer.
        ValueError: If the answer is not HTTP.
    """
    lines = (
        "POST /report HTTP/1.1",
        f"Host: {address.host}",
        f"Authorization: Bearer {address.token}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    connection.sendall("\r\n".join((*lines, "", "")).encode() + body)
    with connection.makefile("rb") as answer:
        first = answer.readline()
        if not first:
            raise ConnectionError("The metrics server has closed the connection")
        length = 0
        while line := answer.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        answer.read(length)
    _, status, *_ = first.split()
    return int(status)
