"""The commit log and its topic, with fakes in the place of Kafka's clients."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError, TransactionError
from dynamic_kafka.kafka.clients import BackgroundErrors
from dynamic_kafka.sink.log import commit_log
from dynamic_kafka.sink.log.chain import Record, State
from dynamic_kafka.sink.log.commit_log import CommitLog
from dynamic_kafka.sink.log.records import encode
from dynamic_kafka.sink.log.topic import REQUIRED

SASL_OF_WRITER = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "writer"}
GOOD = REQUIRED | {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


def done(value: Any = None, error: BaseException | None = None) -> Future[Any]:
    """An answer."""
    future: Future[Any] = Future()
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
    return future


class Clients:
    """A cluster with one topic: consumer, admin and the errors of both."""

    def __init__(self, *, brokers: int = 3, replicas: int = 3, settings: dict[str, str] | None = None) -> None:
        self.errors = BackgroundErrors()
        self.consumer = self.admin = self.producer = self
        self.brokers, self.replicas, self.settings = brokers, replicas, GOOD | (settings or {})
        self.records: list[bytes] = []
        self.asked: list[int] = []
        self.created: list[Any] = []
        self.refusals: list[int] = []
        self.delete_error: BaseException | None = None
        self.exists = True
        self.lookup_error = KafkaError.UNKNOWN_TOPIC_OR_PART
        self.stalls = 0
        self.at = 0
        self.low = 0
        self.deliveries: list[int | None] = []
        self.message_errors: list[int] = []
        self.deleted: list[int] = []
        self.reports: list[Any] = []
        self.knows_leader = True

    # --- producer ---

    def produce(self, _topic: str, value: bytes, *, partition: int, on_delivery: Any) -> None:
        """See `Producer`; `deliveries` are the errors of the next records, None for none."""
        assert partition == 0
        code = self.deliveries.pop(0) if self.deliveries else None
        if code == KafkaError._QUEUE_FULL:  # stands for what is refused at once
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        if code is None or code == KafkaError._MSG_TIMED_OUT:  # then it may be in the log
            self.records.append(value)
        if code == KafkaError._IN_PROGRESS:  # stands for no report at all
            return
        error, offset = (None if code is None else KafkaError(code)), len(self.records) - 1
        self.reports.append(lambda: on_delivery(error, SimpleNamespace(offset=lambda: offset)))

    def flush(self, _timeout: float) -> None:
        """See `Producer`."""
        while self.reports:
            self.reports.pop(0)()

    properties = SASL_OF_WRITER

    def poll(self) -> None:
        """See `ClusterClients`."""

    def ask(self, question: Callable[[float], Any], timeout_s: float) -> Any:
        """See `ClusterClients`."""
        return question(timeout_s)

    def result(self, future: Future[Any]) -> Any:
        """See `ClusterClients`."""
        return future.result()

    def reason(self) -> str:
        """See `ClusterClients`."""
        return self.errors.last

    # --- consumer ---

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        """See `Consumer`."""
        if not self.knows_leader:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        return self.low, len(self.records)

    def assign(self, partitions: list[Any]) -> None:
        """See `Consumer`."""
        self.at = partitions[0].offset

    def unassign(self) -> None:
        """See `Consumer`."""

    def consume(self, count: int, timeout: float) -> list[Any]:
        """See `Consumer`, which refuses more than a million."""
        if count > 1_000_000:
            raise ValueError
        self.asked.append(count)
        if self.stalls and len(self.asked) % 2:
            return []
        if self.message_errors:
            error = KafkaError(self.message_errors.pop(0))
            return [SimpleNamespace(error=lambda: error)]
        some = self.records[self.at : self.at + min(count, 500)]
        found = [
            SimpleNamespace(error=lambda: None, offset=lambda n=n: n, value=lambda text=text: text)
            for n, text in enumerate(some, self.at)
        ]
        self.at += len(some)
        return found

    # --- admin ---

    def list_topics(self, topic: str, **_: Any) -> Any:
        """See `AdminClient`, and `Consumer`, whose own metadata it renews."""
        self.knows_leader = True
        error = None if self.exists else KafkaError(self.lookup_error)
        partitions = {0: SimpleNamespace(replicas=list(range(self.replicas)))} if self.exists else {}
        described = SimpleNamespace(error=error, partitions=partitions)
        return SimpleNamespace(brokers=dict.fromkeys(range(self.brokers)), topics={topic: described})

    def create_topics(self, topics: list[Any], **_: Any) -> dict[str, Future[Any]]:
        """See `AdminClient`."""
        self.created.append(topics[0])
        if self.refusals:
            return {topics[0].topic: done(error=KafkaException(KafkaError(self.refusals.pop(0))))}
        self.exists = True
        return {topics[0].topic: done()}

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        """See `AdminClient`."""
        found = {key: SimpleNamespace(value=value) for key, value in self.settings.items()}
        return {resources[0]: done(found)}

    def delete_records(self, partitions: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        """See `AdminClient`."""
        self.deleted.append(partitions[0].offset)
        return {partitions[0]: done(error=self.delete_error)}


def open_log(monkeypatch: pytest.MonkeyPatch, clients: Clients, *, timeout_ms: int = 1000) -> CommitLog:
    """A log on these clients."""
    monkeypatch.setattr(commit_log, "ClusterClients", lambda *_, **__: clients)
    return CommitLog("c", {}, "log", timeout_ms=timeout_ms)


def test_a_log_of_any_length_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a million records at once are refused by the client, and the query could never start again."""
    clients = Clients()
    text = encode(Record("r", -1, State("x", 1, places=("B/log",))))
    clients.records = [text] * 1_500_000
    log = open_log(monkeypatch, clients)
    monkeypatch.setattr(log, "_take_text", lambda *_: setattr(log, "_next", 1_500_000))
    log.read()
    assert clients.asked == [10_000]


