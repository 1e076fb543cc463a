"""Spark hands a task to its Python worker in several small writes; over TCP each task then waits 40 ms. Not with this.

Spark leaves Nagle's algorithm on, so a small write waits until the one before it is acknowledged, and Linux delays the
acknowledgement by 40 ms, hoping for an answer to carry it; but the worker answers only when it has the whole task. (Spark
turned it off for its state server, SPARK-51667, not for workers.) The side that receives can only acknowledge at once: so a
thread of the worker does, whenever something arrives. `spark.python.unix.domain.socket.enabled=true` (Spark 4.1) avoids
TCP, and then there is nothing to do here.
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

# A task arrives in about four pieces. Other users of the worker may be sent gigabytes: they are left alone after these.
_PIECES = 16


def acknowledge_at_once() -> None:
    """Have the next task of this worker process handed over without delay; call it in each task, it takes microseconds."""
    wanted = _watch_sockets()
    if wanted is not None:
        wanted.set()


@cache
def _watch_sockets() -> threading.Event | None:
    """Start the thread, once in a process; None if there is nothing to do for it."""
    if not hasattr(socket, "TCP_QUICKACK"):
        return None  # not Linux: no such delay, or no way to avoid it
    sockets = _sockets_to_spark()
    if not sockets:
        return None
    wanted = threading.Event()
    threading.Thread(target=_acknowledge, args=(sockets, wanted), name="dynamic-kafka-handover", daemon=True).start()
    return wanted


def _sockets_to_spark() -> dict[int, socket.socket]:
    """The process's TCP connections, by descriptor; before a Kafka client is made they are all Spark's."""
    found = {}
    for descriptor in sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir()):
        with suppress(OSError):  # gone since it was listed
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
            # Edge-triggered: told of each arrival. With EPOLLOUT also of one that the worker has read before we look.
            arrivals.register(descriptor, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        while wanted.wait():
            wanted.clear()
            for _ in range(_PIECES):
                for descriptor, events in arrivals.poll():
                    if events & (select.EPOLLHUP | select.EPOLLERR):
                        return  # Spark is gone, and the process with it
                    with suppress(OSError):
                        sockets[descriptor].setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
