"""Options of a table that have no effect in Flink, such as properties that Flink overrides, or a time beside another mode.

Scripts have them all the same, or keep them when a mode is changed. Flink ignores them, so a table of SQL does, too, with a
warning. Options of a DataFrame have no such rule: there, each of them is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from dynamic_kafka.source.configure import SOURCE_OPTIONS

__all__ = ["without_properties", "without_unused"]

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


def without_properties(options: Mapping[str, str], table: str) -> dict[str, str]:
    """Return a table's options without the properties that have no effect, and warn of each."""
    found = dict(options)
    for name in options:
        prefix = next(filter(name.startswith, _PREFIXES), None)
        reason = None if prefix is None else _NO_EFFECT.get(name.removeprefix(prefix))
        if reason is not None:
            del found[name]
            _log.warning("Table %s: option '%s' has no effect: %s", table, name, reason)
    return found


_STARTUP, _BOUNDED = "scan.startup.mode", "scan.bounded.mode"
_WITHOUT_MODE = {_STARTUP: "group-offsets", _BOUNDED: "unbounded"}
_MODES = {option.key: option.parser.words for option in SOURCE_OPTIONS if option.key in _WITHOUT_MODE}
_BELONGS_TO = {
    "properties.auto.offset.reset": (_STARTUP, "group-offsets"),
    "kafka.auto.offset.reset": (_STARTUP, "group-offsets"),
    "scan.startup.timestamp-millis": (_STARTUP, "timestamp"),
    "scan.startup.specific-offsets": (_STARTUP, "specific-offsets"),
    "scan.bounded.timestamp-millis": (_BOUNDED, "timestamp"),
    "scan.bounded.specific-offsets": (_BOUNDED, "specific-offsets"),
}
"""For each option, the option with the mode, and the only mode that uses it."""


def without_unused(source: Mapping[str, str], table: str) -> dict[str, str]:
    """Return the source's options without those that the modes do not use, and warn of each."""
    found = dict(source)
    for name, (option, wanted) in _BELONGS_TO.items():
        if name not in found:
            continue
        mode = source.get(option, _WITHOUT_MODE[option]).strip().lower()
        if mode == wanted or mode not in _MODES[option]:  # the source says what is wrong with an unknown mode
            continue
        if option not in source and any(key.lower().startswith(("starting", "ending", "history.")) for key in source):
            continue  # where to start or stop is said in Spark's words, and the source says what contradicts them
        del found[name]
        _log.warning(
            "Table %s: option '%s' has no effect, as in Flink: '%s' is '%s', and only '%s' uses it",
            table,
            name,
            option,
            mode,
            wanted,
        )
    return found
