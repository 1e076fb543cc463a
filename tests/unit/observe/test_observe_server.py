"""The metrics server: who finds it, who may report, what it serves, and when it ends. Real processes and sockets."""

from __future__ import annotations

import functools
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from tests.observed import cluster, serving, source, topic, worker

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.observe import parts
from dynamic_kafka.observe import place as place_module
from dynamic_kafka.observe import reporter as reporters
from dynamic_kafka.observe.model import Model
from dynamic_kafka.observe.place import Address, driver, find_or_start, reach_of
from dynamic_kafka.observe.reporter import Reporter
from dynamic_kafka.observe.reports import ClusterReport, TopicReport
from dynamic_kafka.observe.server import MetricsServer
from dynamic_kafka.observe.settings import MetricsSettings
from dynamic_kafka.testing import wait_until

ANY = MetricsSettings("127.0.0.1", 0)
eventually = partial(wait_until, timeout_s=10, what="what was reported")


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    """A server in this process."""
    with serving() as made:
        yield made


def address_of(server: MetricsServer) -> Address:
    """How reporters reach it."""
    return Address("127.0.0.1", server.port, server.token)


def ask(server: MetricsServer, path: str, **headers: str) -> tuple[int, str]:
    """The status and the text of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def queries(server: MetricsServer, query: str = "") -> Any:
    """The queries that the server shows."""
    return json.loads(ask(server, f"/status.json{query}")[1])["queries"]


def report_of(*found: Any, **changes: Any) -> dict[str, Any]:
    """A report of a source, as `Reporter` wants it made."""
    return dict(source(*found, **changes))


def answering(name: str, *topics: TopicReport) -> ClusterReport:
    """A cluster that answers now."""
    return cluster(name, *topics, seen_ms=int(time.time() * 1000))


def test_reports_become_the_status_and_the_series(server: MetricsServer) -> None:
    """Partitions are shown on demand."""
    reporter = Reporter(lambda: address_of(server), lambda _all: report_of(answering("east", topic(end=(15,)))))
    reporter.wake()
    (query,) = eventually(lambda: queries(server))
    assert query["sources"][0]["clusters"][0]["topics"][0]["partitions"] is None
    for details in ("?partitions=all", "?cluster=east", "?cluster=east&topic=orders"):
        ((partition,),) = (t["partitions"] for t in queries(server, details)[0]["sources"][0]["clusters"][0]["topics"])
        assert partition["pending_records"] == 5
    assert queries(server, "?cluster=west")[0]["sources"][0]["clusters"][0]["topics"][0]["partitions"] is None
    status, text = ask(server, "/metrics")
    assert status == 200
    expected = 'dynamic_kafka_source_pending_records{cluster="east",partition="0",query="orders",topic="orders"} 5.0'
    assert expected in text.splitlines()
    assert "# TYPE dynamic_kafka_source_batches_total counter" in text
    open_metrics = ask(server, "/metrics", Accept="application/openmetrics-text; version=1.0.0")[1]
    assert open_metrics.endswith("# EOF\n")


def test_names_are_escaped_and_not_understood(server: MetricsServer) -> None:
    """A cluster may have any name."""
    name = 'a"b\\c\nd<script>'
    server.take({**report_of(cluster(name)), "sequence": 1})
    assert 'cluster="a\\"b\\\\c\\nd<script>"' in ask(server, "/metrics")[1]
    assert queries(server)[0]["sources"][0]["clusters"][0]["cluster"] == name


def test_without_the_extra_metrics_says_what_to_install(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The status needs nothing."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    status, text = ask(server, "/metrics")
    assert (status, "pip install 'pyspark-dynamic-kafka[metrics]'" in text) == (501, True)
    assert ask(server, "/status.json")[0] == 200


def test_only_who_knows_the_token_may_report(server: MetricsServer) -> None:
    """Other answers: nothing else exists, and only this machine's names are understood."""
    stranger = Reporter(lambda: address_of(server)._replace(token="guess"), lambda _all: report_of(cluster()))
    stranger.wake()
    eventually(lambda: stranger.dropped)
    stranger.close()
    assert queries(server) == []
    assert server.token not in repr(address_of(server))
    assert ask(server, "/other")[0] == 404
    assert "<script>" in ask(server, "/")[1]
    assert ask(server, "/status.json", Host="evil.example:80")[0] == 403
    assert ask(server, "/status.json", Host=f"localhost:{server.port}")[0] == 200


