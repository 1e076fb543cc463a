"""The driver-side reader process ends when Spark ends it, whatever its threads are waiting for."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

# What Spark's runner does: answer a question, then wait on its socket. The cluster is one that accepts no connection.
READER = """
import sys
from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.source.driver.enumerator import SourceEnumerator
from dynamic_kafka.source.document.offsets import MARKER
options = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "subscribe": "t",
    "cluster-failure-mode": "isolate",
    "kafka.default.api.timeout.ms": "600",
}
enumerator = SourceEnumerator(configure_source(options))
enumerator.latest_offset(MARKER, limited=True)
print("waiting", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda process: process.stdin.close(), id="end of its socket"),
        pytest.param(lambda process: process.send_signal(signal.SIGTERM), id="SIGTERM"),
    ],
)
def test_the_reader_process_ends_within_a_second_with_a_dead_broker(
    end: Callable[[subprocess.Popen[bytes]], None],
) -> None:
    """Its threads are daemons in calls to a dead broker; neither they nor the clients' destructors hold it up."""
    process = subprocess.Popen([sys.executable, "-c", READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        begin = time.monotonic()
        end(process)
        process.wait(10)
        assert time.monotonic() - begin < 2.0  # a second, and one more for a busy machine
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
        if process.stdin is not None:
            process.stdin.close()


FIRST_LOOK = """
import threading, time
from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.source.driver.enumerator import SourceEnumerator
from dynamic_kafka.source.document.offsets import MARKER
options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "kafka.default.api.timeout.ms": "5000"}
enumerator = SourceEnumerator(configure_source(options))

def say() -> None:
    while not any(monitor.failing_for_s is not None for monitor in list(enumerator._view.monitors.values())):
        time.sleep(0.01)
    print("waiting", flush=True)

threading.Thread(target=say, daemon=True).start()
enumerator.latest_offset(MARKER, limited=True)
"""


def test_the_reader_process_ends_within_a_second_during_its_first_look() -> None:
    """It waits for a cluster that is down, here for 5 s, and `query.stop()` does not."""
    process = subprocess.Popen([sys.executable, "-c", FIRST_LOOK], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == -signal.SIGTERM
        assert time.monotonic() - begin < 2.0  # a second, and one more for a busy machine
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
