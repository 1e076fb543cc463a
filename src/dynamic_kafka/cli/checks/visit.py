"""A cluster that is examined: what was asked so far, so that each thing is asked once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation, ConfigResource
from confluent_kafka.admin import ResourceType as Kind

from dynamic_kafka.cli.connection import first_messages
from dynamic_kafka.cli.job import Job, Target
from dynamic_kafka.kafka.clients import ClientSettings, ClusterClients
from dynamic_kafka.kafka.error_codes import NO_SUCH_TOPIC, may_pass
from dynamic_kafka.kafka.probing import Probe, probe
from dynamic_kafka.kafka.transactions.security import ConnectionSettings

__all__ = ["NotAnsweredError", "TopicState", "Visit"]

T = TypeVar("T")
_AT_ONCE = 16
_PAUSE_S = 0.2
_READER = {"group.id": "dynamic-kafka-doctor", "enable.partition.eof": "true"}
_DENIED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)


class NotAnsweredError(Exception):
    """A question was not answered: the reason, as a clause, and whether the user may not ask."""

    def __init__(self, reason: str, *, denied: bool = False) -> None:
        super().__init__(reason)
        self.denied = denied


@dataclass(frozen=True)
class TopicState:
    """A topic as a cluster describes it.

    It has 0 partitions if it does not exist, or if this user may not see it, which is `hidden`. `leaderless` is the number
    of those without a leader. `rights` are what this user may do, in Kafka's words (`Read`); None if the cluster does not
    say.
    """

    partitions: int = 0
    leaderless: int = 0
    rights: frozenset[str] | None = None
    hidden: bool = False


@dataclass
class Visit:
    """The examination of one cluster. For one thread. `timeout_s` is the longest time of one question.

    Attributes:
        settings: How to connect without librdkafka; None if that is not possible.
        can_log_in: Whether that includes the login.
        stop: Why nothing more is asked; "" while there is no reason.
        probes: What was found at the addresses.
    """

    target: Target
    job: Job
    timeout_s: float
    settings: ConnectionSettings | None = None
    can_log_in: bool = True
    stop: str = ""
    probes: list[Probe] = field(default_factory=list)

    @cached_property
    def clients(self) -> ClusterClients:
        """The clients of librdkafka."""
        properties = dict(self.target.properties)
        if not self.can_log_in:
            # Nobody has tried the login yet: one try within the time, because some servers lock accounts.
            properties |= {"reconnect.backoff.ms": "10000", "reconnect.backoff.max.ms": "10000"}
        return ClusterClients(properties, consumer=ClientSettings(fixed=_READER))

    def close(self) -> None:
        """Close the clients."""
        self.clients.close()

    def probe_all(self, addresses: list[tuple[str, int]], *, login: bool) -> list[Probe]:
        """Look at addresses, side by side."""
        settings = self.settings
        assert settings is not None
        if not addresses:
            return []
        with ThreadPoolExecutor(min(_AT_ONCE, len(addresses))) as pool:
            return list(pool.map(lambda a: probe(a, settings, self.timeout_s, login=login), addresses))

    # --- questions ---

    def ask(self, question: Callable[[], T]) -> T:
        """Return an answer of librdkafka. It is asked again while a broker says that it is not ready.

        Raises:
            NotAnsweredError: If there is none.
        """
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                return question()
            except KafkaException as failure:
                found = failure.args[0]
                # Below 0 it is librdkafka that gave up, after the whole time.
                if found.code() > 0 and may_pass(found) and time.monotonic() < deadline:
                    time.sleep(_PAUSE_S)
                    continue
                self.clients.poll()
                background = self.clients.errors.last
                reason = (found.str() or found.name()) + (f" ({background})" if background and found.code() < 0 else "")
                raise NotAnsweredError(reason, denied=found.code() in _DENIED) from failure

    @cached_property
    def described(self) -> Any:
        """What the cluster says of itself, with its brokers."""
        return self.ask(lambda: self.clients.admin.describe_cluster(request_timeout=self.timeout_s).result())

    @cached_property
    def topics(self) -> dict[str, TopicState]:
        """The topics of the query, with those that match its pattern, and the commit log."""
        names = set(self.target.topics)
        if (pattern := self.target.pattern) is not None:
            listed = self.ask(lambda: self.clients.consumer.list_topics(timeout=self.timeout_s))
            names |= {name for name in listed.topics if not name.startswith("__") and pattern.fullmatch(name)}
        if self.job.log_topic:
            names.add(self.job.log_topic)
        if not names:
            return {}
        asked = self.ask(
            lambda: self.clients.admin.describe_topics(
                TopicCollection(sorted(names)),
                include_authorized_operations=True,
                request_timeout=self.timeout_s,
            )
        )
        return {name: self._topic(future) for name, future in asked.items()}

    def _topic(self, future: Any) -> TopicState:
        try:
            found = future.result()
        except KafkaException as failure:
            code = failure.args[0].code()
            if code in NO_SUCH_TOPIC:
                return TopicState()
            if code in _DENIED:
                return TopicState(hidden=True, rights=frozenset())
            raise NotAnsweredError(failure.args[0].str()) from failure
        leaderless = sum(p.leader is None or p.leader.id is None or p.leader.id < 0 for p in found.partitions)
        return TopicState(len(found.partitions), leaderless, rights_of(found.authorized_operations))

    def group_rights(self, group: str) -> frozenset[str] | None:
        """Return what the user may do with a consumer group; None if the cluster does not say."""

        def question() -> Any:
            asked = self.clients.admin.describe_consumer_groups(
                [group], include_authorized_operations=True, request_timeout=self.timeout_s
            )
            return asked[group].result()

        try:
            return rights_of(self.ask(question).authorized_operations)
        except NotAnsweredError as refused:
            if refused.denied:
                return frozenset()
            raise

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the first offset of a partition, and the one after its last."""
        asked = TopicPartition(topic, partition)
        found = self.ask(lambda: self.clients.consumer.get_watermark_offsets(asked, timeout=self.timeout_s))
        return found or (0, 0)

    def without_record(self, last: list[TopicPartition]) -> list[TopicPartition]:
        """Return those of the last offsets of partitions where a reader gets no record."""
        if not last:
            return []
        seen = first_messages(self.clients.consumer, last, self.timeout_s)
        ends = {tp for tp, (_, error) in seen.items() if error == KafkaError._PARTITION_EOF}
        return [tp for tp in last if (tp.topic, tp.partition) in ends]

    @cached_property
    def broker_configuration(self) -> Mapping[str, str]:
        """The configuration of one of the brokers."""
        asked = ConfigResource(Kind.BROKER, str(self.described.nodes[0].id))
        found = self.ask(
            lambda: self.clients.admin.describe_configs(  # noqa: PLW0108  (a question is sent again by asking again)
                [asked], request_timeout=self.timeout_s
            )[asked].result()
        )
        return {name: entry.value for name, entry in found.items() if entry.value is not None}


def rights_of(operations: list[AclOperation] | None) -> frozenset[str] | None:
    """Return operations in the words of Kafka's own tools: `DescribeConfigs`."""
    if operations is None:
        return None
    return frozenset("".join(word.capitalize() for word in operation.name.split("_")) for operation in operations)
