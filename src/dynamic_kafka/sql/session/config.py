"""Settings of a table environment (`SET 'key' = 'value'`): Flink's names, and their meaning in Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from dynamic_kafka.errors import ConfigurationError, nearest, suggestion
from dynamic_kafka.kafka.config.secrets import redact
from dynamic_kafka.options import Option, choice, duration_ms, integer, text

__all__ = ["SETTINGS", "TableConfig"]

_log = logging.getLogger(__name__)

_RUNTIME_MODE = Option(
    "execution.runtime-mode",
    choice("streaming", "batch", "automatic"),
    "automatic",
    doc="`streaming` follows tables. `batch` reads bounded tables to their ends, once. `automatic` is `batch` if all tables "
    "of a query are bounded, and `streaming` otherwise.",
)
_INTERVAL = Option(
    "execution.checkpointing.interval",
    duration_ms(at_least=0),
    shown_default="as soon as possible",
    doc="The time between micro-batches, such as `10 s`.",
)
_PARALLELISM = Option(
    "parallelism.default",
    integer(at_least=1),
    doc="The number of tasks that read and write a table without options of its own for it.",
)
_IDLE_TIMEOUT = Option(
    "table.exec.source.idle-timeout",
    duration_ms(at_least=0),
    shown_default="that of `scan.watermark.idle-timeout`",
    doc="The idle timeout of tables with watermark alignment and without `scan.watermark.idle-timeout`; 0 is the default. "
    "Without alignment it has no effect: idle partitions do not delay Spark's watermark.",
)
SETTINGS: Mapping[str, Option[Any]] = {
    setting.key: setting
    for setting in (
        _RUNTIME_MODE,
        Option(
            "execution.checkpointing.dir",
            text("a path"),
            doc="The directory of the checkpoints of INSERTs. Each is in a folder with the name of its job.",
        ),
        _INTERVAL,
        Option(
            "pipeline.name",
            text("a name"),
            shown_default="the table's name",
            doc="The name of the next INSERT's job, and of the folder of its checkpoint.",
        ),
        _PARALLELISM,
        Option("table.local-time-zone", text("a time zone"), doc="The time zone of the session."),
        _IDLE_TIMEOUT,
    )
}
"""The settings by key. Settings of Spark, `spark.*`, go to the session."""

# A pasted script may contain Flink's other settings, which tune Flink's engine.
_FLINK = (
    *("table.", "execution.", "pipeline.", "sql-client.", "state.", "restart-strategy", "taskmanager.", "jobmanager."),
    *("yarn.", "kubernetes.", "rest.", "high-availability", "metrics.", "classloader.", "security.", "s3.", "fs."),
    *("env.", "cluster.", "heartbeat.", "akka.", "pekko.", "historyserver.", "jobstore.", "web."),
)


class TableConfig:
    """What is set in an environment (PyFlink: TableConfig). `changed` is called after each change."""

    def __init__(self, spark: SparkSession, changed: Callable[[], None]) -> None:
        self._spark, self._changed = spark, changed
        self._values: dict[str, str] = {}
        self._before: dict[str, str | None] = {}  # what the session had

    def set(self, key: str, value: str) -> TableConfig:
        """Set a key.

        Raises:
            InvalidOptionError: If the value is wrong.
            ConfigurationError: If the key does not exist.
        """
        _check_known("SET", key)
        if key in SETTINGS:
            parsed = SETTINGS[key].parse(value.strip())
            value = parsed if isinstance(parsed, str) else value.strip()
        in_spark = _in_spark(key)
        if in_spark is not None:
            before = self._spark.conf.get(in_spark, None)
            self._spark.conf.set(in_spark, value)
            self._before.setdefault(key, before)
        elif key not in SETTINGS:
            _log.warning("SET '%s' is ignored: it has no equivalent in Spark", key)
        self._values[key] = value
        self._changed()
        return self

    def get(self, key: str, default: str | None = None) -> str | None:
        """Return the text that a key was set to."""
        return self._values.get(key, default)

    def reset(self, key: str | None = None) -> None:
        """Forget a key, or all of them; the session gets back what it had before. A key that is not set stays as it is.

        Raises:
            ConfigurationError: If the key does not exist.
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
        """Return everything that is set, by key, fit to be shown: secrets are `***`."""
        return sorted(redact(self._values).items())

    @property
    def mode(self) -> str:
        """Return the runtime mode: `streaming`, `batch` or `automatic`."""
        return str(self._value(_RUNTIME_MODE))

    @property
    def parallelism(self) -> str | None:
        """Return the default number of tasks, as the text of an option."""
        return self._values.get(_PARALLELISM.key)

    @property
    def idle_timeout(self) -> str | None:
        """Return the default idle timeout, as the text of an option; None for that of the option."""
        return self._values[_IDLE_TIMEOUT.key] if self._value(_IDLE_TIMEOUT) else None

    @property
    def interval_ms(self) -> int | None:
        """Return the time between micro-batches."""
        found: int | None = self._value(_INTERVAL)
        return found

    def _value(self, setting: Option[Any]) -> Any:
        given = self._values.get(setting.key)
        return setting.default_value if given is None else setting.parse(given)


def _in_spark(key: str) -> str | None:
    """Return the name of a setting in Spark's session; None if it is not a setting of the session."""
    if key == "table.local-time-zone":
        return "spark.sql.session.timeZone"
    return key if key.startswith("spark.") else None


def _check_known(statement: str, key: str) -> None:
    if key in SETTINGS or (key.startswith(("spark.", *_FLINK)) and not nearest(key, SETTINGS, cutoff=0.93)):
        return  # Flink has settings of similar names
    hint = suggestion(key, SETTINGS) or f"; there are {', '.join(SETTINGS)}, and spark.*"
    raise ConfigurationError(f"{statement} '{key}' is unknown{hint}")
