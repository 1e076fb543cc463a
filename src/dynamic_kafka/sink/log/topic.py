"""The topic of a commit log: its making, and the settings that it needs.

Kafka must not delete or compact any record (`REQUIRED`): then it is an error. The other settings make it unlikely that
acknowledged records are lost with a broker: they are set where we make the topic, and a warning where it has others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ClusterMetadata, ConfigResource, NewTopic, ResourceType, TopicMetadata

from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError, may_not
from dynamic_kafka.kafka.clients import ClusterClients
from dynamic_kafka.kafka.error_codes import NO_SUCH_TOPIC, may_pass
from dynamic_kafka.kafka.logins import principal

__all__ = ["ASK_S", "REQUIRED", "LogTopic", "Problem", "problems"]

_log = logging.getLogger(__name__)

ASK_S = 5.0
"""The longest time of one request, of which several fit into the time-out of a call."""

REQUIRED = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_MAX_BYTES = 16 * 1024 * 1024  # a decision of a million transactions, compressed
_WISHED = {
    "unclean.leader.election.enable": "false",
    "max.message.bytes": str(_MAX_BYTES),
    "segment.bytes": str(1024 * 1024),  # trimmed records leave the disk in whole segments
}
_REPLICAS = 3
_PAUSE_S = 0.2
_NOT_AUTHORIZED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
_REFUSED_SETTINGS = (KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION)

T = TypeVar("T")


class Problem(NamedTuple):
    """A setting that does not suit a commit log.

    With a severe one Kafka could delete decisions; otherwise decisions may be lost with a broker. `what` reads as it stands
    after the name of the topic.
    """

    severe: bool
    what: str
    remedy: str


def problems(settings: Mapping[str, str] | None, replicas: int, brokers: int) -> Iterator[Problem]:
    """Yield what is wrong with the topic of a commit log. The settings are None if this client may not see them."""
    if settings is not None:
        wrong = {key: settings.get(key) for key, value in REQUIRED.items() if settings.get(key) != value}
        if wrong:
            what = f"has {_shown(wrong)}, so Kafka could delete decisions"
            needed = _shown({key: REQUIRED[key] for key in wrong})
            yield Problem(True, what, f"set {needed}, or name another topic with sink.commit-log.topic")
        unclean, least = "unclean.leader.election.enable", "min.insync.replicas"
        if settings.get(unclean) == "true":
            what = f"has {unclean}=true, so a new leader may lack the last decisions"
            yield Problem(False, what, f"set {unclean}=false")
        if replicas >= _REPLICAS and int(settings.get(least) or 2) < 2:
            what = f"has {least}=1, so a decision may be on one broker only when that is lost"
            yield Problem(False, what, f"set {least}=2 on the topic")
    if replicas < min(_REPLICAS, brokers):
        what = f"has {replicas} of {brokers} brokers as replicas, so it may be lost with a broker"
        yield Problem(False, what, f"give it {min(_REPLICAS, brokers)} replicas (kafka-reassign-partitions.sh)")


class LogTopic:
    """The topic of a commit log on one cluster. For one thread. The time-out is the longest time that a call may take."""

    def __init__(self, cluster: str, topic: str, clients: ClusterClients, *, timeout_ms: int) -> None:
        self.cluster, self.name = cluster, topic
        self.timeout_s = timeout_ms / 1000
        self._clients = clients

    def kafka_id(self) -> str:
        """Return Kafka's own cluster.id.

        Raises:
            ClusterUnavailableError: If the cluster does not answer.
        """
        ask_s = min(ASK_S, self.timeout_s)
        try:
            return self.patiently(lambda: self._clients.kafka_id(ask_s))
        except KafkaException as error:
            raise self.unavailable(f"could not be looked up ({error.args[0].str()})") from error

    def exists(self, *, may_be_hidden: bool = False) -> bool:
        """Return whether the topic exists. With `may_be_hidden`, one that this client may not see does not exist.

        Raises:
            ClusterUnavailableError: If the topic cannot be looked up.
            ConfigurationError: If the topic is not a commit log, which has one partition.
        """
        try:
            # Asked in short turns: a refused login is noticed between them only.
            found = self.patiently(self._describe)
        except KafkaException as error:
            raise self.unavailable(f"could not be looked up ({error.args[0].str()})") from error
        if found.error is None:
            if len(found.partitions) != 1:
                raise ConfigurationError(
                    f"Cluster '{self.cluster}': topic '{self.name}' has {len(found.partitions)} partitions, but a commit "
                    "log must have one; name another topic with sink.commit-log.topic"
                )
            return True
        if found.error.code() in NO_SUCH_TOPIC:
            return False
        denied = found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        if may_be_hidden and denied:
            return False
        remedy = self.may_not("Describe", "Read", "Write") if denied else "check the log of the brokers"
        raise ClusterUnavailableError(
            f"Cluster '{self.cluster}': the commit log '{self.name}' cannot be looked up ({found.error.str()}); {remedy}",
            cluster_id=self.cluster,
        )

    def create(self, replication: int | None) -> None:
        """Create the topic, with as many replicas as given, or else three if there are as many brokers.

        Raises:
            ConfigurationError: If the cluster refuses.
            ClusterUnavailableError: If the cluster does not answer.
        """
        replicas = replication or min(_REPLICAS, self._brokers())
        in_sync = {"min.insync.replicas": "2"} if replicas >= _REPLICAS else {}
        wishes: list[tuple[int, dict[str, str]]] = [(replicas, _WISHED | in_sync), (replicas, in_sync)]
        if replication is None:
            wishes.append((-1, {}))  # the brokers' default: a managed cluster may insist on it
        for i, (count, settings) in enumerate(wishes):
            try:
                self._create(count, REQUIRED | settings)
                break
            except KafkaException as error:
                refused = error.args[0]
                if refused.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    break
                may_differ = refused.code() in _REFUSED_SETTINGS or (
                    replication is None and refused.code() == KafkaError.INVALID_REPLICATION_FACTOR
                )
                if may_differ and i + 1 < len(wishes):
                    continue
                grant = f". {self.may_not('Create')}" if refused.code() in _NOT_AUTHORIZED else ""
                raise ConfigurationError(
                    f"Cluster '{self.cluster}': the commit log '{self.name}' cannot be created "
                    f"({refused.str().rstrip('.')}); create it with one partition and {_shown(REQUIRED)}{grant}"
                ) from error
        deadline = time.monotonic() + self.timeout_s
        while self._describe().error is not None:
            if time.monotonic() > deadline:
                raise self.unavailable("was created, but the brokers do not list it yet")
            time.sleep(0.02)

    def check(self) -> None:
        """Check that Kafka keeps all records, and that the owner may trim them.

        Raises:
            ConfigurationError: If Kafka may delete records by itself, or if trimming is not allowed.
            ClusterUnavailableError: If the cluster does not answer.
        """
        try:
            settings = self.patiently(self.settings)
            if settings is None:
                what = "Cluster '%s': the settings of the commit log cannot be checked: %s"
                _log.warning(what, self.cluster, self.may_not("DescribeConfigs"))
            replicas, brokers = self.patiently(self.replicas_and_brokers)
            for problem in problems(settings, replicas, brokers):
                self._raise_or_warn(problem)
            self.patiently(self._check_delete)
        except KafkaException as error:
            raise self.unavailable(f"could not be checked ({error.args[0].str()})") from error

    def settings(self) -> dict[str, str] | None:
        """Return the topic's settings; None if this client may not see them.

        Raises:
            KafkaException: If the cluster does not answer.
        """
        resource = ConfigResource(ResourceType.TOPIC, self.name)
        try:
            found = self._clients.admin.describe_configs([resource], request_timeout=self.timeout_s)[resource].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            return None
        return {key: entry.value for key, entry in found.items()}

    def replicas_and_brokers(self) -> tuple[int, int]:
        """Return the number of the topic's replicas, and of the cluster's brokers.

        Raises:
            KafkaException: If the cluster does not answer.
        """
        return len(self._describe().partitions[0].replicas), self._brokers()

    def patiently(self, ask: Callable[[], T]) -> T:
        """Ask again while brokers are away, which clients report at once, and while a login is replaced."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                found = ask()
            except KafkaException as error:
                if self.is_refused():
                    if self._clients.rest_after_refusal(deadline):
                        continue
                    raise
                if time.monotonic() > deadline or not may_pass(error.args[0]):
                    raise
                if error.args[0].code() == KafkaError._TIMED_OUT:
                    self._clients.renew()  # its connections may be dead without a word
                time.sleep(_PAUSE_S)
            else:
                self._clients.errors.clear()
                return found

    def is_refused(self) -> bool:
        """Return whether the cluster has refused the login since the last answer."""
        self._clients.poll()  # brings the errors that were noticed in the background
        return self._clients.errors.authentication_failed

    def may_not(self, *operations: str) -> str:
        """Return who may not do what with the topic, and the command that grants it."""
        return may_not(principal(self._clients.properties), operations, "topic", self.name)

    def denied(self, operation: str) -> ClusterUnavailableError:
        """Return the error for a right that is missing."""
        return ClusterUnavailableError(
            f"Cluster '{self.cluster}', commit log '{self.name}': {self.may_not(operation)}", cluster_id=self.cluster
        )

    def unavailable(self, what: str) -> ClusterUnavailableError:
        """Return the error for a log that does not answer, with what the clients heard in the background."""
        self._clients.poll()
        errors, heard = self._clients.errors, self._clients.reason()
        if errors.authentication_failed:
            text = (
                f"Cluster '{self.cluster}' {errors.verdict}: {heard}. Its commit log '{self.name}' cannot be used; correct "
                "the user, password or certificates (sasl.*, ssl.*)"
            )
        else:
            text = (
                f"Cluster '{self.cluster}': the commit log '{self.name}' {what}{f': {heard}' if heard else ''}; check that "
                "its brokers are up and that the topic has a leader, and start the query again"
            )
        return ClusterUnavailableError(text, cluster_id=self.cluster)

    # --- parts ---

    def _describe(self) -> TopicMetadata:
        return self._list().topics[self.name]

    def _brokers(self) -> int:
        return len(self._list().brokers)

    def _list(self) -> ClusterMetadata:
        ask_s = min(ASK_S, self.timeout_s)
        return self._clients.ask(lambda s: self._clients.admin.list_topics(self.name, timeout=s), ask_s)

    def _create(self, replicas: int, settings: Mapping[str, str]) -> None:
        topic = NewTopic(self.name, num_partitions=1, replication_factor=replicas, config=dict(settings))
        created = self._clients.admin.create_topics([topic], request_timeout=self.timeout_s)
        created[self.name].result(self.timeout_s + 1)

    def _raise_or_warn(self, problem: Problem) -> None:
        if problem.severe:
            raise ConfigurationError(f"Cluster '{self.cluster}': topic '{self.name}' {problem.what}; {problem.remedy}")
        _log.warning(
            "Cluster '%s': the commit log '%s' %s. A batch whose decision is lost is published twice; %s",
            self.cluster,
            self.name,
            problem.what,
            problem.remedy,
        )

    def _check_delete(self) -> None:
        """Raise if records may not be deleted, by asking to delete none: without trimming the log only grows."""
        try:
            for future in self._clients.admin.delete_records(
                [TopicPartition(self.name, 0, 0)], request_timeout=self.timeout_s
            ).values():
                future.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise ConfigurationError(
                    f"Cluster '{self.cluster}': the commit log '{self.name}' cannot be trimmed ({error.args[0].str()}), so "
                    f"each start would take longer than the one before; {self.may_not('Delete')}"
                ) from error
            _log.warning("The commit log '%s' may not be trimmed: %s", self.name, error.args[0].str())


def _shown(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())
