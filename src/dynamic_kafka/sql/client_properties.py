"""Kafka properties of a table that change nothing in Flink, or not what a table has.

Flink overrides some, and Kafka's client ignores settings of topics. Scripts have them all the same, so a table of SQL
leaves them out with a warning. Options of a DataFrame have no such rule: there, each of them is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

__all__ = ["without_effect"]

_log = logging.getLogger(__name__)

_PREFIXES = ("properties.", "kafka.")
_FORMAT = "the table's format reads the bytes, as in Flink"
_DISCOVERY = "as in Flink; 'scan.topic-partition-discovery.interval' is the option"
_OF_TOPICS = "it is a setting of topics, which Kafka's clients ignore: set it where topics are made"
_TOPICS = """
    cleanup.policy delete.retention.ms file.delete.delay.ms flush.messages flush.ms index.interval.bytes
    max.compaction.lag.ms message.format.version message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms
    min.insync.replicas preallocate retention.bytes retention.ms segment.bytes segment.index.bytes segment.jitter.ms
    segment.ms unclean.leader.election.enable
"""
_NO_EFFECT: Mapping[str, str] = {
    **dict.fromkeys(("key.deserializer", "value.deserializer"), _FORMAT),
    "enable.auto.commit": "a group's offsets are committed when a micro-batch has finished",
    **dict.fromkeys(("flink.partition-discovery.interval-millis", "partition-discovery.interval-millis"), _DISCOVERY),
    **dict.fromkeys(_TOPICS.split(), _OF_TOPICS),
}
"""Properties, and why each has no effect."""


def without_effect(options: Mapping[str, str], table: str) -> dict[str, str]:
    """Return a table's options without the properties that have no effect, and warn of each.

    Args:
        options: All of the table's options.
        table: The table's name, for the warning.
    """
    found = dict(options)
    for name in options:
        prefix = next(filter(name.startswith, _PREFIXES), None)
        reason = None if prefix is None else _NO_EFFECT.get(name.removeprefix(prefix))
        if reason is not None:
            del found[name]
            _log.warning("Table %s: option '%s' has no effect: %s", table, name, reason)
    return found
