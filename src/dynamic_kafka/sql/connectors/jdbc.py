"""`jdbc`: tables of a database, read, looked up and appended to by Spark's own JDBC source."""

from __future__ import annotations

import logging
import re
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.kafka.config.secrets import hide, is_secret, redact, resolve
from dynamic_kafka.options import Option, integer, non_blank, text
from dynamic_kafka.sql.connectors.spark_table import check_columns, with_declared_types
from dynamic_kafka.sql.connectors.table import WRITE_PARALLELISM, Connector, OtherTable
from dynamic_kafka.sql.errors.script import java_message, reason_of
from dynamic_kafka.sql.session.result import start

__all__ = ["JDBC"]

_log = logging.getLogger(__name__)

_URL = Option("url", non_blank("a JDBC URL"), doc="The database, such as `jdbc:postgresql://db:5432/shop`.")
_TABLE = Option("table-name", non_blank("a table"), doc="The table's name there.")
_DRIVER = Option(
    "driver", non_blank("a Java class"), shown_default="that of the URL", doc="The class of the database's driver."
)
_USER = Option("username", text(), doc="The user; needs `password`, too.")
_PASSWORD = Option("password", text(), doc="The user's password. It may be a reference, such as `${env:DB_PASSWORD}`.")
_FETCH_SIZE = Option(
    "scan.fetch-size", integer(at_least=0), shown_default="the driver's", doc="The rows of a round trip."
)
_PARTITIONS = (
    Option("scan.partition.column", non_blank("a column"), doc="The column by which tasks share the table."),
    Option("scan.partition.num", integer(at_least=1), doc="With that column: the number of tasks."),
    Option(
        "scan.partition.lower-bound",
        non_blank("a value"),
        doc="With that column: about its least value. It leaves no row out.",
    ),
    Option(
        "scan.partition.upper-bound",
        non_blank("a value"),
        doc="With that column: about its largest value. It leaves no row out.",
    ),
)
_OPTIONS: tuple[Option[Any], ...] = (_URL, _TABLE, _DRIVER, _USER, _PASSWORD, _FETCH_SIZE, *_PARTITIONS)
_IN_SPARK = (
    *("url", "dbtable", "driver", "user", "password", "fetchsize"),
    *("partitionColumn", "numPartitions", "lowerBound", "upperBound"),
)
_UNUSED = ("lookup.", "connection.", "scan.auto-commit", "sink.buffer-flush.", "sink.max-retries")
_IN_URL = re.compile(r"[?&;]\s*([^=?&;]+)=")


def _check(table: OtherTable) -> None:
    if secrets := [name for name in _IN_URL.findall(_URL.of(table.options)) if is_secret(name)]:
        raise ConfigurationError(
            f"Option 'url' of table {table.name} has '{secrets[0]}', which everybody would see. Use the option 'password'"
        )
    missing = [option.key for option in _PARTITIONS if option.key not in table.options]
    if 0 < len(missing) < len(_PARTITIONS):
        raise ConfigurationError(
            f"Table {table.name} has some of the options 'scan.partition.*', which belong together. Add {', '.join(missing)}"
        )
    for key in sorted(table.rest):
        _log.warning("Table %s: '%s' has no effect in Spark", table.name, key)


def _texts(table: OtherTable) -> dict[str, str]:
    """Return the options as texts, with references to secrets."""
    return {key: str(value) for key, value in table.options.items()}


def _options(table: OtherTable) -> dict[str, str]:
    """Return the options for Spark, with secrets in clear."""
    resolved = resolve(_texts(table))
    return {
        name: resolved[option.key] for option, name in zip(_OPTIONS, _IN_SPARK, strict=True) if option.key in resolved
    }


def _of_database(spark: SparkSession, table: OtherTable) -> DataFrame:
    """Return the table of the database.

    Raises:
        ConfigurationError: If it cannot be read, or lacks a column.
    """
    try:
        rows = spark.read.format("jdbc").options(**_options(table)).load()
    except Exception as error:
        if not java_message(error) and not isinstance(error, PySparkException):
            raise
        url = redact({_URL.key: _URL.of(table.options)})[_URL.key]
        problem = hide(reason_of(error), _texts(table))
        raise ConfigurationError(
            f"Table {table.name} is {_TABLE.of(table.options)} at {url}, which cannot be read: {problem}. Check the URL, "
            "the table and the login, and start Spark with the JAR of the database's driver (spark.jars.packages)"
        ) from None
    check_columns(table, f"{_TABLE.of(table.options)} in the database", rows.columns, str.lower)
    return rows


def _read(spark: SparkSession, table: OtherTable) -> DataFrame:
    return with_declared_types(_of_database(spark, table), table)


def _check_append(spark: SparkSession, table: OtherTable) -> None:
    """Raise unless rows can be appended; Spark would create a table that does not exist."""
    if table.definition.primary_key:
        raise ConfigurationError(
            f"Table {table.name} has a PRIMARY KEY, so Flink replaces rows with the same key. Spark's JDBC only appends "
            "rows. Leave PRIMARY KEY out to append, or write with materialize, see 'Changelogs' in docs/guides/sql.md"
        )
    _of_database(spark, table)


def _write(rows: DataFrame, table: OtherTable) -> None:
    _check_append(rows.sparkSession, table)
    _append(rows, table)


def _append(rows: DataFrame, table: OtherTable) -> None:
    rows.write.format("jdbc").options(**_options(table)).mode("append").save()


def _start(writer: DataStreamWriter, table: OtherTable, rows: DataFrame) -> StreamingQuery:
    _check_append(rows.sparkSession, table)

    def append(batch: DataFrame, _: int) -> None:
        _append(batch, table)

    return start(writer.foreachBatch(append), ("append",))


JDBC = Connector(
    (*_OPTIONS, WRITE_PARALLELISM), _read, _write, _start, _check, prefixes=_UNUSED, required=(_URL, _TABLE)
)
"""Tables of databases."""
