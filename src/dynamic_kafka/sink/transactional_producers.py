"""The executor's side of exactly-once: transactional producers, one for each transaction.

A new producer needs a round of requests, 20 ms or more; a ready one's transaction costs a few milliseconds. So once a task's
transaction is prepared, the next one is made ready and its own is closed, both in the background. A worker has at most four
producers at any time, however many tasks of a batch it runs. If Spark does not use a worker for a second task, nothing is
made ready.

The records of a task are in one transaction for each cluster. `prepare` leaves them open, acknowledged, and returns their
names. The driver commits or aborts them. A task that fails aborts its own (`_abort`).

A producer that is closed after all its records were acknowledged sends no request about its transaction. That one stays open
on the broker, to be ended by its producer id and epoch.

What is needed of librdkafka: transactions V1 (EndTxn below version 5, see `outcome`), no request at the close of a producer,
and the line of its log about the producer id, which is nowhere else but in its statistics. These hold about 1 KB for
each partition of each topic written to, which is too much to write down as often as somebody waits for the id.

With metrics, a producer is closed after its next statistics. They come at intervals, and a producer that lives for one batch
would often be gone before its first ones.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Hashable, Mapping
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from functools import lru_cache

from confluent_kafka import KafkaError, KafkaException

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError, DeliveryError, DynamicKafkaError, may_not
from dynamic_kafka.kafka.clients import LIBRDKAFKA_LOG, pool_key
from dynamic_kafka.kafka.logins import principal
from dynamic_kafka.kafka.pool import ClientPool
from dynamic_kafka.kafka.transactions.client import TransactionClient
from dynamic_kafka.sink.log.chain import Transaction
from dynamic_kafka.sink.producers import ClusterProducer, statistics_ms
from dynamic_kafka.sink.settings import DEFAULT_TRANSACTION_TIMEOUT_MS, WriteTask
from dynamic_kafka.sink.transactional_ids import TransactionalId, TransactionalIdPool

__all__ = ["TransactionalProducers"]

_log = logging.getLogger(__name__)

_READY_S = 60.0
_ATTEMPT_S = 5.0
_DEFAULTS = {
    "transaction.timeout.ms": str(DEFAULT_TRANSACTION_TIMEOUT_MS),
    # librdkafka rests this long between the bootstrap connection and the one that stays (its own default: 100 ms).
    "reconnect.backoff.ms": "10",
}
_HUNG_AFTER_MS = 10_000  # without an answer; then the new coordinator is asked
_ACQUIRED = re.compile(r"Acquired PID\{Id:(\d+),Epoch:(\d+)\}")
_ANY_TOPIC = "__transaction_state"
_CONNECT_S = 5.0
_ABORT_S, _END_S = 10.0, 5.0
_MOST_FINISHING = 2  # for each cluster
_STATISTICS_MS, _STATISTICS_POLL_S = 200, 0.02


@dataclass(eq=False)
class _TransactionalProducer:
    """A producer with its transactional id, which it holds until it is closed."""

    producer: ClusterProducer
    transactional_id: TransactionalId
    producer_id: int
    producer_epoch: int

    def poll_idle(self) -> bool:
        """See `ClientPool`."""
        try:
            self.producer.poll(0)
        except DeliveryError:  # fatal, such as that a newer producer has fenced it
            return False
        return not self.producer.errors.authentication_failed

    def close(self) -> None:
        """Close the producer, and then give back its id."""
        try:
            self.producer.drop()
        finally:
            self.transactional_id.release()


_ready = ClientPool[_TransactionalProducer](idle_limit_s=60.0)
"""Producers that can begin a transaction. A cluster forgets one that is unused for `transactional.id.expiration.ms`."""

_preparing: dict[Hashable, threading.Event] = {}
_finishing: deque[threading.Thread] = deque()
_hurry = threading.Event()
"""Set while a task waits for the end of an earlier one's producer."""
os.register_at_fork(after_in_child=_preparing.clear)
os.register_at_fork(after_in_child=_finishing.clear)


def _key(cluster: str, task: WriteTask) -> Hashable:
    more = task.settings.prefix, task.chain
    return pool_key("write in transactions", cluster, task.destinations[cluster].properties, more)


def _take(key: Hashable, cluster: str, task: WriteTask) -> _TransactionalProducer:
    """Return a ready producer: the one made in the background, or a new one."""
    if (done := _preparing.get(key)) is not None:
        done.wait()
    found = _ready.take(key) or _make_ready(cluster, task)
    while not found.transactional_id.is_locked():
        found.close()
        found = _make_ready(cluster, task)
    found.producer.errors.clear()  # errors from the time without use may be over
    return found