def test_a_query_has_ended_when_its_process_has(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection tells."""
    monkeypatch.setattr(parts, "_RECONNECT_MS", 100)
    reporter = Reporter(lambda: address_of(server), lambda _all: report_of(cluster()))
    reporter.wake()
    eventually(lambda: queries(server))
    reporter.close()
    eventually(lambda: [q["state"] for q in queries(server)] == ["ended"])


def test_what_could_not_be_sent_is_sent_without_another_call(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker may get no further task, and nobody else knows what it has read."""
    monkeypatch.setattr(reporters, "_INTERVAL_S", 0.05)
    addresses = [Address("127.0.0.1", 1, "nobody listens")]
    reporter = Reporter(lambda: addresses[-1], lambda _all: report_of(cluster()))
    reporter.wake()
    eventually(lambda: reporter.dropped)
    addresses.append(address_of(server))
    eventually(lambda: queries(server))
    reporter.close()


def test_nobody_goes_on_knocking_where_a_server_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may listen there by then, and would get the token; there is one more try for what is new."""
    monkeypatch.setattr(reporters, "_INTERVAL_S", 0.001)
    tries: list[None] = []

    def closed() -> Address:
        tries.append(None)
        return Address("127.0.0.1", 1, "nobody listens")

    reporter = Reporter(closed, lambda _all: report_of(cluster()))
    reporter.wake()
    eventually(lambda: reporter.dropped == 5)
    assert not reporter._woken
    reporter.wake()
    eventually(lambda: reporter.dropped == 6)
    reporter.close()
    assert len(tries) == 7, "with the last report, when it closes"


def test_the_first_task_waits_for_the_servers_address() -> None:
    """Once, for a limited time; it does not wait for a server that cannot start."""
    starts = threading.Event()

    def find() -> Address:
        assert starts.wait(10)
        return Address("127.0.0.1", 1, "nobody listens")

    reporter = Reporter(find, lambda _all: report_of(cluster()))
    reporter.start()
    threading.Timer(0.1, starts.set).start()
    assert reporter.first_address(10) is not None

    late = Reporter(find, lambda _all: report_of(cluster()))
    assert late.first_address(0.01) is None
    began = time.monotonic()
    assert late.first_address(10) is None

    def cannot() -> Address:
        raise ConfigurationError("The metrics server has ended at once")

    failed = Reporter(cannot, lambda _all: report_of(cluster()))
    failed.start()
    assert failed.first_address(10) is None
    assert time.monotonic() - began < 5


def test_a_reporter_survives_the_server(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are dropped and counted; a new server is told everything."""
    monkeypatch.setattr(reporters, "_INTERVAL_S", 0.05)
    said: list[bool] = []

    def make(all_: bool) -> dict[str, Any]:  # noqa: FBT001
        said.append(all_)
        found = answering("east")
        return report_of(found if all_ else found | {"topics": None})

    addresses = [Address("127.0.0.1", 1, "nobody listens")]
    reporter = Reporter(lambda: addresses[-1], make, interval_s=0.05)
    reporter.start()
    eventually(lambda: reporter.dropped)
    addresses.append(address_of(server))
    (query,) = eventually(lambda: queries(server))
    assert query["reports_dropped"] >= 1
    eventually(lambda: len(said) > 3)
    assert said[-1] is False, "what the server has is not sent again"
    server._model = Model(0)  # as if it had started again
    eventually(lambda: queries(server))
    reporter.close()
    assert True in said[3:]


@pytest.fixture
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, and a process that stands for the driver: the server ends with it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    of = driver()._replace(pid=process.pid, started=Path(f"/proc/{process.pid}/stat").read_text().split()[21])
    monkeypatch.setattr(place_module, "driver", lambda: of)
    started: list[subprocess.Popen[bytes]] = []
    # Another test may have started one that lives as long as this process.
    monkeypatch.setattr(place_module, "_started", started)
    yield tmp_path / f"dynamic-kafka-{os.getuid()}"
    process.kill()
    process.communicate()
    for server in started:
        server.wait()


def test_all_processes_of_a_driver_find_one_server(own_place: Path) -> None:
    """Also if they start at the same moment. Its file is private, and goes with the driver."""
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: find_or_start(ANY), range(4)))
    assert len(set(found)) == 1
    assert own_place.stat().st_mode & 0o777 == 0o700
    (place,) = own_place.glob("*.json")
    assert place.stat().st_mode & 0o777 == 0o600
    reporter = Reporter(lambda: found[0], lambda _all: dict(worker(run="x")))
    reporter.wake()
    eventually(lambda: reporter._has_all)
    reporter.close()


def test_the_server_ends_with_the_driver(own_place: Path) -> None:
    """Whoever has started it."""
    address = find_or_start(ANY)
    (place,) = own_place.glob("*.json")
    of = int(place.name.partition("-")[0])
    assert json.loads(place.read_text())["port"] == address.port
    os.kill(of, signal.SIGKILL)
    eventually(lambda: not place.exists())

    def is_refused() -> bool:
        with socket.socket() as made:
            return made.connect_ex((address.host, address.port)) != 0

    eventually(is_refused)


