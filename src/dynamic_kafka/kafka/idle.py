"""Clients that are put aside for a while, and served by a thread meanwhile.

librdkafka queues what a client has to tell (errors, logs, statistics) until somebody serves it, and walks the queue to add
to it. A client that is kept for later, with its broker gone, fills it for hours: it takes ever more memory and time, and in
the end cannot be closed within hours (measured: after 40 minutes three idle producers with statistics took a whole core
and 3 GB). So whoever keeps clients parks them here, and takes them back before using or closing them.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import cache
from typing import Protocol

__all__ = ["park", "unpark"]

_log = logging.getLogger(__name__)

_INTERVAL_S = 1.0


class _Served(Protocol):
    def serve(self) -> None:
        """Serve what is queued, and wait for nothing."""


_lock = threading.Lock()
_parked: dict[int, _Served] = {}


def park(owner: _Served) -> None:
    """Have clients served from now on; their callbacks then come from another thread.

    Args:
        owner: What serves its clients.
    """
    with _lock:
        _parked[id(owner)] = owner
    _start()


def unpark(owner: _Served) -> None:
    """Take clients back, if they are parked: once this returns, nobody else serves them. Waits for no broker."""
    with _lock:
        _parked.pop(id(owner), None)


@cache
def _start() -> None:
    threading.Thread(target=_run, name="dynamic-kafka-idle", daemon=True).start()


def _run() -> None:
    while True:
        time.sleep(_INTERVAL_S)
        for owner in list(_parked.values()):
            with _lock:
                if id(owner) in _parked:
                    try:
                        owner.serve()
                    except Exception:  # noqa: BLE001  who uses it next meets it again
                        _log.debug("A client that waits has failed", exc_info=True)
