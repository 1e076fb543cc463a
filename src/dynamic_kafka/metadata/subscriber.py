"""Which streams a query reads (FLIP-246: KafkaStreamSubscriber)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Protocol

from dynamic_kafka.errors import ConfigurationError, InvalidOptionError
from dynamic_kafka.metadata.model import KafkaStream
from dynamic_kafka.metadata.service import KafkaMetadataService

__all__ = ["KafkaStreamSubscriber", "StreamPatternSubscriber", "StreamSetSubscriber"]


class KafkaStreamSubscriber(Protocol):
    """Chooses streams. Write your own in plain Python; it is pickled to the reader process and called there.

    All calls come from the thread that calls the metadata service.
    """

    def get_subscribed_streams(self, service: KafkaMetadataService) -> Collection[KafkaStream]:
        """The streams to read now; called at each refresh.

        Args:
            service: Knows the streams.

        Raises:
            Exception: Whatever the service raises.
        """


class StreamSetSubscriber:
    """Subscribes to streams by id.

    A stream that the service does not know is left out: it is read once it is there.

    Args:
        stream_ids: The ids.

    Raises:
        ConfigurationError: If there is none, or an empty one.
    """

    def __init__(self, stream_ids: Iterable[str]) -> None:
        self.stream_ids = frozenset([stream_ids] if isinstance(stream_ids, str) else stream_ids)
        if not self.stream_ids or "" in self.stream_ids:
            raise ConfigurationError("Option 'stream-ids' names no stream, or an empty one; name at least one")

    def __repr__(self) -> str:
        return f"StreamSetSubscriber({sorted(self.stream_ids)})"

    def get_subscribed_streams(self, service: KafkaMetadataService) -> list[KafkaStream]:
        """The streams of the ids that the service knows."""
        described = service.describe_streams(self.stream_ids)
        return [described[stream_id] for stream_id in sorted(self.stream_ids) if stream_id in described]


class StreamPatternSubscriber:
    """Subscribes to all streams whose id contains a match.

    The pattern is searched for anywhere in the id, as Flink does it (`find`): `orders` also finds `old-orders-eu`. Write
    `^orders$` for a whole id. The syntax is Python's.

    Args:
        pattern: The regular expression.

    Raises:
        InvalidOptionError: If the pattern is empty or no regular expression.
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
        """The streams of the service that match."""
        return [stream for stream in service.get_all_streams() if self.pattern.search(stream.stream_id)]
