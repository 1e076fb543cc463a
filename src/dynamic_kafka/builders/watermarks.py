"""`WatermarkStrategy` with PyFlink's names: the delay of Spark's watermark, and how partitions are aligned to it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.options import duration_ms, options_of
from dynamic_kafka.source.settings import SourceSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["WatermarkStrategy"]

_log = logging.getLogger(__name__)

Duration = timedelta | str
"""A duration, or its text as in options, such as `5 min`."""

_DECLARED = options_of(SourceSettings)


@dataclass(frozen=True)
class WatermarkStrategy:
    """The watermark of a source's rows (Flink: WatermarkStrategy). Each method returns a new strategy.

    Examples:
        >>> strategy = (
        ...     WatermarkStrategy.for_bounded_out_of_orderness("10 s")
        ...     .with_watermark_alignment("flights", "10 s")
        ...     .with_idleness("1 min")
        ... )
        >>> df = source.read_stream(spark, strategy)  # doctest: +SKIP

    Spark has one watermark for all rows, which follows the fastest partition. With alignment, no partition is read ahead of
    the slowest one by more than the drift. So with a drift of the delay or less, no row of a slower partition is late.
    """

    _delay_ms: int | None = None
    _column: str = "timestamp"
    _options: Mapping[str, str] | None = None

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration) -> WatermarkStrategy:
        """Return a strategy for rows that come late by this at most: the delay of Spark's `withWatermark`."""
        return WatermarkStrategy(_ms(max_out_of_orderness, "max_out_of_orderness"))

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Return a strategy for rows that come in the order of their times: a delay of 0."""
        return WatermarkStrategy(0)

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Return a strategy without a watermark: the query sets one itself (`withWatermark`), or needs none."""
        return WatermarkStrategy()

    def with_timestamp_assigner(self, column: str) -> WatermarkStrategy:
        """Take the time of a row from this column of the deserialized rows.

        Flink calls a function for each record. In Spark a time is a column: compute it in the deserializer. Without this,
        it is the record's timestamp, the column `timestamp`. Alignment always goes by the record's timestamp.
        """
        if not isinstance(column, str):
            raise ConfigurationError(
                "with_timestamp_assigner takes the name of a column. A function for each record, as in Flink, is not "
                "possible in Spark: compute the column in the deserializer, and name it here"
            )
        return replace(self, _column=column)

    def with_idleness(self, idle_timeout: Duration) -> WatermarkStrategy:
        """Set how long a partition that brings no records holds the others back (`scan.watermark.idle-timeout`)."""
        return self._with("idle_timeout_ms", _ms(idle_timeout, "idle_timeout"))

    def with_watermark_alignment(
        self, watermark_group: str, max_allowed_watermark_drift: Duration, update_interval: Duration | None = None
    ) -> WatermarkStrategy:
        """Read no partition ahead of the slowest one by more than the drift.

        Args:
            watermark_group: A name, which is shown in the progress. The partitions of one source are aligned with each
                other, but not with those of other sources: of these, Spark takes the least watermark.
            max_allowed_watermark_drift: The drift, by the timestamps of records.
            update_interval: See `scan.watermark.alignment.update-interval`.
        """
        drift_ms = _ms(max_allowed_watermark_drift, "max_allowed_watermark_drift")
        if self._delay_ms is not None and drift_ms > self._delay_ms:
            _log.warning(
                "A drift of %d ms is more than the watermark's delay of %d ms: rows of a partition that is behind by more "
                "than the delay are late",
                drift_ms,
                self._delay_ms,
            )
        aligned = self._with("alignment_group", watermark_group)._with("alignment_max_drift_ms", drift_ms)
        if update_interval is None:
            return aligned
        return aligned._with("alignment_update_interval_ms", _ms(update_interval, "update_interval"))

    @property
    def options(self) -> dict[str, str]:
        """Return the options of the source that the strategy sets."""
        return dict(self._options or {})

    def applied(self, rows: DataFrame) -> DataFrame:
        """Return the rows with the watermark.

        Raises:
            ConfigurationError: If the column with the time is not among them.
        """
        if self._delay_ms is None:
            return rows
        if self._column not in rows.columns:
            raise ConfigurationError(
                f"The rows have no column '{self._column}' for the watermark, only {', '.join(rows.columns)}. Name the "
                "column with the time in with_timestamp_assigner, or keep 'timestamp' in the deserializer"
            )
        return rows.withWatermark(self._column, f"{self._delay_ms} milliseconds")

    def _with(self, setting: str, value: int | str) -> WatermarkStrategy:
        return replace(self, _options={**self.options, _DECLARED[setting].key: str(value)})


def _ms(duration: Duration, argument: str) -> int:
    given = f"{round(duration.total_seconds() * 1000)} ms" if isinstance(duration, timedelta) else duration
    try:
        return duration_ms(at_least=0)(given)
    except (ValueError, AttributeError, TypeError):
        raise ConfigurationError(
            f"{argument} is {duration!r}; give a timedelta, or a text such as '30 s' or '5 min', of 0 or more"
        ) from None