def _finish(begun: _TransactionalProducer, key: Hashable, task: WriteTask) -> None:
    """Close the producer of a prepared transaction, and make the next one ready if this process runs more tasks."""
    if not os.environ.get("SPARK_REUSE_WORKER"):
        begun.close()
        return
    if len(_finishing) >= _MOST_FINISHING * len(task.destinations):
        _hurry.set()
        _finishing.popleft().join()
        _hurry.clear()
    _preparing[key] = threading.Event()
    _finishing.append(threading.Thread(target=_prepare_next, args=(begun, key, task), daemon=True))
    _finishing[-1].start()


def _prepare_next(begun: _TransactionalProducer, key: Hashable, task: WriteTask) -> None:
    try:
        if key not in _ready:
            _ready.put(key, _make_ready(begun.producer.cluster, task))
    except Exception:  # noqa: BLE001  the next task meets the failure itself, and reports it
        _log.debug("No producer could be made ready in advance", exc_info=True)
    finally:
        _preparing.pop(key).set()
        if statistics_ms(task.settings):
            _note_last_statistics(begun.producer)
        begun.close()  # takes up to 100 ms, for which the next task does not wait


def _note_last_statistics(producer: ClusterProducer) -> None:
    """Wait for the statistics that count what the producer has sent last, unless a task waits for its end."""
    from dynamic_kafka.sink.tally import note_statistics

    note_statistics(producer)
    deadline = time.monotonic() + 2 * _STATISTICS_MS / 1000
    with suppress(DeliveryError):
        while not (note_statistics(producer) or _hurry.is_set() or time.monotonic() > deadline):
            producer.poll(_STATISTICS_POLL_S)


class _ProducerIdLog:
    """The log of a producer. It notes the producer id and epoch, for which librdkafka has no function."""

    ids: tuple[int, int] | None = None

    def log(self, level: int, text: str, *details: str) -> None:
        """Take a line of librdkafka's log."""
        if found := _ACQUIRED.search(details[-1]):
            self.ids = int(found[1]), int(found[2])
        LIBRDKAFKA_LOG.log(level, text, *details)


_id_pool = lru_cache(maxsize=64)(TransactionalIdPool)


def _make_ready(cluster: str, task: WriteTask) -> _TransactionalProducer:
    taken = _id_pool(task.settings.prefix, cluster).take(task.chain, task.generation)
    properties = {**_DEFAULTS, **task.destinations[cluster].properties}
    hung_after_ms = min(_HUNG_AFTER_MS, int(properties["transaction.timeout.ms"]))  # librdkafka refuses more
    properties.setdefault("socket.timeout.ms", str(hung_after_ms))
    log = _ProducerIdLog()
    debug = ",".join(filter(None, [properties.get("debug"), "eos"]))
    config = {"transactional.id": taken.name, "debug": debug, "logger": log}
    producer = ClusterProducer(
        cluster,
        properties,
        config,
        statistics_ms=min(statistics_ms(task.settings), _STATISTICS_MS),
    )
    try:
        producer_id, producer_epoch = _initialize(producer, taken.name, log, task.settings.prefix, properties)
        taken.write("ready", task.chain, task.generation)
    except BaseException:
        producer.drop()
        taken.release()  # its file says that an answer is missing: it is left alone for a while
        raise
    return _TransactionalProducer(producer, taken, producer_id, producer_epoch)


def _initialize(
    producer: ClusterProducer, name: str, log: _ProducerIdLog, prefix: str, properties: Mapping[str, str]
) -> tuple[int, int]:
    """Have the cluster fence earlier producers of the id. Return the producer id and epoch that it gives this one."""
    deadline = time.monotonic() + _READY_S
    while True:
        try:
            _connect(producer)
            while not _has_initialized(producer, deadline):
                pass
            while log.ids is None and time.monotonic() < deadline:
                producer.client.poll(0.01)
            break
        except KafkaException as error:
            with suppress(KafkaException):  # raises errors that are fatal, such as this one
                producer.client.poll(0)
            # While the broker was still starting, `_connect` got no answer, so the login may be refused here first.
            if not producer.is_renewed_after_refusal(deadline):
                raise _unusable(producer, name, prefix, properties, error) from error
    if log.ids is None:
        raise ClusterUnavailableError(
            f"Cluster '{producer.cluster}': the producer of transactional id '{name}' did not report its producer id within "
            f"{_READY_S:g} s. Start the query again. If this persists, please report it with your confluent-kafka version",
            cluster_id=producer.cluster,
        )
    return log.ids


