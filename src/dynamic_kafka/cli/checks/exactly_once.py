"""Checks for exactly-once: limits of transactions, settings of the commit log, and whether aborted rows are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from confluent_kafka import KafkaException, TopicPartition

from dynamic_kafka.cli.checks.findings import Finding, error, ok, unknown, warning
from dynamic_kafka.cli.checks.visit import NotAnsweredError, Visit
from dynamic_kafka.cli.output import duration
from dynamic_kafka.errors import DynamicKafkaError, listed
from dynamic_kafka.kafka.config.properties import whole_number
from dynamic_kafka.sink.log.topic import LogTopic, problems
from dynamic_kafka.sink.settings import DEFAULT_TRANSACTION_TIMEOUT_MS

__all__ = ["check_commit_log", "check_isolation", "check_transactions", "judge_commit_log", "judge_transactions"]

_TIMEOUT, _MAX_TIMEOUT = "transaction.timeout.ms", "transaction.max.timeout.ms"
_EXPIRATION = "transactional.id.expiration.ms"
_DAY_MS = 86_400_000
_PARTITIONS = 20  # that are looked at


def check_transactions(visit: Visit) -> Iterator[Finding]:
    """Check the limits of transactions on the brokers."""
    try:
        wanted_ms = whole_number(visit.target.properties, _TIMEOUT, DEFAULT_TRANSACTION_TIMEOUT_MS)
        found = visit.broker_configuration
    except (NotAnsweredError, DynamicKafkaError) as refused:
        grant = (
            "grant DescribeConfigs on the Cluster" if isinstance(refused, NotAnsweredError) and refused.denied else ""
        )
        yield unknown(f"the limits of the brokers are not known: {refused}", grant)
        return
    yield from judge_transactions(found, wanted_ms, asked_for=visit.job.purposes["exactly-once"])


def judge_transactions(found: Mapping[str, str], wanted_ms: int, *, asked_for: bool) -> Iterator[Finding]:
    """Judge the limits of transactions in a broker's configuration; `wanted_ms` is the sink's transaction.timeout.ms."""
    judge = error if asked_for else warning
    if _MAX_TIMEOUT not in found:
        yield unknown(f"the brokers do not show {_MAX_TIMEOUT}")
    elif wanted_ms > int(found[_MAX_TIMEOUT]):
        yield judge(
            f"{_TIMEOUT} is {wanted_ms}, but the brokers allow at most {found[_MAX_TIMEOUT]} ({_MAX_TIMEOUT})",
            f"lower properties.{_TIMEOUT}, or raise the brokers' limit",
        )
    else:
        yield ok(
            f"a batch may take {duration(wanted_ms)} ({_TIMEOUT}); the brokers allow {duration(int(found[_MAX_TIMEOUT]))}"
        )
    if _EXPIRATION not in found:
        yield unknown(f"the brokers do not show {_EXPIRATION}")
        return
    expires_ms = int(found[_EXPIRATION])
    text = f"the brokers forget a transactional id after {duration(expires_ms)} ({_EXPIRATION})"
    if expires_ms <= wanted_ms:
        yield judge(f"{text}, which is not more than {_TIMEOUT}", f"raise {_EXPIRATION}; Kafka's default is 7 days")
    elif expires_ms < _DAY_MS:
        yield warning(
            f"{text}. A query that is down for longer cannot tell whether its last batch was published",
            f"raise {_EXPIRATION}; Kafka's default is 7 days",
        )
    else:
        yield ok(text)


def check_isolation(visit: Visit) -> Iterator[Finding]:
    """Check whether topics that are read uncommitted are written in transactions, as far as their last offsets show it.

    After a transaction the last offset is that of its marker, which no reader gets. So nothing is found where others write
    without transactions, too, and then nothing is said.
    """
    if visit.target.properties.get("isolation.level", "read_uncommitted") == "read_committed":
        return
    last = [
        TopicPartition(topic, partition, end - 1)
        for topic, partition in [(t, p) for t, state in sorted(visit.topics.items()) for p in range(state.partitions)][
            :_PARTITIONS
        ]
        for start, end in [visit.ends(topic, partition)]
        if start < end
    ]
    if marked := {tp.topic for tp in visit.without_record(last)}:
        yield warning(
            f"{listed(sorted(marked), 5)}: written in transactions, and read with isolation.level=read_uncommitted, which "
            "also reads the rows of aborted ones, for example of exactly-once sinks",
            "set properties.isolation.level=read_committed",
        )


def check_commit_log(visit: Visit) -> Iterator[Finding]:
    """Check the settings of the commit log, as the sink does when it starts."""
    name = visit.job.log_topic
    if not name:
        yield unknown("no prefix is given, so the commit log is not known", "add --prefix")
        return
    try:
        state = visit.topics[name]
        if not state.partitions:
            hidden = "this user may not see the topic, or " if state.hidden else ""
            yield ok(
                f"'{name}' is not here: {hidden}the sink makes it with its first batch, here or on another cluster"
            )
            return
        topic = LogTopic(visit.target.cluster, name, visit.clients, timeout_ms=int(visit.timeout_s * 1000))
        settings = topic.settings()
        replicas, brokers = topic.replicas_and_brokers()
    except (NotAnsweredError, KafkaException) as refused:
        text = refused.args[0].str() if isinstance(refused, KafkaException) else str(refused)
        yield unknown(f"'{name}' cannot be described: {text}")
        return
    yield from judge_commit_log(name, settings, (state.partitions, replicas, brokers))


def judge_commit_log(name: str, settings: Mapping[str, str] | None, counts: tuple[int, int, int]) -> Iterator[Finding]:
    """Judge the topic of a commit log.

    `settings` is None if they may not be seen. The counts are those of partitions, replicas and brokers.
    """
    partitions, replicas, brokers = counts
    if partitions != 1:
        yield error(f"'{name}' has {partitions} partitions, but a commit log has one", "name another topic")
        return
    found = list(problems(settings, replicas, brokers))
    for problem in found:
        yield (error if problem.severe else warning)(f"'{name}' {problem.what}", problem.remedy)
    if settings is None:
        yield unknown(f"the settings of '{name}' may not be seen", f"grant DescribeConfigs on Topic '{name}'")
    elif not found:
        least = settings.get("min.insync.replicas", "?")
        yield ok(f"'{name}' keeps all records, on {replicas} of {brokers} brokers, min.insync.replicas={least}")
