"""Avoid the 40 ms delayed-ACK stall when Spark hands a task to its Python worker.

Spark sends a task in several small writes and leaves Nagle's algorithm on, so each write waits until the one before it is
acknowledged. Linux delays the acknowledgement by 40 ms, to send it along with an answer, but the worker answers only once
it has the whole task. (Spark turned Nagle's algorithm off for its state server, SPARK-51667, but not for workers.) The
receiving side can only acknowledge at once (TCP_QUICKACK), so a thread of the worker does that whenever data arrive.
`spark.python.unix.domain.socket.enabled=true` (Spark 4.1) avoids TCP; then this module does nothing.
"""

from __future__ import annotations

import ipaddress
import os
import select
import socket
import stat
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

__all__ = ["acknowledge_at_once"]

# A task arrives in about four pieces.
_PIECES = 16


def acknowledge_at_once() -> None:
    """Receive the next task of this worker process without delay. Call it in each task; it takes microseconds."""
    wanted = _watch_connection()
    if wanted is not None:
        wanted.set()


@cache
def _watch_connection() -> threading.Event | None:
    """Start the thread once in a process; return None if it is not needed."""
    if not hasattr(socket, "TCP_QUICKACK"):
        return None  # not Linux: the delay does not exist, or cannot be avoided
    connection = _connection_to_spark()
    if connection is None:
        return None
    wanted = threading.Event()
    threading.Thread(target=_acknowledge, args=(connection, wanted), name="dynamic-kafka-quickack", daemon=True).start()
    return wanted


def _connection_to_spark() -> socket.socket | None:
    """Return the worker's connection to Spark's JVM on this machine, as a duplicate; None if it is not a TCP connection.

    The worker makes it before it runs any code of a user, and keeps it as long as it lives: of all connections to this
    machine it has the lowest descriptor. Duplicates of other connections would keep them open after their owner has closed
    them.
    """
    with suppress(OSError):  # no /proc
        for descriptor in sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir()):
            with suppress(OSError):  # closed since it was listed, or not connected
                if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                    connection = socket.socket(fileno=os.dup(descriptor))
                    if _is_local_tcp(connection):
                        return connection
                    connection.close()
    return None


def _is_local_tcp(connection: socket.socket) -> bool:
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
        return False
    try:
        address = ipaddress.ip_address(connection.getpeername()[0])
    except OSError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _acknowledge(connection: socket.socket, wanted: threading.Event) -> None:
    with connection, select.epoll() as arrivals:
        # Edge-triggered: an event for each arrival. EPOLLOUT adds those that the worker has read before we poll.
        arrivals.register(connection, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        while wanted.wait():
            wanted.clear()
            for _ in range(_PIECES):
                for _, events in arrivals.poll():
                    if events & (select.EPOLLHUP | select.EPOLLERR):
                        _watch_connection.cache_clear()  # closed: a worker that lives on has another connection
                        return
                    with suppress(OSError):
                        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