def test_a_slow_read_ends_only_without_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes as a whole; silence is an error."""
    clock = [0.0]

    def now() -> float:
        clock[0] += 0.4
        return clock[0]

    clients = Clients()
    clients.records = [encode(Record(f"r{n}", n - 1, State("x", n, places=("B/log",)))) for n in range(5000)]
    clients.stalls = True
    log = open_log(monkeypatch, clients)
    monkeypatch.setattr(commit_log, "time", SimpleNamespace(monotonic=now))
    assert log.read().offset == 4999
    assert clock[0] > 2
    monkeypatch.setattr(clients, "consume", lambda *_, **__: [])
    clients.records.append(clients.records[0])
    with pytest.raises(ClusterUnavailableError, match="could not be read beyond offset 5000 of 5001"):
        log.read()


@pytest.mark.parametrize("error", [TimeoutError(), KafkaException(KafkaError(KafkaError._TIMED_OUT))])
def test_a_failed_trim_never_fails_a_batch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    """It is tried again later."""
    clients = Clients()
    clients.records = [encode(Record(f"r{n}", n - 1, State("x", n, places=("B/log",)))) for n in range(400)]
    clients.delete_error = error
    log = open_log(monkeypatch, clients)
    log.read()
    log.trim()
    assert "could not be trimmed" in caplog.text


def test_a_topic_that_may_not_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not one that does not exist, unless the caller says so."""
    clients = Clients()
    clients.exists = False
    topic = open_log(monkeypatch, clients).topic
    assert not topic.exists()
    clients.lookup_error = KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert not topic.exists(may_be_hidden=True)
    with pytest.raises(
        ClusterUnavailableError,
        match=r"User:writer may not Describe and Read and Write topic 'log'; grant it with kafka-acls\.sh",
    ):
        topic.exists()


def test_trimming_that_is_not_allowed_is_an_error_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a warning for each hundred batches."""
    clients = Clients()
    clients.delete_error = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(ConfigurationError, match=r"cannot be trimmed .*User:writer may not Delete topic 'log'"):
        open_log(monkeypatch, clients).topic.check()


@pytest.mark.parametrize(
    ("brokers", "replication", "replicas", "in_sync"),
    [(1, None, 1, None), (2, None, 2, None), (3, None, 3, "2"), (9, None, 3, "2"), (9, 1, 1, None), (5, 5, 5, "2")],
)
def test_replicas_of_a_new_log(
    monkeypatch: pytest.MonkeyPatch, brokers: int, replication: int | None, replicas: int, in_sync: str | None
) -> None:
    """Kafka's own default is one. No leader may be elected that lacks records."""
    clients = Clients(brokers=brokers)
    clients.exists = False
    open_log(monkeypatch, clients).topic.create(replication)
    (made,) = clients.created
    assert (made.num_partitions, made.replication_factor) == (1, replicas)
    assert made.config.get("min.insync.replicas") == in_sync
    assert made.config["unclean.leader.election.enable"] == "false"
    assert REQUIRED.items() <= made.config.items()


def test_a_cluster_that_refuses_what_is_only_wished(monkeypatch: pytest.MonkeyPatch) -> None:
    """A managed one: it has its own replication, and settings that nobody may change."""
    clients = Clients()
    clients.exists = False
    clients.refusals = [KafkaError.POLICY_VIOLATION, KafkaError.INVALID_REPLICATION_FACTOR]
    open_log(monkeypatch, clients).topic.create(None)
    assert [made.replication_factor for made in clients.created] == [3, 3, -1]
    assert clients.created[-1].config == REQUIRED
    clients.exists, clients.created = False, []
    clients.refusals = [KafkaError.INVALID_REPLICATION_FACTOR]
    with pytest.raises(ConfigurationError, match="cannot be created"):  # what the user wants is not changed in silence
        open_log(monkeypatch, clients).topic.create(5)
    clients.refusals = [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(ConfigurationError, match="User:writer may not Create topic 'log'"):
        open_log(monkeypatch, clients).topic.create(None)


@pytest.mark.parametrize(
    ("clients", "warning"),
    [
        (Clients(), ""),
        (Clients(brokers=1, replicas=1, settings={"min.insync.replicas": "1"}), ""),
        (Clients(replicas=1), "has 1 of 3 brokers as replicas"),
        (Clients(settings={"min.insync.replicas": "1"}), "set min.insync.replicas=2 on the topic"),
        (Clients(settings={"unclean.leader.election.enable": "true"}), "set unclean.leader.election.enable=false"),
    ],
)
def test_a_log_that_may_lose_its_end_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, clients: Clients, warning: str
) -> None:
    """At each start, where we find it and did not make it."""
    with caplog.at_level(logging.WARNING):
        open_log(monkeypatch, clients).topic.check()
    assert (warning in caplog.text) if warning else not caplog.text


