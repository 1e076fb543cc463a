"""The questions of a task to its cluster: topic ids, the ends of the logs, and whether it is the cluster of the offsets.

Every method waits for an answer, up to the time-outs of the settings, and raises `ClusterUnavailableError` without one. So
what it returns is always an answer, and never a guess.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from dynamic_kafka.errors import CheckpointError, ClusterUnavailableError
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.kafka.clients import LOG_END, LOG_START, ClusterClients, log_offsets
from dynamic_kafka.kafka.error_codes import NO_SUCH_TOPIC
from dynamic_kafka.source.document.offsets import topic_id_text
from dynamic_kafka.source.rules.loss import PartitionAnswer

__all__ = ["GONE", "Inquiry"]

GONE = (*NO_SUCH_TOPIC, KafkaError._UNKNOWN_PARTITION)
"""The errors that say that a topic or partition does not exist."""


class Inquiry:
    """The questions to one cluster.

    Args:
        cluster: The cluster.
        kafka_id: Kafka's own cluster.id, by which the offsets were planned; "" if it is unknown.
        clients: The clients of the task.
        timeout_s: The time-out of each request.
    """

    def __init__(self, cluster: str, kafka_id: str, clients: ClusterClients, timeout_s: float) -> None:
        self._cluster = cluster
        self._kafka_id = kafka_id
        self._clients = clients
        self._timeout_s = timeout_s
        self._requested: Mapping[str, Future[Any]] | None = None

    def request_topic_ids(self, topics: Collection[str]) -> None:
        """Send the request for the ids of topics, without waiting. `topic_ids` returns the answer."""
        self._requested = self._describe(topics) if topics else {}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the ids of the topics that exist; "" for a broker without ids. Send the request if none was sent."""
        if self._requested is None:
            self.request_topic_ids(topics)
        requested, self._requested = self._requested or {}, None
        found = {topic: self._description(topic, future) for topic, future in requested.items()}
        return {topic: topic_id_text(description.topic_id) for topic, description in found.items() if description}

    def partitions(self, tps: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, PartitionAnswer]:
        """Return what the cluster says about the partitions."""
        requested = self._describe({tp.topic for tp in tps})
        found = {topic: self._description(topic, future) for topic, future in requested.items()}
        known = [tp for tp in tps if found[tp.topic] and tp.partition < len(found[tp.topic].partitions)]
        starts, ends = (log_offsets(self._clients, known, which, self._timeout_s) for which in (LOG_START, LOG_END))
        answers = {}
        for tp in tps:
            topic = found[tp.topic]
            answers[tp] = (
                PartitionAnswer(topic_exists=False)
                if topic is None
                else PartitionAnswer(
                    topic_exists=True,
                    topic_id=topic_id_text(topic.topic_id),
                    partitions=len(topic.partitions),
                    start=starts.get(tp),
                    end=ends.get(tp),
                )
            )
        return answers

    def check_cluster(self) -> None:
        """Check that this is the physical cluster that the offsets belong to, before its answer is taken as a proof.

        Raises:
            CheckpointError: If it is another cluster.
        """
        if not self._kafka_id:
            return
        try:
            found = self._clients.kafka_id(self._timeout_s)
        except KafkaException as error:
            raise self._no_answer("its cluster.id", error) from error
        if found and found != self._kafka_id:
            raise CheckpointError(
                f"Cluster '{self._cluster}' leads to Kafka cluster.id {found}, but this batch was planned on "
                f"{self._kafka_id}. Correct the bootstrap servers of the cluster, and start the query again",
                cluster_id=self._cluster,
            )

    def _describe(self, topics: Collection[str]) -> Mapping[str, Future[Any]]:
        described: Mapping[str, Future[Any]] = self._clients.admin.describe_topics(
            TopicCollection(sorted(topics)), request_timeout=self._timeout_s
        )
        return described

    def _description(self, topic: str, future: Future[Any]) -> Any:
        """Return the description of a topic; None if the topic does not exist."""
        try:
            return self._clients.result(future)
        except KafkaException as error:
            if error.args[0].code() not in GONE:
                raise self._no_answer(f"the id of topic '{topic}'", error) from error
            return None

    def _no_answer(self, what: str, error: KafkaException) -> ClusterUnavailableError:
        return ClusterUnavailableError(
            f"Cluster '{self._cluster}': {what} could not be fetched, so the reader cannot tell if the records are the "
            f"planned ones: {error.args[0].str()}; start the query again once the brokers answer",
            cluster_id=self._cluster,
        )
