"""Options about the start and the end of reading that have no effect in Flink beside the table's mode.

Scripts often keep them when the mode is changed. Flink ignores them, so a table of SQL does, too, with a warning. The
source itself has no such rule: two options of a DataFrame that contradict each other are an error.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

__all__ = ["without_unused"]

_log = logging.getLogger(__name__)

_STARTUP, _BOUNDED = "scan.startup.mode", "scan.bounded.mode"
_WITHOUT_MODE = {_STARTUP: "group-offsets", _BOUNDED: "unbounded"}
_MODES = {
    _STARTUP: ("earliest-offset", "latest-offset", "group-offsets", "timestamp", "specific-offsets"),
    _BOUNDED: ("unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets"),
}
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
    """Return the source's options without those that the modes do not use, and warn of each.

    Args:
        source: The source's options.
        table: The table's name, for the warning.
    """
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
