"""Avoid the 40 ms delayed-ACK stall when Spark hands a task to its Python worker.

Spark sends a task in several small writes and leaves Nagle's algorithm on, so each write waits until the one before it is
acknowledged. Linux delays the acknowledgement by 40 ms, to send it along with an answer, but the worker answers only once
it has the whole task. (Spark turned Nagle's algorithm off for its state server, SPARK-51667, but not for workers.) The
receiving side can only acknowledge at once (TCP_QUICKACK), so a thread of the worker does that whenever data arrive.
`spark.python.unix.domain.socket.enabled=true` (Spark 4.1) avoids TCP; then this module does nothing.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

__all__ = ["acknowledge_at_once"]

# A task arrives in about four pieces. Other users of the worker may receive gigabytes: they are left alone after these.
_PIECES = 16


def acknowledge_at_once() -> None:
    """Receive the next task of this worker process without delay. Call it in each task; it takes microseconds."""
    wanted = _watch_sockets()
    if wanted is not None:
        wanted.set()


@cache
def _watch_sockets() -> threading.Event | None:
    """Start the thread once in a process; return None if it is not needed."""
    if not hasattr(socket, "TCP_QUICKACK"):
        return None  # not Linux: the delay does not exist, or cannot be avoided
    sockets = _sockets_to_spark()
    if not sockets:
        return None
    wanted = threading.Event()
    threading.Thread(target=_acknowledge, args=(sockets, wanted), name="dynamic-kafka-quickack", daemon=True).start()
    return wanted


def _sockets_to_spark() -> dict[int, socket.socket]:
    """Return the process's TCP connections by descriptor. Until a Kafka client is created, all of them are Spark's."""
    found = {}
    for descriptor in sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir()):
        with suppress(OSError):  # closed since it was listed
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                connection = socket.socket(fileno=os.dup(descriptor))
                if connection.family in (socket.AF_INET, socket.AF_INET6) and _is_connected(connection):
                    found[connection.fileno()] = connection
                else:
                    connection.close()
    return found


def _is_connected(connection: socket.socket) -> bool:
    try:
        connection.getpeername()
    except OSError:
        return False
    return True


def _acknowledge(sockets: dict[int, socket.socket], wanted: threading.Event) -> None:
    with select.epoll() as arrivals:
        for descriptor in sockets:
            # Edge-triggered: an event for each arrival. EPOLLOUT adds those that the worker has read before we poll.
            arrivals.register(descriptor, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        while wanted.wait():
            wanted.clear()
            for _ in range(_PIECES):
                for descriptor, events in arrivals.poll():
                    if events & (select.EPOLLHUP | select.EPOLLERR):
                        return  # Spark closed the connection; the process ends too
                    with suppress(OSError):
                        sockets[descriptor].setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