def _unusable(
    producer: ClusterProducer, name: str, prefix: str, properties: Mapping[str, str], error: KafkaException
) -> DynamicKafkaError:
    """Return the error for a transactional id that the cluster does not let this producer use."""
    if producer.errors.authentication_failed:
        return producer.unavailable(f"transactional id '{name}' cannot be used")
    why = f"{error.args[0].str()} ({producer.errors.last})" if producer.errors.last else error.args[0].str()
    if error.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        timeout_ms = properties["transaction.timeout.ms"]
        return ConfigurationError(
            f"Option 'properties.transaction.timeout.ms' is {timeout_ms}, and cluster '{producer.cluster}' allows less "
            "(transaction.max.timeout.ms of its brokers); lower the option, or raise the brokers' limit"
        )
    advice = _advice(why)
    if error.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        advice = may_not(principal(properties), ["Write", "Describe"], "transactional-id", prefix, prefixed=True)
    return ClusterUnavailableError(
        f"Cluster '{producer.cluster}': transactional id '{name}' cannot be used: {why}; {advice}",
        cluster_id=producer.cluster,
    )


def _has_initialized(producer: ClusterProducer, deadline: float) -> bool:
    """Wait a few seconds for `init_transactions`. Raise its error if waiting longer is no use, as after a refused login."""
    try:
        producer.client.init_transactions(_ATTEMPT_S)
    except KafkaException as error:
        with suppress(KafkaException):  # brings the errors that were noticed in the background
            producer.client.poll(0)
        if not error.args[0].retriable() or producer.errors.authentication_failed or time.monotonic() > deadline:
            raise
        return False
    return True


def _advice(why: str) -> str:
    if any(os.strerror(number) in why for number in (errno.EMFILE, errno.ENFILE, errno.EAGAIN)):
        return "this worker may not open more files or start more threads: raise its limits (ulimit -n, ulimit -u)"
    return "check that the cluster is up"


def _connect(producer: ClusterProducer) -> None:
    """Connect to a broker first: `init_transactions` sleeps for 500 ms if it finds none, and does not report the cause."""
    with suppress(KafkaException):  # `init_transactions` reports it
        for _ in range(2):  # the first answer comes from a bootstrap server, the second one from a broker by its id
            producer.connect(_ANY_TOPIC, _CONNECT_S)


class TransactionalProducers(AbstractContextManager["TransactionalProducers"]):
    """A task's producers, each within a transaction of its own. Use it in a `with` block; leave it after `prepare`.

    A block that ends without `prepare` aborts the transactions. The task's generation decides which ids are free.
    """

    def __init__(self, task: WriteTask) -> None:
        self._task = task
        self._begun: dict[str, _TransactionalProducer] = {}
        self._keys: dict[str, Hashable] = {}

    def producer(self, cluster: str) -> ClusterProducer:
        """As `producers.TaskProducers` says."""
        if cluster not in self._begun:
            self._keys[cluster] = _key(cluster, self._task)
            taken = self._begun[cluster] = _take(self._keys[cluster], cluster, self._task)
            taken.transactional_id.write("used", self._task.chain, self._task.generation)
            taken.producer.client.begin_transaction()
        return self._begun[cluster].producer

    def prepare(self) -> tuple[Transaction, ...]:
        """Return the names of the open transactions; their records are acknowledged, and the driver ends them."""
        prepared, self._begun = self._begun, {}  # from here on nothing is aborted
        for cluster, begun in prepared.items():
            _finish(begun, self._keys[cluster], self._task)
        return tuple(
            Transaction(cluster, begun.transactional_id.name, begun.producer_id, begun.producer_epoch)
            for cluster, begun in prepared.items()
        )

    def __exit__(self, *_: object) -> None:
        for cluster, begun in self._begun.items():
            _abort(begun, self._task.destinations[cluster].properties)


def _abort(begun: _TransactionalProducer, properties: Mapping[str, str]) -> None:
    """Abort a transaction and close its producer. Never raise: the task has an error of its own, and more clusters.

    librdkafka sends no EndTxn if the answer to its first AddPartitionsToTxn arrives while it empties its queue, and reports
    success (2.16: `txn_req_cnt` is 0 again after an "outdated" answer). The transaction is open then. So it is ended once
    more, by its names, also if librdkafka waits for a partition that hangs. What cannot be aborted here is aborted by the
    next claim.
    """
    try:
        if not begun.producer.errors.authentication_failed:  # each try would be one more refused login
            with suppress(KafkaException):
                begun.producer.client.abort_transaction(_ABORT_S)
            client = TransactionClient(begun.producer.cluster, properties, timeout_ms=int(_END_S * 1000))
            with closing(client):
                client.end(begun.transactional_id.name, begun.producer_id, begun.producer_epoch, commit=False)
    except Exception as error:  # noqa: BLE001  such as one of the library for Kerberos
        _log.warning(
            "Cluster '%s': the transaction '%s' of a failed task may stay open until the next batch aborts it, and readers "
            "with read_committed wait for that: %s",
            begun.producer.cluster,
            begun.transactional_id.name,
            error,
        )
    finally:
        begun.close()
