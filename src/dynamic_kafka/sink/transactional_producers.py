"""The executor's side of exactly-once: transactional producers, one for each transaction.

A new producer needs a round of requests, 20 ms or more; a ready one's transaction costs a few milliseconds. So while a
task's transaction is prepared, the next producer is made ready in the background.

The records of a task are in one transaction for each cluster. `prepare` leaves them open, acknowledged, and tells their
names: the driver commits them, or aborts them. A task that fails aborts its own.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException

from dynamic_kafka.errors import ClusterUnavailableError, DeliveryError
from dynamic_kafka.kafka.idle import park
from dynamic_kafka.sink.producers import ClusterProducer
from dynamic_kafka.sink.protocol import Transaction
from dynamic_kafka.sink.settings import DEFAULT_TRANSACTION_TIMEOUT_MS, WriteTask
from dynamic_kafka.sink.transactional_ids import Slot, Slots

__all__ = ["TransactionalProducers"]

_log = logging.getLogger(__name__)

_READY_S = 60.0
_STATISTICS_MS = 10
_DEFAULTS = {
    "transaction.timeout.ms": str(DEFAULT_TRANSACTION_TIMEOUT_MS),
    # librdkafka rests this long between the bootstrap connection and the one that stays (its own default: 100 ms).
    "reconnect.backoff.ms": "10",
}
_ANY_TOPIC = "__transaction_state"
_CONNECT_S = 5.0
_ABORT_S = 10.0


@dataclass
class _Ready:
    """A producer that can begin a transaction."""

    slot: Slot
    producer: ClusterProducer
    producer_id: int
    producer_epoch: int


@dataclass
class _Pool:
    """The producers of one prefix on one cluster in this process, which runs one task at a time."""

    slots: Slots
    preparing: threading.Thread | None = None
    ready: _Ready | None = None
    ready_for: tuple[str, Mapping[str, str]] | None = None
    prepared: list[_Ready] = field(default_factory=list)

    def take(self, cluster: str, task: WriteTask) -> _Ready:
        """A ready producer: the one made in the background, or a new one."""
        if self.preparing is not None:
            self.preparing.join()
            self.preparing = None
        kept, self.ready = self.ready, None
        if kept is not None:
            with suppress(DeliveryError):
                kept.producer.resume()
                if self.ready_for == (task.chain, task.destinations[cluster].properties):
                    return kept
            self.slots.drop(kept.slot)
            kept.producer.close()
        return _make_ready(self.slots, cluster, task)

    def prepare_next(self, cluster: str, task: WriteTask) -> None:
        """Make the next producer ready, in the background."""
        if self.preparing is None and self.ready is None:
            self.preparing = threading.Thread(target=self._prepare, args=(cluster, task), daemon=True)
            self.preparing.start()

    def _prepare(self, cluster: str, task: WriteTask) -> None:
        # Those whose id is free again have done their work: their transactions are settled.
        for settled in [r for r in self.prepared if r.slot.is_free_for(task.chain, task.generation)]:
            self.prepared.remove(settled)
            settled.producer.close()
        try:
            self.ready = _make_ready(self.slots, cluster, task)
            self.ready_for = task.chain, task.destinations[cluster].properties
            park(self.ready.producer)
        except Exception:  # noqa: BLE001  the next task finds out by itself, and says so
            _log.debug("No producer could be made ready in advance", exc_info=True)


_pools: dict[tuple[str, str], _Pool] = {}


@dataclass
class _Statistics:
    """What only librdkafka's statistics tell.

    Attributes:
        connected: Whether a broker of the cluster is connected, other than as a bootstrap server.
        ids: The producer's id and epoch.
    """

    connected: bool = False
    ids: tuple[int, int] | None = None

    def note(self, text: str) -> None:
        """Take a report of librdkafka."""
        if self.ids is None:
            found = json.loads(text)
            self.connected = any(b["source"] == "learned" and b["state"] == "UP" for b in found["brokers"].values())
            ids = found["eos"]["producer_id"], found["eos"]["producer_epoch"]
            self.ids = ids if min(ids) >= 0 else None


def _make_ready(slots: Slots, cluster: str, task: WriteTask) -> _Ready:
    slot = slots.take(task.chain, task.generation)
    statistics = _Statistics()
    config = {
        "transactional.id": slot.name,
        "statistics.interval.ms": _STATISTICS_MS,
        "stats_cb": statistics.note,
    }
    producer = ClusterProducer(cluster, {**_DEFAULTS, **task.destinations[cluster].properties}, config)
    try:
        producer_id, producer_epoch = _initialize(producer, slot, statistics)
    except BaseException:
        slots.drop(slot)  # its file says that an answer is missing: it is left alone for a while
        producer.close()
        raise
    slot.write("ready", task.chain, task.generation)
    return _Ready(slot, producer, producer_id, producer_epoch)


def _initialize(producer: ClusterProducer, slot: Slot, statistics: _Statistics) -> tuple[int, int]:
    """Have the cluster fence the id's earlier producers; the id and epoch that it gives this one."""
    deadline = time.monotonic() + _READY_S
    try:
        _connect(producer, statistics)
        producer.client.init_transactions(_READY_S)
        while statistics.ids is None and time.monotonic() < deadline:
            producer.client.poll(0.01)
    except KafkaException as error:
        with suppress(KafkaException):  # raises errors that are fatal, such as this one
            producer.client.poll(0)
        why = f" ({producer.last_error})" if producer.last_error else ""
        raise ClusterUnavailableError(
            f"Cluster '{producer.cluster}': transactional id '{slot.name}' cannot be used: {error.args[0].str()}{why}; see "
            "whether the cluster is up, and grant Write and Describe on the transactional ids of this prefix",
            cluster_id=producer.cluster,
        ) from error
    if statistics.ids is None:
        raise ClusterUnavailableError(
            f"Cluster '{producer.cluster}': the producer of transactional id '{slot.name}' does not tell its own id within "
            f"{_READY_S:g} s; start the query again, and if it stays so, tell us the version of confluent-kafka",
            cluster_id=producer.cluster,
        )
    return statistics.ids


