"""`filesystem`: files of a folder, read and written by Spark's own file sources and sinks.

Lines of CSV, JSON and raw text are decoded and encoded as messages are, so that they mean what they mean in Flink.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import ERROR, Format, FormatOptions, format_named
from dynamic_kafka.formats.arrow import decoded, encoded
from dynamic_kafka.formats.expressions import decoded_struct, named, nullable, once
from dynamic_kafka.formats.format import explained
from dynamic_kafka.formats.options import check_unknown, format_options
from dynamic_kafka.options import Option, duration_ms, non_blank, text
from dynamic_kafka.sql.connectors.table import WRITE_PARALLELISM, Connector, OtherTable
from dynamic_kafka.sql.session.checkpoints import exists, numbers_in
from dynamic_kafka.sql.tables.definition import MetadataColumn, PhysicalColumn
from dynamic_kafka.sql.tables.options import FORMAT
from dynamic_kafka.sql.tables.types import cast_type, spark_type, time_precision

__all__ = ["FILESYSTEM", "decoded_lines", "encoded_lines"]

_log = logging.getLogger(__name__)

_LINES, _FILES = ("json", "csv", "raw"), ("parquet", "orc")
_PATH = Option("path", non_blank("a path"), doc="The folder with the files.")
_FORMAT = replace(FORMAT, doc="The format of the files: json, csv, raw, parquet or orc.")
_INTERVAL = Option(
    "source.monitor-interval",
    duration_ms(at_least=1),
    shown_default="the files that are there now",
    doc="Given, the folder is watched for new files, and the table has no end. Each micro-batch looks, so the interval is "
    "that of `execution.checkpointing.interval`.",
)
_NULL = Option(
    "partition.default-name",
    text("a text"),
    "__DEFAULT_PARTITION__",
    doc="The folder of rows with NULL or an empty text in a partition column.",
)
_UNUSED = (
    *("sink.rolling-policy.", "sink.partition-commit.", "partition.time-extractor.", "auto-compaction", "compaction."),
)
_LOG = "_spark_metadata"
_ANY_AGE = "36500d"
"""Spark leaves out new files that are a week older than the newest one, such as those of a backfill."""
_METADATA = {
    "file.path": ("file_path", "string"),
    "file.name": ("file_name", "string"),
    "file.size": ("file_size", "bigint"),
    "file.modification-time": ("file_modification_time", "timestamp"),
}


def _check(table: OtherTable) -> None:
    name: str = _FORMAT.of(table.options)
    if name not in (*_LINES, *_FILES):
        raise ConfigurationError(
            f"Option 'format' has the value '{name}'; a 'filesystem' table has one of {', '.join((*_LINES, *_FILES))}"
        )
    left = {key for key in table.rest if not key.startswith(_UNUSED)}
    if name in _LINES:
        form, options = _format(table)
        check_unknown(left - format_options(form, "", table.rest)[1], [("", form)])
        form.check(_in_files(table), options)
    else:
        check_unknown({key for key in left if not key.startswith(f"{name}.")}, [])
    for key in sorted(table.rest.keys() - left):
        _log.warning(
            "Table %s: '%s' has no effect: Spark writes the files of each micro-batch at its end", table.name, key
        )


def _format(table: OtherTable) -> tuple[Format, FormatOptions]:
    form = format_named(_FORMAT.of(table.options))
    return form, format_options(form, "", table.rest)[0]


def _in_files(table: OtherTable) -> StructType:
    """Return the columns that are in files, and not in the names of folders."""
    return StructType(
        [
            StructField(c.name, spark_type(c.type), c.type.nullable, time_precision(c.type))
            for c in table.definition.physical
            if c.name not in table.definition.partitioned_by
        ]
    )


# --- reading ------------------------------------------------------------------------------------------------------------


def _read(spark: SparkSession, table: OtherTable) -> DataFrame:
    streaming = not table.bounded
    reader: Any = spark.readStream if streaming else spark.read
    of_lines = _FORMAT.of(table.options) in _LINES
    inside = [StructField("value", StringType())] if of_lines else _in_files(table).fields
    folders = [StructField(name, StringType()) for name in table.definition.partitioned_by]
    files = reader.schema(StructType([*inside, *folders])).format("text" if of_lines else _FORMAT.of(table.options))
    if streaming:
        files = files.option("maxFileAge", _ANY_AGE)
    rows = files.load(_PATH.of(table.options))
    default_name = F.lit(_NULL.of(table.options))
    folder_of: dict[str, Column] = {
        name: F.nullif(named(name), default_name) for name in table.definition.partitioned_by
    }
    metadata = {c.name: F.col(f"_metadata.{_METADATA[c.key][0]}") for c in table.definition.metadata}
    if of_lines:
        found = {
            **{f"p_{name}": column for name, column in folder_of.items()},
            **{f"m_{n}": c for n, c in metadata.items()},
        }
        rows = rows.select("value", F.col("_metadata.file_path").alias("file"), *(c.alias(n) for n, c in found.items()))
        folder_of = {name: named(f"p_{name}") for name in folder_of}
        metadata = {name: named(f"m_{name}") for name in metadata}
        rows = decoded_lines(rows, table)
    columns = []
    listed: list[PhysicalColumn | MetadataColumn] = [*table.definition.physical, *table.definition.metadata]
    for column in listed:
        place = named("row")[column.name] if of_lines else named(column.name)
        found_column = folder_of.get(column.name, metadata.get(column.name, place))
        columns.append(found_column.cast(cast_type(column.type)).alias(column.name))
    found_rows: DataFrame = rows.select(*columns)
    return found_rows


def decoded_lines(lines: DataFrame, table: OtherTable) -> DataFrame:
    """Return the lines of files with a column `row`; a line that cannot be read fails the query and names its file.

    The lines have the columns `value` and `file`, and others.
    """
    form, options = _format(table)
    schema = _in_files(table)
    decode = form.decoder(schema, options)

    def rows(messages: pa.Array) -> pa.Array:
        return explained(decode(messages), messages, "a line", form.name)

    row = decoded(rows, decoded_struct(form, nullable(schema)), named("value").cast("binary"))
    error = F.col("row")[ERROR]
    why = F.concat(F.lit("File "), F.col("file"), F.lit(": "), error)
    readable = lines.select("*", once(row).alias("row")).where(
        once(F.when(error.isNull(), True).otherwise(F.raise_error(why).cast("boolean")))
    )
    return readable.where(F.col("row").isNotNull())


# --- writing ------------------------------------------------------------------------------------------------------------


def encoded_lines(rows: DataFrame, table: OtherTable) -> DataFrame:
    """Return the rows as they are in files: a line, or the columns; and the names of their folders."""
    schema = _in_files(table)
    folders = [
        F.coalesce(F.nullif(named(name).cast("string"), F.lit("")), F.lit(_NULL.of(table.options))).alias(name)
        for name in table.definition.partitioned_by
    ]
    if _FORMAT.of(table.options) not in _LINES:
        return rows.select(*(named(name) for name in schema.names), *folders)
    form, options = _format(table)
    row = F.struct(*(named(name) for name in schema.names))
    line = encoded(form.rows(row, schema, options)).cast("string")
    refusal = (
        f"A row of table {table.name} has a line break, which ends a line of {form.name}. Use 'format' = 'parquet'"
    )
    line = F.when(line.rlike("[\r\n]"), F.raise_error(F.lit(refusal))).otherwise(line)
    return rows.select(line.alias("value"), *folders)


def _of_spark(writer: Any, table: OtherTable) -> Any:
    name = _FORMAT.of(table.options)
    options = {key: value for key, value in table.rest.items() if key.startswith(f"{name}.")} if name in _FILES else {}
    return (
        writer.format("text" if name in _LINES else name)
        .options(**options)
        .partitionBy(*table.definition.partitioned_by)
    )


def _folder(table: OtherTable) -> str:
    return str(_PATH.of(table.options)).rstrip("/")


def _write(rows: DataFrame, table: OtherTable) -> None:
    path = _folder(table)
    if exists(rows.sparkSession, f"{path}/{_LOG}"):
        raise ConfigurationError(
            f"Table {table.name} is in {path}, which a stream has written: Spark reads only the files of streams there, so "
            "the rows of this batch would be invisible. Write to another folder"
        )
    _of_spark(rows.write, table).mode("append").save(path)


def _check_start(spark: SparkSession, table: OtherTable, checkpoint: str | None) -> None:
    path = _folder(table)
    written = numbers_in(spark, f"{path}/{_LOG}")
    if written is None:
        if _has_files(spark, path):
            raise ConfigurationError(
                f"Table {table.name} is in {path}, which has files already. Spark reads only the files of the stream once a "
                "stream has written there, so these would be invisible. Write to another folder"
            )
        return
    assert checkpoint is not None, "a stream into files has one"
    planned, committed = (numbers_in(spark, f"{checkpoint}/{log}") for log in ("offsets", "commits"))
    # The numbers may be those of the checkpoint's micro-batches. Its last one may not be committed yet.
    if written and not max(committed or [], default=-1) <= max(written) <= max(planned or [], default=-1):
        raise ConfigurationError(
            f"Table {table.name} is in {path}, where a query with another checkpoint than '{checkpoint}' has written. "
            f"Spark leaves out each micro-batch whose number is in {path}/{_LOG} already, so rows would be lost. Continue "
            "with the checkpoint of that query, or write to another folder, such as /*+ OPTIONS('path' = '...') */"
        )


def _has_files(spark: SparkSession, path: str) -> bool:
    if not exists(spark, path):
        return False
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(path)
    return not files.select("path").isEmpty()


FILESYSTEM = Connector(
    options=(_PATH, _FORMAT, _INTERVAL, _NULL, WRITE_PARALLELISM),
    required=(_PATH, _FORMAT),
    read=_read,
    write=_write,
    start=lambda writer, table, _: _of_spark(writer, table).outputMode("append").start(_folder(table)),
    place=_folder,
    check_start=_check_start,
    check=_check,
    endless=lambda table: None if _INTERVAL.of(table.options) is None else "no 'source.monitor-interval'",
    prefixes=tuple(f"{name}." for name in (*_LINES, *_FILES)) + _UNUSED,
    metadata=tuple(_METADATA),
    encode=encoded_lines,
)
"""Files of a folder."""
