"""Settings of a table environment: Flink's names, and what they mean here (`SET 'key' = 'value'`)."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dynamic_kafka.errors import ConfigurationError, InvalidOptionError
from dynamic_kafka.kafka.config.secrets import redact
from dynamic_kafka.options.option import duration_from, duration_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SETTINGS", "TableConfig"]

_log = logging.getLogger(__name__)

SETTINGS: Mapping[str, str] = {
    "execution.runtime-mode": "`streaming` (the default) follows tables, `batch` reads what is there now.",
    "execution.checkpointing.dir": "Where INSERTs keep their checkpoints: each in a folder named after its job.",
    "execution.checkpointing.interval": "Time between micro-batches, such as `10 s`; the default is as soon as possible.",
    "pipeline.name": "Name of the next INSERT's job, and of its checkpoint's folder; the default is the table's name.",
    "parallelism.default": "How many tasks read and write a table that does not say so itself.",
    "table.local-time-zone": "The session's time zone.",
    "table.exec.source.idle-timeout": "Accepted: an idle partition does not hold up Spark's watermark.",
}
"""What can be set. Settings of Spark, `spark.*`, go to the session."""

# A pasted script may hold Flink's other settings; they tune an engine that is not here.
_FLINK = (
    "table.",
    "execution.",
    "pipeline.",
    "sql-client.",
    "state.",
    "restart-strategy",
    "taskmanager.",
    "jobmanager.",
)


class TableConfig:
    """What is set in an environment (PyFlink: TableConfig).

    Args:
        spark: The session that `spark.*` and the time zone are set in.
        changed: Called after each change.
    """

    def __init__(self, spark: SparkSession, changed: Callable[[], None]) -> None:
        self._spark, self._changed = spark, changed
        self._values: dict[str, str] = {}
        self._before: dict[str, str | None] = {}  # what the session had

    def set(self, key: str, value: str) -> TableConfig:
        """Set a key.

        Raises:
            InvalidOptionError: If the value is wrong.
            ConfigurationError: If nobody knows the key.
        """
        _check_known("SET", key)
        value = _checked(key, value)
        in_spark = _in_spark(key)
        if in_spark is not None:
            before = self._spark.conf.get(in_spark, None)
            self._spark.conf.set(in_spark, value)
            self._before.setdefault(key, before)
        elif key not in SETTINGS:
            _log.warning("SET '%s' has no effect: there is no such thing in Spark", key)
        self._values[key] = value
        self._changed()
        return self

    def get(self, key: str, default: str | None = None) -> str | None:
        """What a key was set to."""
        return self._values.get(key, default)

    def reset(self, key: str | None = None) -> None:
        """Forget a key, or all of them; the session gets back what it had before. A key that is not set stays as it is.

        Raises:
            ConfigurationError: If nobody knows the key.
        """
        if key is not None:
            _check_known("RESET", key)
        for name in reversed([*self._values]) if key is None else [key]:
            self._values.pop(name, None)
            in_spark = _in_spark(name)
            if in_spark is None or name not in self._before:
                continue
            before = self._before.pop(name)
            if before is None:
                self._spark.conf.unset(in_spark)
            else:
                self._spark.conf.set(in_spark, before)
        self._changed()

    def items(self) -> list[tuple[str, str]]:
        """All that is set, by key, as it may be shown: secrets are `***`."""
        return sorted(redact(self._values).items())

    @property
    def streaming(self) -> bool:
        """Whether tables are followed."""
        return self._values.get("execution.runtime-mode", "streaming") == "streaming"

    @property
    def parallelism(self) -> str | None:
        """The default number of tasks."""
        return self._values.get("parallelism.default")

    @property
    def interval_ms(self) -> int | None:
        """The time between micro-batches."""
        text = self._values.get("execution.checkpointing.interval")
        return None if text is None else duration_ms(text)


def _in_spark(key: str) -> str | None:
    """The session's own name of a setting; None if it is none of the session."""
    if key == "table.local-time-zone":
        return "spark.sql.session.timeZone"
    return key if key.startswith("spark.") else None


def _check_known(statement: str, key: str) -> None:
    near = difflib.get_close_matches(key, SETTINGS, 1)
    typed = difflib.get_close_matches(key, SETTINGS, 1, cutoff=0.93)  # Flink has settings of similar names
    if key in SETTINGS or (key.startswith(("spark.", *_FLINK)) and not typed):
        return
    hint = f"; did you mean '{near[0]}'?" if near else f"; there are {', '.join(SETTINGS)}, and spark.*"
    raise ConfigurationError(f"{statement} '{key}' is unknown{hint}")


def _checked(key: str, value: str) -> str:
    if key not in SETTINGS:
        return value
    value = value.strip()
    if key == "execution.runtime-mode":
        value = value.lower()
        if value not in ("streaming", "batch"):
            raise InvalidOptionError(key, value, "streaming or batch")
    elif key == "parallelism.default" and not (value.isdecimal() and int(value) > 0):
        raise InvalidOptionError(key, value, "a whole number above 0")
    elif key in ("execution.checkpointing.interval", "table.exec.source.idle-timeout"):
        try:
            duration_from(0)(value)
        except (ValueError, KeyError):
            raise InvalidOptionError(key, value, "a duration such as '10 s'") from None
    return value
