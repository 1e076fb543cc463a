"""Subscribers, which choose the streams that a query reads (FLIP-246: KafkaStreamSubscriber)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Protocol

from dynamic_kafka.errors import ConfigurationError, InvalidOptionError
from dynamic_kafka.metadata.model import KafkaStream
from dynamic_kafka.metadata.service import KafkaMetadataService

__all__ = ["KafkaStreamSubscriber", "StreamPatternSubscriber", "StreamSetSubscriber"]


class KafkaStreamSubscriber(Protocol):
    """The interface of subscribers. Your own is a plain Python class; it is pickled to the reader process and called there.

    All calls come from the thread that calls the metadata service.
    """

    def get_subscribed_streams(self, service: KafkaMetadataService) -> Collection[KafkaStream]:
        """Return the streams to read. Called at each refresh.

        Args:
            service: The metadata service.

        Raises:
            Exception: Any exception that the service raises.
        """


class StreamSetSubscriber:
    """A subscription to streams by id. A stream that does not exist is left out, and read as soon as it exists.

    Args:
        stream_ids: The ids.

    Raises:
        ConfigurationError: If there is no id, or an empty one.
    """

    def __init__(self, stream_ids: Iterable[str]) -> None:
        self.stream_ids = frozenset([stream_ids] if isinstance(stream_ids, str) else stream_ids)
        if not self.stream_ids or "" in self.stream_ids:
            raise ConfigurationError(
                "Option 'stream-ids' names no stream, or has an empty name; name at least one stream"
            )

    def __repr__(self) -> str:
        return f"StreamSetSubscriber({sorted(self.stream_ids)})"

    def get_subscribed_streams(self, service: KafkaMetadataService) -> list[KafkaStream]:
        """Return the streams of the ids that the service knows."""
        described = service.describe_streams(self.stream_ids)
        return [described[stream_id] for stream_id in sorted(self.stream_ids) if stream_id in described]


class StreamPatternSubscriber:
    """A subscription to all streams with an id that contains a match of a pattern.

    The match may be anywhere in the id, as in Flink (`find`): `orders` also matches `old-orders-eu`. Write `^orders$` to
    match the whole id.

    Args:
        pattern: The regular expression, in Python's syntax.

    Raises:
        InvalidOptionError: If the pattern is empty or not a regular expression.
    """

    def __init__(self, pattern: str | re.Pattern[str]) -> None:
        try:
            self.pattern = re.compile(pattern)
        except re.error as error:
            raise InvalidOptionError("stream-pattern", pattern, f"a regular expression ({error})") from None
        if not self.pattern.pattern:
            raise InvalidOptionError("stream-pattern", "", "a regular expression that is not empty")

    def __repr__(self) -> str:
        return f"StreamPatternSubscriber({self.pattern.pattern!r})"

    def get_subscribed_streams(self, service: KafkaMetadataService) -> list[KafkaStream]:
        """Return the streams of the service that match."""
        return [stream for stream in service.get_all_streams() if self.pattern.search(stream.stream_id)]
