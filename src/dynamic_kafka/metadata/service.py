"""The metadata service: who knows which topics on which clusters make up a stream (FLIP-246: KafkaMetadataService)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

from dynamic_kafka.metadata.model import KafkaStream

__all__ = ["KafkaMetadataService", "StreamListService"]


@runtime_checkable
class KafkaMetadataService(Protocol):
    """The source of truth for streams. Write your own in plain Python; inheriting from this class is not needed.

    The object is made by the user, or from the option `metadata-service`, and pickled to the reader process that Spark
    runs on the driver's machine for each query: it should open files and connections when first asked, not when made.
    There, one daemon thread makes all calls, one after the other, so that no call needs a lock. Other threads never wait
    for a call, and an answer may take its time; give network calls a time-out, for a call that never returns leaves
    the last answer in force for ever.

    Any exception means that the service failed this time, whatever its type: the last good answer stays in force, and
    `stream-metadata-discovery-failure-threshold` says how many failures in a row are tolerated. An exception's text is
    shown to the user and logged, so it must not hold a secret.

    Example:
        >>> class Registry:
        ...     def get_all_streams(self) -> Collection[KafkaStream]: ...
        ...     def describe_streams(self, stream_ids: Collection[str]) -> Mapping[str, KafkaStream]: ...
        ...     def is_cluster_active(self, cluster_id: str) -> bool: ...
        ...     def close(self) -> None: ...
    """

    def get_all_streams(self) -> Collection[KafkaStream]:
        """All streams there are; called at each refresh of a query that subscribes to a pattern.

        Raises:
            Exception: If the service cannot answer now.
        """

    def describe_streams(self, stream_ids: Collection[str]) -> Mapping[str, KafkaStream]:
        """The streams asked for; called at each refresh of a query that subscribes to stream ids.

        Args:
            stream_ids: The ids.

        Returns:
            Each stream by its id. An id that is left out is a stream that no longer exists, and is no longer read: raise
            if the service merely cannot tell.

        Raises:
            Exception: If the service cannot answer now.
        """

    def is_cluster_active(self, cluster_id: str) -> bool:
        """Whether a cluster is still in use; called now and then for clusters that fail or are leaving.

        Args:
            cluster_id: The cluster; it may be one that no stream names any longer.

        Returns:
            False lets the query drop the cluster without reading on, and ignore its errors meanwhile.

        Raises:
            Exception: If the service cannot answer now; the last answer then stays, and no failure is counted.
        """

    def close(self) -> None:
        """Let go of connections; called once, by the same thread, when the query ends. It may be skipped at a crash."""


class StreamListService(ABC):
    """A service that always has all its streams at hand: a subclass only says how it comes by them.

    A list says which clusters are to be read, and nothing about those it does not name: they count as active, so that one
    that is drained is read until it is quiet.
    """

    @abstractmethod
    def get_all_streams(self) -> Sequence[KafkaStream]:
        """All streams, read anew if need be."""

    def describe_streams(self, stream_ids: Collection[str]) -> dict[str, KafkaStream]:
        """Those of all streams that are asked for."""
        return {stream.stream_id: stream for stream in self.get_all_streams() if stream.stream_id in stream_ids}

    def is_cluster_active(self, cluster_id: str) -> bool:  # noqa: ARG002  # one answer for all
        """Always: a list cannot tell."""
        return True

    def close(self) -> None:  # noqa: B027  # most have nothing to let go of
        """Nothing to let go of."""
