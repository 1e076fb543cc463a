"""A metadata service for one cluster, where each topic is a stream of the same name."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from dynamic_kafka.errors import ConfigurationError, MetadataServiceError
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream

__all__ = ["SingleClusterTopicMetadataService"]

_client_log = logging.getLogger("dynamic_kafka.librdkafka")

_TIMEOUT_S = 30.0


class SingleClusterTopicMetadataService:
    """The topics of one cluster as streams (Flink and PyFlink: the class of this name).

    Only `get_all_streams`, that is, a subscription by pattern, asks the cluster: a stream id given by name is taken for
    a topic, whether it exists yet or not. The client is made at the first such call and never pickled.

    Args:
        cluster_id: What to call the cluster.
        properties: How to reach it, in Java's or librdkafka's property names, with `bootstrap.servers`.

    Raises:
        ConfigurationError: If the cluster id is empty or `bootstrap.servers` is missing.
    """

    def __init__(self, cluster_id: str, properties: Mapping[str, str]) -> None:
        if not cluster_id:
            raise ConfigurationError("The single-cluster metadata service needs a cluster id that is not empty")
        if not properties.get("bootstrap.servers"):
            raise ConfigurationError(
                f"The single-cluster metadata service of '{cluster_id}' needs the Kafka property 'bootstrap.servers'"
            )
        self._cluster_id = cluster_id
        self._properties = dict(properties)
        self._client: Any = None
        self._last_error = ""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    def __repr__(self) -> str:
        return f"SingleClusterTopicMetadataService({self._cluster_id!r})"

    def get_all_streams(self) -> list[KafkaStream]:
        """A stream for each topic that the client may see, without Kafka's internal ones (`__*`).

        Raises:
            MetadataServiceError: If the cluster does not answer within 30 s.
        """
        topics = sorted(topic for topic in self._list_topics() if not topic.startswith("__"))
        return list(self.describe_streams(topics).values())

    def describe_streams(self, stream_ids: Collection[str]) -> dict[str, KafkaStream]:
        """A stream for each id, without asking the cluster."""
        return {
            topic: KafkaStream(topic, {self._cluster_id: ClusterMetadata(frozenset({topic}), self._properties)})
            for topic in stream_ids
        }

    def is_cluster_active(self, cluster_id: str) -> bool:
        """True for the one cluster."""
        return cluster_id == self._cluster_id

    def close(self) -> None:
        """Drop the client; the library closes its connections with the last reference."""
        self._client = None

    def _list_topics(self) -> Collection[str]:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            if self._client is None:
                from dynamic_kafka.kafka.config.properties import client_config

                config: dict[str, Any] = dict(client_config(self._properties, role="admin"))
                self._client = AdminClient(config | {"error_cb": self._remember_error, "logger": _client_log})
            self._last_error = ""
            return self._client.list_topics(timeout=_TIMEOUT_S).topics.keys()  # type: ignore[no-any-return]
        except KafkaException as error:
            if self._client is not None:
                self._client.poll(0)  # serves error_cb, which knows better than "timed out" what is wrong
            self._client = None  # the next one takes the secrets as they are then
            reason = self._last_error or error.args[0].str()
            raise MetadataServiceError(
                f"Cluster '{self._cluster_id}' did not list its topics within {_TIMEOUT_S:g} s: {reason}",
                cluster_id=self._cluster_id,
            ) from None

    def _remember_error(self, error: Any) -> None:
        self._last_error = error.str()