def test_executors_elsewhere_are_told_an_address_that_is_not_their_own() -> None:
    """A host is one as it was given. For all addresses it is no loopback address, which each machine has."""
    assert reach_of("driver-7.example.com") == "driver-7.example.com"
    assert reach_of("127.0.0.1") == "127.0.0.1"
    for everything in ("0.0.0.0", "::"):
        found = reach_of(everything)
        assert found == socket.gethostname() or not ip_address(found).is_loopback


def test_a_port_that_is_taken_is_told(own_place: Path, server: MetricsServer) -> None:
    """The query runs without metrics; another port works."""
    with pytest.raises(
        ConfigurationError, match=f"cannot listen at 127.0.0.1:{server.port} .*give metrics.port another"
    ):
        find_or_start(MetricsSettings("127.0.0.1", server.port))
    assert find_or_start(ANY).port != server.port


def test_a_temporary_directory_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says where, and that the query runs on."""
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    with pytest.raises(ConfigurationError, match=r"Not a directory \(.*/file/.*\)\. The query runs without metrics"):
        find_or_start(ANY)


def test_a_directory_that_is_not_private_is_not_used(own_place: Path, tmp_path: Path) -> None:
    """Neither a link nor one that others can write to: the token would be theirs."""
    (tmp_path / "theirs").mkdir()
    own_place.symlink_to(tmp_path / "theirs")
    with pytest.raises(
        ConfigurationError, match=r"it is a symbolic link or a file \(.*\)\. The query runs without metrics"
    ):
        find_or_start(ANY)
    own_place.unlink()
    own_place.mkdir()
    own_place.chmod(0o777)
    with pytest.raises(ConfigurationError, match="other users can write into it"):
        find_or_start(ANY)


def test_the_driver_is_the_first_ancestor_that_is_not_a_python_of_pyspark(tmp_path: Path) -> None:
    """As below `python -m pyspark.daemon`, which the JVM starts."""
    package = tmp_path / "pyspark"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "daemon.py").write_text(
        "import os, sys\nfrom dynamic_kafka.observe.place import driver\n"
        "if os.fork() == 0:\n    print(driver().pid, flush=True)\nelse:\n    os.wait()\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    code = "import subprocess, sys, os; print(os.getpid(), flush=True); subprocess.run(sys.argv[1:], check=True)"
    done = subprocess.run(
        [sys.executable, "-c", code, sys.executable, "-m", "pyspark.daemon", "pyspark.worker"],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    jvm, found = done.stdout.split()
    assert found == jvm


def held(server: MetricsServer, sent: bytes) -> socket.socket:
    """A connection that has sent something."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    connection.sendall(sent)
    return connection


def is_ended(connection: socket.socket) -> bool:
    """Whether the server has ended it without an answer."""
    connection.settimeout(0.01)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_guests_that_hold_connections_do_not_keep_others_out(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was silent for longest makes room. Those that report are no guests."""
    reporting = held(server, b"")
    report = json.dumps(report_of(cluster())).encode()
    head = f"POST /report HTTP/1.1\r\nAuthorization: Bearer {server.token}\r\nContent-Length: {len(report)}\r\n\r\n"
    reporting.sendall(head.encode() + report)
    assert reporting.recv(4096).startswith(b"HTTP/1.1 200")
    monkeypatch.setattr(server, "_most_guests", 5)
    connections = [held(server, b"GET / HTTP/1.1\r\nHost: x") for _ in range(20)]
    assert ask(server, "/status.json")[0] == 200
    eventually(lambda: sum(map(is_ended, connections)) >= 15)
    assert not is_ended(connections[-1])
    reporting.sendall(head.encode() + report)
    assert reporting.recv(4096).startswith(b"HTTP/1.1 ")
    assert len(server._guests) <= 5
    for connection in [reporting, *connections]:
        connection.close()


def test_a_head_has_to_be_complete_in_time(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a byte of it arrives. A connection that waits between requests may wait."""
    monkeypatch.setattr("dynamic_kafka.observe.server._HEAD_S", 0.3)
    patient = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    patient.request("GET", "/status.json")
    patient.getresponse().read()
    begun = b"GET / HTTP/1.1\r\n"
    slow = [(held(server, head), drip) for head, drip in ((begun, b""), (begun, b"X-A: b\r\n"), (b"G", b"G"))]

    def drips(connection: socket.socket, drip: bytes) -> bool:
        try:
            connection.sendall(drip)
        except OSError:
            return True
        return is_ended(connection)

    for connection, drip in slow:
        eventually(functools.partial(drips, connection, drip))
        connection.close()
    patient.request("GET", "/status.json")
    assert patient.getresponse().status == 200
    patient.close()
