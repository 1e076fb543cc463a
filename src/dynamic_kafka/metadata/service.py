"""The metadata service, which maps streams to topics on clusters (FLIP-246: KafkaMetadataService)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

from dynamic_kafka.metadata.model import KafkaStream

__all__ = ["KafkaMetadataService", "StreamListService"]


@runtime_checkable
class KafkaMetadataService(Protocol):
    """The interface of metadata services. Your own service is a plain Python class that need not inherit from this one.

    The user creates the object, or the option `metadata-service` does. It is pickled to the reader process that Spark runs
    on the driver's machine for each query, so it should open files and connections at the first call, not when created.
    In that process one daemon thread makes all calls, one after the other, so no call needs a lock. No other thread waits
    for a call, so a call may be slow. Give network calls a time-out: if a call never returns, the last answer stays in
    force for ever.

    An exception of any type means that the service failed this time. The last good answer then stays in force, and
    `stream-metadata-discovery-failure-threshold` is the number of failures in a row that are tolerated. The exception's
    text is logged and shown to the user, so it must not contain a secret.

    Examples:
        >>> class Registry:
        ...     def get_all_streams(self) -> Collection[KafkaStream]: ...
        ...     def describe_streams(self, stream_ids: Collection[str]) -> Mapping[str, KafkaStream]: ...
        ...     def is_cluster_active(self, cluster_id: str) -> bool: ...
        ...     def close(self) -> None: ...
    """

    def get_all_streams(self) -> Collection[KafkaStream]:
        """Return all streams. Called at each refresh of a query that subscribes to a pattern.

        Raises:
            Exception: If the service cannot answer now.
        """

    def describe_streams(self, stream_ids: Collection[str]) -> Mapping[str, KafkaStream]:
        """Return some streams. Called at each refresh of a query that subscribes to stream ids.

        Args:
            stream_ids: The ids.

        Returns:
            Each stream by its id. If an id is missing, the stream no longer exists, and the query stops reading it. So
            raise an exception if the service merely does not know.

        Raises:
            Exception: If the service cannot answer now.
        """

    def is_cluster_active(self, cluster_id: str) -> bool:
        """Return whether a cluster is still in use. Called now and then for clusters that fail or are being removed.

        Args:
            cluster_id: The cluster. It may be one that no stream names any longer.

        Returns:
            False if the query may drop the cluster without reading its remaining records, and ignore its errors.

        Raises:
            Exception: If the service cannot answer now. The last answer then stays, and no failure is counted.
        """

    def close(self) -> None:
        """Close connections. Called once, by the same thread, when the query ends; not if the process crashes."""


class StreamListService(ABC):
    """The base class of services that always have the full list of their streams.

    The list says nothing about clusters that it does not name. They count as active, so a cluster that is drained is read
    until no records arrive.
    """

    @abstractmethod
    def get_all_streams(self) -> Sequence[KafkaStream]:
        """Return all streams, read again if necessary."""

    def describe_streams(self, stream_ids: Collection[str]) -> dict[str, KafkaStream]:
        """Return the streams with these ids."""
        return {stream.stream_id: stream for stream in self.get_all_streams() if stream.stream_id in stream_ids}

    def is_cluster_active(self, cluster_id: str) -> bool:  # noqa: ARG002  # one answer for all
        """Return True: a list of streams does not say whether a cluster is active."""
        return True

    def close(self) -> None:  # noqa: B027  # most services have nothing to close
        """Close nothing."""
