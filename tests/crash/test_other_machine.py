"""Metrics of executors on another machine: here a network namespace, which has interfaces and a loopback of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from dynamic_kafka.testing.configuration import free_ports, nodes
from tests.crash.drivers import NewDriver, environment
from tests.crash.standalone import StandaloneCluster
from tests.spark.test_metrics import of, series

pytestmark = [pytest.mark.crash, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(300)]

_RECORDS = 20


class Machine(NamedTuple):
    """Another machine.

    Attributes:
        namespace: The name of its network namespace.
        address: Its address.
        ours: The address of this machine in the network of both.
    """

    namespace: str
    address: str
    ours: str


@pytest.fixture(scope="module")
def other_machine() -> Iterator[Machine]:
    """A network namespace, and a cable to it."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("a network namespace needs root and the command ip")
    pid = os.getpid()
    found = Machine(f"dk{pid}", *(f"198.18.{pid % 256}.{i}" for i in (2, 1)))  # a network for tests, by RFC 2544
    here, there = f"{found.namespace}a", f"{found.namespace}b"
    try:
        _ip("netns", "add", found.namespace)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here: {error.stderr}")
    try:
        _ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", found.namespace)
        _ip("address", "add", f"{found.ours}/24", "dev", here)
        _ip("link", "set", here, "up")
        _ip("-netns", found.namespace, "address", "add", f"{found.address}/24", "dev", there)
        for interface in ("lo", there):
            _ip("-netns", found.namespace, "link", "set", interface, "up")
        yield found
    finally:
        with suppress(subprocess.CalledProcessError):
            _ip("netns", "delete", found.namespace)  # and the cable with it


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def broker(other_machine: Machine) -> Iterator[KafkaBroker]:
    """A broker that both machines reach."""
    (node,) = nodes(1, free_ports())
    inside = f"INTERNAL://127.0.0.1:{node.internal}"
    properties = {
        "listeners": f"CLIENT://0.0.0.0:{node.client},{inside},CONTROLLER://127.0.0.1:{node.controller}",
        "advertised.listeners": f"CLIENT://{other_machine.ours}:{node.client},{inside}",
    }
    with KafkaBroker(node=node, properties=properties) as running:
        yield running


@pytest.mark.parametrize("host", ["of the network", "by default"])
def test_executors_report_if_they_reach_the_driver(
    broker: KafkaBroker, other_machine: Machine, tmp_path: Path, job: dict[str, Any], driver: NewDriver, host: str
) -> None:
    """With `metrics.host`. Without it the query runs all the same, and has the series that the driver's machine reports."""
    can_report = host == "of the network"
    topic, port = f"there-{can_report}", next(free_ports())
    broker.create_topic(topic)
    produce(broker.bootstrap_servers, topic, [(None, b"v")] * _RECORDS)
    options = {
        "properties.bootstrap.servers": f"{other_machine.ours}:{broker.bootstrap_servers.rpartition(':')[2]}",
        "topic": topic,
        "startingOffsets": "earliest",
        "metrics.port": str(port),
        "metrics.query": "there",
    }
    if can_report:
        options["metrics.host"] = other_machine.ours
    url = f"http://{other_machine.ours if can_report else '127.0.0.1'}:{port}/"
    within = ("ip", "netns", "exec", other_machine.namespace)
    with StandaloneCluster(
        tmp_path, environment(), (other_machine.address,), master=other_machine.ours, within=within
    ) as spark:
        conf = {
            "spark.master": spark.address,
            "spark.driver.host": other_machine.ours,
            "spark.driver.bindAddress": other_machine.ours,
            "spark.executor.memory": "512m",
        }
        running = driver(conf=conf).run({**job, "options": options})

        def seen() -> bool:
            assert running.is_running, running.output[-5000:]
            with suppress(OSError):
                found = series(url)
                current = of(found, "source_current_offset", query="there", topic=topic)
                records = of(found, "source_records_total", query="there", topic=topic)
                if can_report:
                    return (current, records) == (_RECORDS, _RECORDS)
                return current == _RECORDS and of(found, "source_pending_records", query="there") == 0
            return False

        wait_until(seen, 120, "the metrics")
        found = series(url)
        assert of(found, "source_tasks_total", query="there") == (1 if can_report else None)  # never heard: unknown
        emitted = of(found, "source_emit_event_time_lag_seconds", query="there")
        assert (emitted is not None) == can_report
        running.kill()
