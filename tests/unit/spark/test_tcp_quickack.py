"""The handover of a task from Spark to its Python worker is not held up by delayed acknowledgements."""

import socket
import struct
import subprocess
import sys
import time
from statistics import median

import pytest

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="such delays are Linux's")

_WORKER = """
import socket, sys
from dynamic_kafka.spark.tcp_quickack import acknowledge_at_once

connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
while task := connection.recv(1):
    while len(task) < 3:
        task += connection.recv(3 - len(task))
    if sys.argv[2] == "at once":
        acknowledge_at_once()
    connection.sendall(b"done")
"""
_ROUNDS = 15


def _handover_ms(how: str) -> float:
    """The median time of a task that is written in three pieces, as Spark does, and answered when all are there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-c", _WORKER, str(server.getsockname()[1]), how]
        with subprocess.Popen(command) as worker, server.accept()[0] as spark:
            spark.settimeout(30)
            took = []
            for _ in range(_ROUNDS):
                began = time.perf_counter()
                for piece in (b"1", b"2", b"3"):
                    spark.sendall(piece)
                assert spark.recv(4) == b"done"
                took.append((time.perf_counter() - began) * 1000)
            spark.shutdown(socket.SHUT_WR)
            assert worker.wait(30) == 0
    return median(took)


def test_a_task_in_pieces_is_handed_over_without_delay() -> None:
    """Without our thread each task waits for Linux's delayed acknowledgement; with it, for nothing."""
    delayed = _handover_ms("as it is")
    if delayed < 20:
        pytest.skip("this machine does not delay acknowledgements")
    assert _handover_ms("at once") < delayed / 2


_WORKER_WITH_A_NEIGHBOUR = """
import socket, sys, threading, time
from dynamic_kafka.spark.tcp_quickack import acknowledge_at_once

spark = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
neighbour = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
acknowledge_at_once()
spark.sendall(b"1")
if sys.argv[2] == "close":
    spark.recv(1)
    neighbour.close()
spark.recv(1)
acknowledge_at_once()
time.sleep(0.2)
spark.sendall(b"2" if "dynamic-kafka-quickack" in [t.name for t in threading.enumerate()] else b"0")
spark.recv(1)
"""


@pytest.mark.parametrize("how", ["close", "reset"])
def test_connections_of_other_libraries_are_left_alone(how: str) -> None:
    """Their owner closes them at once, and a reset of one of them does not bring the delays back."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-c", _WORKER_WITH_A_NEIGHBOUR, str(server.getsockname()[1]), how]
        with subprocess.Popen(command) as worker:
            spark, neighbour = server.accept()[0], server.accept()[0]
            with spark, neighbour:
                spark.settimeout(30)
                assert spark.recv(1) == b"1"
                if how == "close":
                    spark.sendall(b"c")
                    neighbour.settimeout(10)
                    assert neighbour.recv(1) == b"", "a duplicate would keep it open"
                else:
                    neighbour.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    neighbour.close()
                spark.sendall(b"g")
                assert spark.recv(1) == b"2", "the thread has ended"
                spark.sendall(b"e")
                assert worker.wait(30) == 0


def test_a_process_without_tcp_connections_has_nothing_to_do() -> None:
    """With Unix domain sockets, or without Spark, no thread is started."""
    program = (
        "import threading\n"
        "from dynamic_kafka.spark.tcp_quickack import acknowledge_at_once\n"
        "acknowledge_at_once()\n"
        "assert threading.active_count() == 1"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
