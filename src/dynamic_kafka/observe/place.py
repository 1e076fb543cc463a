"""Where the metrics server of this driver is: a file in a private directory, made by the server, and found by our processes.

All processes that report are descendants of the driver, so they agree on which process the driver is: the first ancestor
that is not a Python process of pyspark. Its id and its start time name the file. The file holds the address of the server,
and the token that lets a process report.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.filesystems import make_private, own_folder

if TYPE_CHECKING:
    from dynamic_kafka.observe.settings import MetricsSettings

__all__ = [
    "Address",
    "Process",
    "driver",
    "find_or_start",
    "process",
    "reach_of",
    "read_place",
    "write_place",
]

_log = logging.getLogger(__name__)

_START_S = 15.0
_WAIT_S = 0.05
_OUTSIDE = {"": "192.0.2.1", "0.0.0.0": "192.0.2.1", "::": "2001:db8::1"}  # noqa: S104  addresses of documents
_started: list[subprocess.Popen[bytes]] = []


class Address(NamedTuple):
    """The address of a metrics server, for those that report. Picklable; it travels in tasks.

    Attributes:
        host: The host.
        port: The port.
        token: The secret that lets a process report.
    """

    host: str
    port: int
    token: str

    def __repr__(self) -> str:
        return f"Address({self.url})"

    @property
    def url(self) -> str:
        """Return the address of the page."""
        return f"http://[{self.host}]:{self.port}/" if ":" in self.host else f"http://{self.host}:{self.port}/"


class Process(NamedTuple):
    """A process: its id, and its start, which tells it from a later one with the same id."""

    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        """Return whether it is still running."""
        found = _look(self.pid)
        return found is not None and found[1] == self.started


def process() -> Process:
    """Return this process."""
    found = _look(os.getpid())
    return Process(os.getpid(), found[1] if found is not None else "")


def driver() -> Process:
    """Return the process of the driver: the first of this process and its ancestors that is not a Python of pyspark."""
    pid = os.getpid()
    while True:
        found = _look(pid)
        if found is None:
            return Process(os.getpid(), "")
        parent, started, command = found
        if not any(word.startswith("pyspark.") for word in command[1:4]) or parent <= 1:
            return Process(pid, started)
        pid = parent


def find_or_start(settings: MetricsSettings) -> Address:
    """Return the address of this driver's server. If there is none, start it with these settings.

    Raises:
        ConfigurationError: If it cannot be started.
    """
    try:
        return _find_or_start(settings)
    except OSError as error:
        raise ConfigurationError(
            f"The metrics server cannot be started: {error.strerror} ({error.filename or 'temporary directory'}). The query "
            "runs without metrics; make room there, remove what is in the way, or set TMPDIR to another directory"
        ) from error


def _find_or_start(settings: MetricsSettings) -> Address:
    of = driver()
    directory = own_folder()
    make_private(directory)
    path = directory / f"{of.pid}-{of.started}.json"
    with _locked(path.with_suffix(".lock")):
        found = read_place(path)
        if found is not None and Process(found["pid"], found["started"]).is_alive:
            if settings.port not in (0, found["port"]):
                _log.warning(
                    "metrics.port=%d has no effect: the metrics of this driver are at port %d, as its first query said",
                    settings.port,
                    found["port"],
                )
            return Address(found["reach"], found["port"], found["token"])
        path.unlink(missing_ok=True)
        server = _start(settings, of, path)
        deadline = time.monotonic() + _START_S
        while (found := read_place(path)) is None:
            if server.poll() is not None:
                raise ConfigurationError(
                    f"The metrics server has ended at once (exit code {server.returncode}). The query runs without metrics; "
                    f"check that {directory} can be written to and has room"
                )
            if time.monotonic() > deadline:
                raise ConfigurationError(
                    f"The metrics server did not start within {_START_S:.0f} s. The query runs without metrics"
                )
            time.sleep(_WAIT_S)
    if "error" in found:
        path.unlink(missing_ok=True)
        raise ConfigurationError(
            f"The metrics server cannot listen at {settings.host}:{settings.port} ({found['error']}). The query runs "
            "without metrics; give metrics.port another value (0 for any), or correct metrics.host"
        )
    address = Address(found["reach"], found["port"], found["token"])
    _log.info("Metrics and status of the queries of this driver: %s", address.url)
    return address


def reach_of(host: str) -> str:
    """Return the address at which others reach a server of this machine that listens at `host`.

    For a host that stands for all addresses, it is the one of the interface that leads to other networks. The machine's name
    would be resolved elsewhere, where it may lead nowhere, or to the machine that asks.
    """
    if host not in _OUTSIDE:
        return host
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_OUTSIDE[host], 9))  # chooses the interface, and sends nothing
        except OSError:  # there is no other network
            return socket.gethostname()
        return str(probe.getsockname()[0])


def read_place(path: Path) -> dict[str, Any] | None:
    """Return what the server has written to its file; None if there is no file."""
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_place(path: Path, found: Mapping[str, int | str]) -> None:
    """Write the file at once, readable for this user only."""
    new = path.with_suffix(f".{os.getpid()}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
            json.dump(found, file)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)  # a full disk
        raise


def _start(settings: MetricsSettings, of: Process, path: Path) -> subprocess.Popen[bytes]:
    arguments = [settings.host, str(settings.port), settings.otlp_endpoint, str(of.pid), of.started, str(path)]
    process = subprocess.Popen(  # noqa: S603  our own module
        [sys.executable, "-m", "dynamic_kafka.observe", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # it outlives the process that starts it
        cwd=path.parent,
    )
    _started.append(process)  # nobody waits for it, and an object that is dropped while it runs gives a warning
    return process


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _look(pid: int) -> tuple[int, str, list[str]] | None:
    """Return the parent, the start and the command of a process; None if there is none."""
    try:
        of = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return _ask_ps(pid) if not Path("/proc/self/stat").exists() else None
    fields = of.rpartition(")")[2].split()  # the name before it may contain anything
    if fields[0] in "ZX":
        return None
    return int(fields[1]), fields[19], command


def _ask_ps(pid: int) -> tuple[int, str, list[str]] | None:
    """Return the same where there is no /proc."""
    done = subprocess.run(  # noqa: S603
        ["/bin/ps", "-o", "ppid=,lstart=,command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    words = done.stdout.split()
    if len(words) < 7:
        return None
    return int(words[0]), "-".join(words[1:6]).replace(":", "."), words[6:]
