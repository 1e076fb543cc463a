"""A metadata service that is told what to answer."""

from __future__ import annotations

from collections.abc import Iterable

from dynamic_kafka.metadata.model import KafkaStream
from dynamic_kafka.metadata.service import StreamListService

__all__ = ["InMemoryMetadataService"]


class InMemoryMetadataService(StreamListService):
    """Streams held in memory, for fixed metadata and for tests.

    It is copied to the reader process when a query starts: later changes are seen by users of this very object, never by
    a query that runs. Thread-safe: each change is one assignment, or one change of a set.

    Args:
        streams: The streams it knows at first.
    """

    def __init__(self, streams: Iterable[KafkaStream] = ()) -> None:
        self._inactive: set[str] = set()
        self.set_streams(streams)

    def set_streams(self, streams: Iterable[KafkaStream]) -> None:
        """Replace all streams."""
        self._streams = tuple(streams)

    def set_active(self, cluster_id: str, active: bool) -> None:  # noqa: FBT001  # reads well: set_active("a", False)
        """Say whether a cluster is active; all are until this says otherwise."""
        if active:
            self._inactive.discard(cluster_id)
        else:
            self._inactive.add(cluster_id)

    def get_all_streams(self) -> tuple[KafkaStream, ...]:
        """The streams last set."""
        return self._streams

    def is_cluster_active(self, cluster_id: str) -> bool:
        """Whether nobody called the cluster inactive."""
        return cluster_id not in self._inactive