def _connect(producer: ClusterProducer, statistics: _Statistics) -> None:
    """Have a broker connected: `init_transactions` sleeps for 500 ms whenever it finds none, and says what is wrong."""
    deadline = time.monotonic() + _CONNECT_S
    with suppress(KafkaException):
        while not statistics.connected and time.monotonic() < deadline:
            producer.client.list_topics(_ANY_TOPIC, timeout=_CONNECT_S)  # asking connects
            producer.client.poll(_STATISTICS_MS / 1000)


class TransactionalProducers:
    """A task's producers, each within a transaction of its own. Use it in a `with` block; leave it after `prepare`.

    Args:
        task: The batch's task; its generation decides which ids are free.
    """

    def __init__(self, task: WriteTask) -> None:
        self._task = task
        self._begun: dict[str, _Ready] = {}
        self._prepared = False

    def producer(self, cluster: str) -> ClusterProducer:
        """As `producers.TaskProducers` says."""
        if cluster not in self._begun:
            ready = self._pool(cluster).take(cluster, self._task)
            ready.slot.write("used", self._task.chain, self._task.generation)
            ready.producer.client.begin_transaction()
            self._begun[cluster] = ready
        return self._begun[cluster].producer

    def prepare(self) -> tuple[Transaction, ...]:
        """Name the open transactions, all of whose records are acknowledged; the driver ends them."""
        self._prepared = True
        for cluster, ready in self._begun.items():
            pool = self._pool(cluster)
            # Kept until it is settled: librdkafka may purge what it lets go of. The slot as it is now: it is used again.
            pool.prepared.append(replace(ready, slot=replace(ready.slot)))
            park(ready.producer)
            pool.prepare_next(cluster, self._task)
        return tuple(
            Transaction(cluster, ready.slot.name, ready.producer_id, ready.producer_epoch)
            for cluster, ready in self._begun.items()
        )

    def _pool(self, cluster: str) -> _Pool:
        key = self._task.settings.prefix, cluster
        if key not in _pools:
            _pools[key] = _Pool(Slots(*key))
        return _pools[key]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._prepared:
            return
        for ready in self._begun.values():
            with suppress(KafkaException):  # the next claim aborts what could not be aborted here
                ready.producer.client.purge()
                ready.producer.client.abort_transaction(_ABORT_S)
            ready.producer.close()
