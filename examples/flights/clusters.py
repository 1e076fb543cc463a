"""The clusters of the stream `flights`: their brokers, and the metadata file that describes them to the query."""

from __future__ import annotations

from pathlib import Path

import yaml

from dynamic_kafka.testing import KafkaBroker

__all__ = ["STREAM", "Clusters"]

STREAM = "flights"
_PARTITIONS = 3


class Clusters:
    """One broker for each cluster, and the metadata file with the topics that belong to the stream.

    Args:
        names: The names of the clusters. None is started yet.
        metadata_file: The file that describes the stream to the query, see `dynamic_kafka.metadata.document`.
    """

    def __init__(self, names: tuple[str, ...], metadata_file: Path) -> None:
        self.metadata_file = metadata_file
        self._brokers = {name: KafkaBroker() for name in names}

    def create(self, cluster: str, topic: str) -> None:
        """Create a topic on a cluster, and start the cluster if it is not running. The query does not know the topic yet."""
        self._brokers[cluster].start().create_topic(topic, _PARTITIONS, {"retention.ms": "-1"})  # of 2013

    def bootstrap_servers(self, cluster: str) -> str:
        """Return the addresses of a cluster's brokers."""
        return self._brokers[cluster].bootstrap_servers

    def describe(self, topics: dict[str, list[str]]) -> None:
        """Set the topics and clusters of the stream by replacing the metadata file.

        Args:
            topics: For each cluster, its topics of the stream.
        """
        described = [
            {"clusterId": cluster, "bootstrapServers": self.bootstrap_servers(cluster), "topics": its_topics}
            for cluster, its_topics in topics.items()
        ]
        new = self.metadata_file.with_suffix(".new")
        new.write_text(yaml.safe_dump([{"streamId": STREAM, "clusterMetadataList": described}], sort_keys=False))
        new.replace(self.metadata_file)  # atomic: the query sees the old document or the new one

    def switch_off(self, cluster: str) -> None:
        """Stop a cluster for good."""
        self._brokers[cluster].close()

    def close(self) -> None:
        """Stop all clusters."""
        for broker in self._brokers.values():
            broker.close()
