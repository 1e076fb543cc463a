"""Clients that are kept for their next use: one policy for all of them, and one thread that polls them meanwhile.

A client that is not used must still be polled: librdkafka queues what it has to report (errors, logs, statistics), and walks
the queue to add to it. If nothing polls a client while its broker is gone, the queue grows for hours: it takes ever more
memory and time, and the client can then not be closed within hours (measured: after 40 minutes three idle producers with
statistics took a whole core and 3 GB).

The policy of every `ClientPool`:

1. A key says all that makes a client: purpose, cluster, and properties with their secrets (see `clients.pool_key`). A
   changed secret is another key, so it makes a new client.
2. A kept client is closed when it was not used for five minutes, when it fails (a refused login is a failure), when the
   pool has more clients than its capacity (the one unused for longest goes), and when the process ends. The capacity is 16,
   or twice the most clients that were leased at one time: a task may read 100 clusters.
3. After a fork the child process has empty pools. It never uses and never closes a client of its parent: closing one waits
   for threads that exist in the parent only, and the connections are the parent's.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["ClientPool", "start_polling", "stop_polling"]

_log = logging.getLogger(__name__)

_CAPACITY = 16
_IDLE_LIMIT_S = 300.0
_POLL_INTERVAL_S = 1.0


class Pollable(Protocol):
    """A client, or the owner of some."""

    def poll_idle(self) -> bool:
        """Call the callbacks that are due, without waiting. Return whether the client can still be used."""

    def close(self) -> None:
        """Close the client."""


C = TypeVar("C", bound=Pollable)

_lock = threading.Lock()  # of all pools; never held while a client is used, which may ask a token service
_polled: dict[int, tuple[Pollable, threading.Lock]] = {}
_pools: list[ClientPool[Any]] = []


@dataclass(eq=False)
class _Kept(Generic[C]):
    key: Hashable
    client: C
    since: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while the client is polled: no two threads use it."""

    def close(self) -> None:
        """Close the client, after the thread that polls it just now."""
        with self.lock:
            _close(self.client)


class ClientPool(Generic[C]):
    """Clients of one purpose that this process keeps for their next use, each for one user at a time.

    Make pools at the level of a module: they are never forgotten.

    Args:
        capacity: The most clients that are kept; more if more are leased at one time (see rule 2).
        idle_limit_s: The seconds without use after which a client is closed.
        clock: The clock, for tests.
    """

    def __init__(
        self,
        *,
        capacity: int = _CAPACITY,
        idle_limit_s: float = _IDLE_LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._capacity, self._idle_limit_s, self._clock = capacity, idle_limit_s, clock
        self._kept: list[_Kept[C]] = []  # the one unused for longest first
        self._leased = 0
        _pools.append(self)

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: Hashable) -> bool:
        return any(kept.key == key for kept in list(self._kept))

    def take(self, key: Hashable) -> C | None:
        """Take a client that can still be used out of the pool; None if there is none with this key."""
        while True:
            with _lock:
                kept = next((k for k in reversed(self._kept) if k.key == key), None)
                if kept is None:
                    return None
                self._kept.remove(kept)
            with kept.lock:
                if self._is_usable(kept):
                    return kept.client
            _close(kept.client)

    def put(self, key: Hashable, client: C) -> None:
        """Keep a client. Its callbacks may then be called by another thread."""
        with _lock:
            self._kept.append(_Kept(key, client, self._clock()))
            excess = self._kept[: max(0, len(self._kept) - self._capacity)]
            del self._kept[: len(excess)]
        for kept in excess:
            kept.close()
        _start_thread()

    @contextmanager
    def lease(self, key: Hashable, make: Callable[[], C]) -> Iterator[C]:
        """Use a client for a `with` block: a kept one, or else a new one. It is closed if the block fails, else kept."""
        client = self.take(key) or make()
        with _lock:
            self._leased += 1
            self._capacity = max(self._capacity, 2 * self._leased)
        try:
            yield client
        except BaseException:
            _close(client)
            raise
        else:
            self.put(key, client)
        finally:
            with _lock:
                self._leased -= 1

    def share(self, key: Hashable, make: Callable[[], C]) -> C:
        """Return the client with this key without taking it out of the pool; for thread-safe clients."""
        client = self.take(key) or make()
        self.put(key, client)
        return client

    def close(self, where: Callable[[C], bool] = lambda _: True) -> None:
        """Close the kept clients for which `where` is true; all of them by default."""
        with _lock:
            found = [kept for kept in self._kept if where(kept.client)]
            self._kept = [kept for kept in self._kept if kept not in found]
        for kept in found:
            kept.close()

    def _is_usable(self, kept: _Kept[C]) -> bool:
        return self._clock() - kept.since < self._idle_limit_s and _poll(kept.client)

    def _poll_all(self) -> None:
        for kept in list(self._kept):
            with kept.lock:
                if kept not in self._kept or self._is_usable(kept):
                    continue
                with _lock:
                    if kept not in self._kept:
                        continue  # its user finds out by itself
                    self._kept.remove(kept)
                _close(kept.client)


def start_polling(client: Pollable) -> None:
    """Poll a client in the background from now on, because its owner will not use it for a while."""
    with _lock:
        _polled[id(client)] = client, threading.Lock()
    _start_thread()


def stop_polling(client: Pollable) -> None:
    """Stop polling a client: once this returns, no other thread uses it. Does nothing if it is not polled."""
    with _lock:
        found = _polled.pop(id(client), None)
    if found is not None:
        with found[1]:
            pass  # it may be polled just now


@cache
def _start_thread() -> None:
    threading.Thread(target=_run, name="dynamic-kafka-idle", daemon=True).start()


def _run() -> None:
    while True:
        time.sleep(_POLL_INTERVAL_S)
        for client, lock in list(_polled.values()):
            with lock:
                if id(client) in _polled:
                    _poll(client)
        for pool in _pools:
            pool._poll_all()


def _poll(client: Pollable) -> bool:
    try:
        return client.poll_idle()
    except Exception:  # noqa: BLE001  its next user gets an error of its own, or a new client
        _log.debug("A client failed while it was not used", exc_info=True)
        return False


def _close(client: Pollable) -> None:
    try:
        client.close()
    except Exception:  # noqa: BLE001  there is nothing left to do with it
        _log.debug("A client could not be closed", exc_info=True)


@atexit.register
def _close_all() -> None:
    for pool in _pools:
        pool.close()


def _forget_parents_clients() -> None:
    global _lock  # noqa: PLW0603  a thread of the parent may hold it
    _lock = threading.Lock()
    _start_thread.cache_clear()
    inherited: list[Any] = [
        *(client for client, _ in _polled.values()),
        *(kept.client for pool in _pools for kept in pool._kept),
    ]
    for client in inherited:
        # Without any reference librdkafka would close it: the process then waits for ever, or is aborted.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
    _polled.clear()
    for pool in _pools:
        pool._kept = []


os.register_at_fork(after_in_child=_forget_parents_clients)