# --- appending and reading ----------------------------------------------------------------------------------------------


def record(name: str, follows: int) -> Record:
    """A claim."""
    return Record(name, follows, State("x", follows + 2, places=("B/log",)))


def test_what_was_appended_need_not_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless somebody else has appended in between: then both are read, and only the first counts."""
    clients = Clients()
    log = open_log(monkeypatch, clients)
    log.read()
    log.append(record("a", -1))
    assert (log.read().recent, clients.asked) == ({"a": 0}, [])
    clients.records.append(encode(record("other", 0)))
    log.append(record("b", 0))
    assert log.read().recent == {"a": 0, "other": 1}
    assert len(clients.asked) == 1


@pytest.mark.parametrize(
    "unknown", [KafkaError._MSG_TIMED_OUT, KafkaError._IN_PROGRESS, KafkaError.NOT_ENOUGH_REPLICAS]
)
def test_an_append_without_an_answer_is_repeated(monkeypatch: pytest.MonkeyPatch, unknown: int) -> None:
    """It may be in the log or not; a second copy does not count."""
    clients = Clients()
    clients.deliveries = [unknown, None]
    log = open_log(monkeypatch, clients)
    log.read()
    log.append(record("a", -1))
    assert list(log.read().recent) == ["a"]


def test_an_append_ends_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once if it is refused, else when its time is over."""
    clients = Clients()
    clients.deliveries = [KafkaError.TOPIC_AUTHORIZATION_FAILED, None]
    log = open_log(monkeypatch, clients)
    log.read()
    with pytest.raises(ClusterUnavailableError, match="commit log 'log': User:writer may not Write topic 'log'"):
        log.append(record("a", -1))
    assert clients.deliveries == [None]
    for unknown in (KafkaError._IN_PROGRESS, KafkaError._TRANSPORT):
        clients.deliveries = [unknown, None]
        late = open_log(monkeypatch, clients, timeout_ms=-1)
        with pytest.raises(ClusterUnavailableError, match="could not be appended to"):
            late.append(record("a", -1))
    assert clients.records == []


@pytest.mark.parametrize("refusal", [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._QUEUE_FULL])
def test_a_decision_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch, refusal: int) -> None:
    """By the broker, or by the client at once."""
    clients = Clients()
    clients.deliveries = [refusal]
    with pytest.raises(
        TransactionError, match=r"about 0 transactions \(\d+ bytes .* raise the topic's max\.message\.bytes"
    ):
        open_log(monkeypatch, clients).append(record("a", -1))


def test_errors_while_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """An end is none, others are kept for the error; a log that was trimmed meanwhile is read from its new start."""
    clients = Clients()
    clients.records = [encode(record(f"r{n}", n - 1)) for n in range(10)]
    clients.message_errors = [KafkaError._PARTITION_EOF, KafkaError._ALL_BROKERS_DOWN]
    log = open_log(monkeypatch, clients)
    assert log.read().offset == 9
    assert clients.errors.last == KafkaError(KafkaError._ALL_BROKERS_DOWN).str()
    for trimmed in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        clients.message_errors = [trimmed]
        clients.low = 5
        fresh = open_log(monkeypatch, clients)
        monkeypatch.setattr(fresh, "_next", 2)
        chain = fresh.read()
        assert (chain.offset, min(chain.recent.values())) == (9, 5)


def test_a_log_is_trimmed_when_it_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 300 records, up to the head."""
    clients = Clients()
    clients.records = [encode(record(f"r{n}", n - 1)) for n in range(300)]
    log = open_log(monkeypatch, clients)
    log.read()
    log.trim()
    assert clients.deleted == []
    log.append(record("r300", 299))
    log.trim()
    log.trim()
    assert clients.deleted == [300]


def test_a_leader_that_moved_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client would keep metadata without a leader for minutes (seen after the leader of the log was killed)."""
    clients = Clients()
    log = open_log(monkeypatch, clients)
    log.append(Record("a", -1, State(chain="c", generation=1, places=("B/log",))))
    clients.knows_leader = False
    assert log.read().state.generation == 1
