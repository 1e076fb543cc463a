"""The lag of a running query by the port of its driver: `GET /status.json` (see `observe.status`)."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from dynamic_kafka.cli.lag.lags import Look, PartitionLag
from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError, listed

__all__ = ["QueryLag", "look_of"]

_VERSION = 1
_MOST_BYTES = 512 * 1024 * 1024
_MOST = 2**63
_MOST_MS = 2**53
_NO_ANSWER = {"unreachable", "unknown"}
_NOT_NOW = {"silent", "failed", "ended", "starting", "finished", "unknown"}


class QueryLag:
    """Asks a driver again and again, each time with a limit for the whole answer. Without a name, the only query is meant.

    Raises:
        ConfigurationError: If the address is not one of http or https, or has a login in it.
    """

    def __init__(self, url: str, query: str | None, *, timeout_s: float) -> None:
        try:
            parts = urlsplit(url)
            known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # the port is no number
            known = False
        if not known or parts.username or parts.password:
            raise ConfigurationError("--url is not an address such as http://127.0.0.1:9250")
        self._shown = f"{parts.scheme}://{parts.netloc}"
        self._parts = parts
        self._path = f"{parts.path.removesuffix('/status.json').rstrip('/')}/status.json?partitions=all"
        self._query, self._timeout_s = query, timeout_s

    def close(self) -> None:
        """Do nothing: each look has a connection of its own."""

    def look(self) -> Look:
        """Return the lag now.

        Raises:
            DynamicKafkaError: If the driver does not answer, or with something else.
            ConfigurationError: If it runs several queries and none is named.
        """
        text = self._answer()
        try:
            status = json.loads(text)
            if status["version"] > _VERSION:
                raise DynamicKafkaError(
                    f"{self._shown} answers in version {status['version']}, and this program knows {_VERSION}; upgrade "
                    "pyspark-dynamic-kafka"
                )
            return look_of(status, self._query)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if isinstance(error, DynamicKafkaError):
                raise
            raise DynamicKafkaError(
                f"{self._shown} does not answer with the status of queries ({type(error).__name__}); check --url"
            ) from None

    def _answer(self) -> bytes:
        """Return the whole answer, which has to come within the time limit.

        Raises:
            DynamicKafkaError: If it does not, or is not one of success.
        """
        # Neither proxies nor redirects are used: the driver itself is asked.
        make = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = make(self._parts.hostname or "", self._parts.port, timeout=self._timeout_s)
        expired = threading.Event()
        sockets: list[socket.socket] = []

        def expire() -> None:
            expired.set()
            # Whoever reads gets an end. The time limit of a socket begins again with each byte.
            for connected in sockets:
                with suppress(OSError):
                    connected.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(self._timeout_s, expire)
        timer.daemon = True
        timer.start()
        try:
            connection.connect()
            sockets.append(connection.sock)
            connection.request("GET", self._path)
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.OK:
                raise DynamicKafkaError(
                    f"{self._shown} answers {answer.status} {answer.reason} to /status.json; check --url: it is the port of "
                    "the option metrics.port"
                )
            text = answer.read(_MOST_BYTES)
            if not expired.is_set():
                return text
            reason = ""
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error)
        finally:
            timer.cancel()
            connection.close()
        if expired.is_set():
            reason = f"not within {self._timeout_s:g} s, see --timeout"
        raise DynamicKafkaError(
            f"{self._shown} does not answer ({reason}); check that the query runs with the option metrics.port, and --url"
        )


def look_of(status: Mapping[str, Any], name: str | None) -> Look:
    """Return the lag of one query in a `Status` with all partitions; without a name, of the only one.

    Raises:
        ConfigurationError: If there is no such query, or there are several and none is named.
    """
    queries = status["queries"]
    names = [q["query"] for q in queries]
    wanted = [q for q in queries if name in (q["query"], q["name"], q["query_id"])] if name is not None else queries
    if not queries:
        raise ConfigurationError("The driver has no query with the option metrics.port that has reported in 15 minutes")
    if len(wanted) != 1:
        there = listed([f"'{n}'" for n in names], 5) or "none"
        what = "no such query" if name is not None and not wanted else f"{len(wanted)} queries"
        raise ConfigurationError(f"The driver has {what}; give --query with one of: {there}")
    (query,) = wanted
    clusters = [c for source in query["sources"] for c in source["clusters"]]
    # What a query that does not report said last is no longer true. Why it is so is said once, in the notes.
    stale = f"the query is {query['state']}" if query["state"] in _NOT_NOW else ""
    silent: dict[str, str] = {}
    partitions: list[PartitionLag] = []
    for cluster in clusters:
        failing = (
            (_text(cluster["reason"] or "") or f"it is {cluster['state']}") if cluster["state"] in _NO_ANSWER else ""
        )
        reason = f"{stale}; before: {failing}" if stale and failing else stale or failing
        if known_gaps := reason or "; ".join(cluster.get("missing", ())):
            silent[_text(cluster["cluster"])] = known_gaps
        for topic in cluster["topics"]:
            if topic["state"] == "retained":
                continue
            partitions += [
                PartitionLag(
                    _text(cluster["cluster"]),
                    _text(topic["topic"]),
                    _number(p["partition"]),
                    _number(p["current"]),
                    None if reason or p["pending_records"] is None else _number(p["end"]),
                    reason or ("" if p["pending_records"] is not None else "its end is not known"),
                    None if reason or p["lag_s"] is None else _number(p["lag_s"], _MOST_MS, float),
                )
                for p in topic["partitions"] or ()
            ]
    past = {
        c["cluster"]: tuple(
            (_number(time_ms, _MOST_MS), _number(pending))
            for time_ms, pending in zip(c["history"]["times_ms"], c["history"]["pending_records"], strict=True)
            if pending is not None
        )
        for c in clusters
        if c["cluster"] not in silent
    }
    notes = [f"Query '{query['query']}' is {query['state']}" + (f": {query['reason']}" if query["reason"] else "")]
    if not clusters:
        notes.append("Nothing is known about its sources yet")
        silent["(none yet)"] = stale or "the query has not reported its clusters yet"
    return Look(_number(status["time_ms"], _MOST_MS), tuple(partitions), silent, tuple(notes), past)


def _number(value: Any, most: int = _MOST, kind: type[int | float] = int) -> Any:
    """Return a number that one can calculate with: a whole one, or also one of another kind, but not NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, kind)) or not -most < value < most:
        raise TypeError
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
