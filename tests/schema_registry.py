"""One Apicurio Registry as a child process: a schema registry with Confluent's API, in memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from importlib import resources
from pathlib import Path
from typing import IO, Self

from dynamic_kafka.testing.configuration import HOST, free_ports
from dynamic_kafka.testing.jars import BrokerError, cached, find_java, run_maven
from tests.web import Answer, Request, WebServer

__all__ = ["APICURIO_VERSION", "Proxy", "SchemaRegistry", "forward"]

APICURIO_VERSION = "2.6.13.Final"

_ARTIFACT = f"io.apicurio:apicurio-registry-app:{APICURIO_VERSION}:zip:all"
_MAVEN_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_API = "/apis/ccompat/v7"
_START_TIMEOUT_S = 120
_STOP_TIMEOUT_S = 20
_PORT_ATTEMPTS = 5
_LOG_TAIL_BYTES = 4000


class SchemaRegistry:
    """A schema registry in a child process that never outlives this one; its schemas are gone when it is closed.

    Needs Java 17 or newer (`JAVA_HOME` or `PATH`), and Maven once, to fetch the registry. It is up in about 7 s. Each
    subject starts without a compatibility level; set one with `PUT <url>/config/<subject>`.

    Example:
        >>> with SchemaRegistry() as registry:  # doctest: +SKIP
        ...     urllib.request.urlopen(f"{registry.url}/subjects").read()
        b'[]'
    """

    def __init__(self) -> None:
        self._port = 0
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._java_pid = 0

    def __repr__(self) -> str:
        return f"SchemaRegistry({self.url if self._watchdog is not None else 'not running'})"

    def __enter__(self) -> Self:
        application = _application()
        for port, attempts_left in zip(free_ports(), reversed(range(_PORT_ATTEMPTS)), strict=False):
            try:
                self._launch(application, port)
            except BrokerError as error:
                # Another process took the port between our check and the registry's start.
                if attempts_left and "already in use" in str(error):
                    continue
                raise
            break
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The base of Confluent's API, as clients take it."""
        return f"http://{HOST}:{self._port}{_API}"

    def close(self) -> None:
        """End the process."""
        if self._watchdog is None:
            return
        if self._watchdog.poll() is None:
            os.kill(self._java_pid, signal.SIGKILL)  # there is nothing to save
        self._watchdog.wait(_STOP_TIMEOUT_S)
        for pipe in (self._watchdog.stdin, self._watchdog.stdout, self._log):
            assert pipe is not None
            pipe.close()
        self._watchdog = self._log = None

    def _launch(self, application: Path, port: int) -> None:
        # Java's start is most of a test registry's life: the quick compiler and the smallest collector.
        command = [find_java(), "-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"-Dquarkus.http.host={HOST}", f"-Dquarkus.http.port={port}", "-jar", str(application)]
        watchdog = [sys.executable, "-I", "-S", str(resources.files("dynamic_kafka.testing") / "watchdog.py")]
        self._port = port
        self._log = tempfile.TemporaryFile(prefix="schema-registry-")  # noqa: SIM115  (closed by close)
        self._watchdog = subprocess.Popen(
            [*watchdog, str(os.getpid()), "", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            process_group=0,  # Ctrl-C in a terminal is for the test run
        )
        try:
            assert self._watchdog.stdout is not None
            self._java_pid = int(self._watchdog.stdout.readline() or 0)
            self._await_answer()
        except BaseException:
            self.close()
            raise

    def _await_answer(self) -> None:
        assert self._watchdog is not None
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not _answers(f"{self.url}/subjects"):
            if self._watchdog.poll() is not None:
                raise BrokerError(f"The schema registry on port {self._port} ended while it was starting{self._tail()}")
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"The schema registry on port {self._port} did not answer within {_START_TIMEOUT_S} s{self._tail()}"
                )
            time.sleep(0.1)

    def _tail(self) -> str:
        assert self._log is not None
        self._log.seek(0)
        return f"; the end of its log:\n{self._log.read()[-_LOG_TAIL_BYTES:].decode(errors='replace')}"


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _application() -> Path:
    """The registry's jar, with its libraries beside it; fetched if this user has never had it."""
    folder = cached(f"apicurio-{APICURIO_VERSION}", _fetch)
    return folder / f"apicurio-registry-app-{APICURIO_VERSION}-runner.jar"


def _fetch(scratch: Path) -> Path:
    run_maven(scratch, [_MAVEN_GOAL, f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={scratch}"], _ARTIFACT)
    unpacked = scratch / "unpacked"
    with zipfile.ZipFile(next(scratch.glob("*.zip"))) as archive:
        archive.extractall(unpacked)  # Maven has checked its sum
    return unpacked


class Proxy(WebServer):
    """An HTTP server before the registry: counts requests, wants a login, fails on demand."""

    def __init__(self, target: str) -> None:
        super().__init__(self._answer)
        self.authorization: str | None = None
        self.failures: list[int] = []
        self._target = target

    @property
    def calls(self) -> list[str]:
        """Method and path of all requests."""
        return [f"{request.method} {request.path}" for request in self.requests]

    def _answer(self, request: Request) -> Answer:
        if self.authorization is not None and request.headers.get("authorization") != self.authorization:
            return 401, {}, b'{"error_code": 40101, "message": "who are you"}'
        if self.failures:
            return self.failures.pop(0), {}, b"no JSON"
        status, body = forward(self._target + request.path, request.method, request.body)
        return status, {}, body


def forward(url: str, method: str, body: bytes) -> tuple[int, bytes]:
    """The registry's own answer."""
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(url, body or None, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
