"""The options of a history."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

from dynamic_kafka.errors import ConfigurationError, ConflictingOptionsError
from dynamic_kafka.history.model import TimeLimit
from dynamic_kafka.options import Option, ParsedOptions, choice, integer, non_blank

__all__ = ["HISTORY_OPTIONS", "HistorySettings", "Switch", "history_settings"]

Switch = Literal["coordinates", "checkpoint", "starting-offsets", "timestamp"]
HistoryFormatName = Literal["parquet", "orc", "csv", "csv-rfc4180", "json", "delta", "iceberg"]


class HistorySettings(NamedTuple):
    """What is read before Kafka.

    Attributes:
        path: The folder or file.
        format: The format of its files.
        switch: How Kafka goes on.
        limit: The rows that are left out, because Kafka has them.
        time_column: The column by which files are ordered; "" orders them by their paths.
        columns: The columns that Spark asked for.
        version: The version of a Delta table, or the snapshot of an Iceberg table; None is the newest.
        checkpoint: The checkpoint of the query that has written the history, for the switch `checkpoint`.
        row: The columns of the table, as the Arrow type of a struct; None without a table.
        optional: Those that files may lack.
    """

    path: str
    format: str
    switch: Switch
    limit: TimeLimit | None
    time_column: str
    columns: tuple[str, ...] = ()
    version: int | None = None
    checkpoint: str = ""
    row: Any = None
    optional: frozenset[str] = frozenset()


_PATH = Option(
    "history.path",
    non_blank("a path"),
    doc="A folder or file that is read first, before Kafka: a local path, or an address such as `s3://bucket/path`. It is "
    "frozen when the query first starts. See docs/guides/history.md.",
)
_FORMAT = Option(
    "history.format",
    choice(*get_args(HistoryFormatName)),
    "parquet",
    doc="The format of the history: files of `parquet`, `orc`, `csv` (as Spark writes it), `csv-rfc4180` (with doubled "
    "quotes) or `json`, or a table of `delta` (the extra `deltalake`) or `iceberg` (the extra `iceberg`). For Iceberg, "
    "`history.path` is `catalog.namespace.table`, or the "
    "address of its `metadata.json`.",
)
_VERSION = Option(
    "history.version",
    integer(at_least=0, expected="a whole number"),
    shown_default="the newest",
    doc="The version of the Delta table, or the id of the Iceberg table's snapshot.",
)
_SWITCH = Option(
    "history.switch",
    choice(*get_args(Switch)),
    "coordinates",
    doc="How Kafka goes on after the history: `coordinates` after the largest offset of each partition in the history "
    "(exactly, if its rows show it), `checkpoint` where the query ended that wrote the history, by its checkpoint, "
    "`starting-offsets` at the starting offsets that you give, `timestamp` at a time.",
)
_CHECKPOINT = Option(
    "history.switch.checkpoint",
    non_blank("a path"),
    doc="With the switch `checkpoint`: the checkpoint of the query that wrote the history from Kafka, with this source or "
    "Spark's own. The query has to be stopped.",
)
_TIMESTAMP = Option(
    "history.switch.timestamp-millis",
    integer(at_least=0, at_most=2**63 - 1, expected="milliseconds since 1970"),
    doc="The time of the switch, in milliseconds since 1970, with the switch `timestamp`: the history is read up to it, and "
    "Kafka from it on.",
)
_TIME_COLUMN = Option(
    "history.time-column",
    non_blank("a column"),
    shown_default="`timestamp` for the switch `timestamp`",
    doc="The column with the time of the history's rows. If it is set, files are read in the order of their earliest time; "
    "otherwise in the order of their offsets and of the column `timestamp`.",
)
HISTORY_OPTIONS: tuple[Option[object], ...] = (  # type: ignore[assignment]
    *(_PATH, _FORMAT, _VERSION, _SWITCH, _CHECKPOINT, _TIMESTAMP, _TIME_COLUMN),
)
"""The options of a history."""


def history_settings(parsed: ParsedOptions, starting: list[str]) -> HistorySettings | None:
    """Return the settings of the history; None without one.

    Args:
        parsed: The options.
        starting: The options that the user gave for where Kafka starts.

    Raises:
        ConfigurationError: If an option is missing, or does not go with another one.
    """
    path = parsed[_PATH]
    if path is None:
        if others := parsed.given(*HISTORY_OPTIONS):
            raise ConfigurationError(f"Option '{_PATH.key}' is missing; '{others[0]}' needs it")
        return None
    switch: Switch = parsed[_SWITCH]
    timestamp_ms, time_column = parsed[_TIMESTAMP], parsed[_TIME_COLUMN]
    if switch != "starting-offsets" and starting:
        raise ConflictingOptionsError(
            [starting[0], _SWITCH.key],
            f"with '{switch}' the history says where Kafka goes on. Leave '{starting[0]}' out, or set "
            f"{_SWITCH.key}=starting-offsets",
        )
    if switch == "starting-offsets" and not starting:
        raise ConfigurationError(
            f"Option '{_SWITCH.key}' is 'starting-offsets', but no starting offsets are given. Give startingOffsets or "
            "scan.startup.mode"
        )
    for option, own in ((_TIMESTAMP, "timestamp"), (_CHECKPOINT, "checkpoint")):
        if (switch == own) != (parsed[option] is not None):
            raise ConfigurationError(
                f"Option '{option.key}' is missing; '{_SWITCH.key}' = '{own}' needs it"
                if switch == own
                else f"Option '{option.key}' needs '{_SWITCH.key}' = '{own}'"
            )
    if parsed[_VERSION] is not None and parsed[_FORMAT] not in ("delta", "iceberg"):
        raise ConfigurationError(
            f"Option '{_VERSION.key}' needs '{_FORMAT.key}' = 'delta' or 'iceberg': only tables have versions"
        )
    limit = None if timestamp_ms is None else TimeLimit(time_column or "timestamp", timestamp_ms)
    return HistorySettings(
        path,
        parsed[_FORMAT],
        switch,
        limit,
        time_column or "",
        version=parsed[_VERSION],
        checkpoint=parsed[_CHECKPOINT] or "",
    )
