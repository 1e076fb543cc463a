"""Reading a table: the source's rows, decoded, as the table's columns in their order.

Only the source's columns that the table needs are sent to Spark, and a message is decoded once. Computed columns and the
watermark come last, on the table's own names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dynamic_kafka.errors import ConfigurationError, InvalidOptionError, SqlError
from dynamic_kafka.formats import DELETE, ERROR, METADATA, ROW_KIND, ROWS, UPDATE_AFTER
from dynamic_kafka.formats.expressions import named, once, quoted, without_call_sites
from dynamic_kafka.formats.on_error import COORDINATES, Part, apply_error_policy
from dynamic_kafka.formats.schema_ids import in_headers, schema_id_header
from dynamic_kafka.initializer import KafkaOffsetsInitializer
from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.spark.columns import (
    COLUMN_TYPES,
    HISTORY_ROW,
    LAST_ROW,
    UNDECODED,
    UNDECODED_TYPE,
    VALUE_ROW,
)
from dynamic_kafka.spark.datasource import NAME
from dynamic_kafka.spark.dead_letters import set_aside
from dynamic_kafka.spark.message_formats import value_field
from dynamic_kafka.sql.connectors.table import OtherTable
from dynamic_kafka.sql.definition import (
    ComputedColumn,
    MetadataColumn,
    PhysicalColumn,
    TableDefinition,
    Watermark,
    qualified,
)
from dynamic_kafka.sql.dialect.kinds import read_as_utc
from dynamic_kafka.sql.metadata_columns import METADATA_KEYS, VALUE_PREFIX, metadata_types
from dynamic_kafka.sql.query_errors import unknown_function
from dynamic_kafka.sql.table import Encoding, KafkaTable, with_start
from dynamic_kafka.sql.types import cast_type, flink_type

__all__ = ["check_expressions", "finished", "read"]

_log = logging.getLogger(__name__)

_ROW = "__row"
_MESSAGE = "__message"
_EVENT_TIME = "__rowtime"
_END_US = 1 << 62  # in the year 148108


@without_call_sites()
def read(spark: SparkSession, table: KafkaTable, *, streaming: bool) -> DataFrame:
    """Return the table as a DataFrame.

    Args:
        spark: The session, with `format("dynamic-kafka")` registered.
        table: The table. Its definition may be without the columns that a query does not use, and its conditions leave out
            messages that a query does not use.
        streaming: True for a stream, False for a batch of the current records.

    Returns:
        The table's columns in order; for a changelog also `row_kind`, last.

    Raises:
        ConfigurationError: If the table can only be written to.
    """
    options = with_start(table.source)
    if options != table.source and not any(name in options for name in ("properties.group.id", "kafka.group.id")):
        raise ConfigurationError(
            f"Option 'scan.startup.mode' is missing for table {qualified(table.definition.name)}. Its default "
            "'group-offsets' needs 'properties.group.id': set one of them"
        )
    # Raise our own error here; from load() it would be an error of Spark, with the trace of its worker.
    settings = configure_source(options)
    _check_drift(table, settings.alignment_max_drift_ms)
    if not streaming and settings.starting == KafkaOffsetsInitializer.latest():
        raise InvalidOptionError(
            "scan.startup.mode",
            "latest-offset",
            "another start: a batch query reads up to the latest offset, so it would read nothing",
        )
    reader = spark.readStream if streaming else spark.read
    value_row = _value_row(table)
    needed = _needed(table, value_row)
    if streaming and settings.stopping is not None and table.definition.watermark is not None and _ends_alone(spark):
        needed = needed.add(LAST_ROW, BooleanType())
    messages = _with_conditions(reader.format(NAME).schema(needed).options(**options).load(), table)
    dead_letter = None if table.letters is None else set_aside(table.letters)
    fetched = frozenset(needed.names)  # each question for the columns of a DataFrame takes Spark some 20 ms
    of_message = _columns_of(fetched)
    readable = apply_error_policy(
        _decoded(messages, table, fetched, of_message),
        _parts(table),
        table.on_error,
        _name(table),
        dead_letter,
        column=of_message,
    )
    rows = _rows(_with_rows(readable, table, fetched), table, fetched)
    return finished(rows, table.definition, streaming=streaming)


def finished(rows: DataFrame, definition: TableDefinition, *, streaming: bool) -> DataFrame:
    """Return a table's physical and metadata columns with its computed columns, in order, and with its watermark.

    A column `row_kind` stays, after the others.
    """
    for column in definition.columns:
        if isinstance(column, ComputedColumn):
            rows = rows.withColumn(column.name, _computed(rows, column.expression))
    if definition.watermark is not None and streaming:
        rows = _with_watermark(rows, definition.watermark)
    names = [column.name for column in definition.columns]
    return rows.select(*map(named, names), *([ROW_KIND] if ROW_KIND in {*rows.columns} - {*names} else []))


def _ends_alone(spark: SparkSession) -> bool:
    """Return whether the end of one table leaves the watermarks of the others in a query as they are."""
    return (spark.conf.get("spark.sql.streaming.multipleWatermarkPolicy") or "min").lower() == "min"


def _with_watermark(rows: DataFrame, watermark: Watermark) -> DataFrame:
    """Return the rows of a stream with the watermark of their table.

    Spark has watermarks of a TIMESTAMP_LTZ only. Flink reads the wall time of a TIMESTAMP as UTC for that, and so does the
    column `_EVENT_TIME`, which only the watermark sees. The table's column keeps its type, and is marked as the event time:
    Spark's windows and joins compare the microseconds of both types in the same way.

    The filter keeps each condition of a query above the watermark, which follows all rows of the table, as in Flink. It
    drops the last row of a table with an end (see `spark.last_row`), whose time is after that of all windows.
    """
    time = named(watermark.column)
    if isinstance(rows.schema[watermark.column].dataType, TimestampNTZType):
        event_time = F.expr(read_as_utc(quoted(watermark.column)))
    else:
        event_time = time
    kept = F.lit(True)
    if LAST_ROW in rows.columns:
        event_time = F.when(F.col(LAST_ROW), F.timestamp_micros(F.lit(_END_US))).otherwise(event_time)
        kept = F.col(LAST_ROW).isNull()
    with_time = rows.select("*", event_time.alias(_EVENT_TIME)).withWatermark(_EVENT_TIME, watermark.delay)
    mark = with_time.schema[_EVENT_TIME].metadata
    return with_time.where(once(kept)).withColumn(watermark.column, time.alias(watermark.column, metadata=mark))


def _check_drift(table: KafkaTable, max_drift_ms: int | None) -> None:
    """Warn of a drift that is more than the delay of the table's watermark."""
    watermark = table.definition.watermark
    if max_drift_ms is not None and watermark is not None and max_drift_ms > watermark.delay_ms:
        _log.warning(
            "Table %s: 'scan.watermark.alignment.max-drift' is %d ms, which is more than the delay of its watermark (%s). "
            "Rows of a partition that is behind by more than the delay are late",
            qualified(table.definition.name),
            max_drift_ms,
            watermark.delay,
        )


def check_expressions(spark: SparkSession, table: KafkaTable | OtherTable) -> None:
    """Let Spark check a table's computed columns, and the types of its metadata columns.

    Raises:
        ConfigurationError: If one of them is wrong; the message contains Spark's.
    """
    columns = table.definition.columns
    fields = [StructField(c.name, cast_type(c.type)) for c in columns if not isinstance(c, ComputedColumn)]
    rows: DataFrame | None = None
    for column in columns:
        if isinstance(column, PhysicalColumn):
            continue
        # Most tables do not have such a column, and Spark is not asked.
        rows = spark.createDataFrame([], StructType(fields)) if rows is None else rows
        try:
            if isinstance(column, ComputedColumn):
                rows = rows.withColumn(column.name, _computed(rows, column.expression))
                _check_event_time(rows, table.definition, column)
            elif isinstance(table, KafkaTable):
                known = metadata_types(table.value.format)[column.key]
                rows.select(F.lit(None).cast(known).cast(cast_type(column.type)))
        except (AnalysisException, ParseException, SqlError) as error:
            function = unknown_function(error) if isinstance(error, AnalysisException) else None
            lines = (error.problem if isinstance(error, SqlError) else function or str(error)).splitlines()
            reason = next(line for line in lines if line.strip())
            raise ConfigurationError(
                f"Column '{column.name}' of table {qualified(table.definition.name)} cannot be computed: {reason}"
            ) from None


def _check_event_time(rows: DataFrame, definition: TableDefinition, column: ComputedColumn) -> None:
    """Raise if a computed column has the watermark, and is no time."""
    if definition.watermark is not None and definition.watermark.column == column.name:
        found = rows.schema[column.name].dataType
        if not isinstance(found, (TimestampNTZType, TimestampType)):
            raise ConfigurationError(
                f"WATERMARK of table {qualified(definition.name)} refers to column '{column.name}' of type "
                f"{flink_type(found)}; it has to be TIMESTAMP or TIMESTAMP_LTZ"
            )


def _computed(rows: DataFrame, expression: str) -> Column:
    """Return a computed column, which is an expression of Flink on the columns before it."""
    from dynamic_kafka.sql.dialect.translate import translate_expression

    def type_of(text: str) -> DataType | None:
        try:
            return rows.select(F.expr(text)).schema.fields[0].dataType
        except (AnalysisException, ParseException) as error:
            if unknown_function(error) is not None:
                raise
            return None

    zone = str(rows.sparkSession.conf.get("spark.sql.session.timeZone"))
    return F.expr(translate_expression(expression, type_of, zone=zone))


def _name(table: KafkaTable) -> str:
    return ".".join(table.definition.name)


# --- from messages to rows ----------------------------------------------------------------------------------------------


def _needed(table: KafkaTable, value_row: StructField | None) -> StructType:
    """Return the source's columns that the table needs; the others are not sent to Spark."""
    needed = {METADATA_KEYS[c.key].column for c in table.metadata if c.key in METADATA_KEYS}
    if table.key is not None or table.on_error == "dead-letter":
        needed.add("key")
    if any(_has_ids_in_headers(encoding) for encoding in _encodings(table)):
        needed.add("headers")
    decoded = [] if value_row is None else [value_row]
    history = [] if (found := _history_row(table)) is None else [found]
    # The error of a key needs the place of its message, whatever became of the value.
    if value_row is None or table.key is not None:
        needed |= {"value", *COORDINATES}
    else:
        decoded.append(StructField(UNDECODED, UNDECODED_TYPE))
    of_source = [StructField(name, type_) for name, type_ in COLUMN_TYPES.items() if name in needed]
    return StructType([*of_source, *decoded, *history])


def _history_row(table: KafkaTable) -> StructField | None:
    """Return the source's column with the table's rows that a history has decoded already; None without a history."""
    if "history.path" not in table.source or table.changelog:
        return None
    columns = [c for c in table.definition.columns if not isinstance(c, ComputedColumn)]
    row = StructType([StructField(c.name, _nullable(cast_type(c.type))) for c in columns])
    return StructField(HISTORY_ROW, row, metadata={"optional": [c.name for c in table.metadata]})


def _with_conditions(messages: DataFrame, table: KafkaTable) -> DataFrame:
    """Return the messages that fulfil the table's conditions. Spark tells the source of those which it can read by."""
    if not table.conditions:
        return messages
    # The conditions have the names of the table's columns, which may be those of other columns of the source.
    found = messages.select(F.struct("*").alias(_MESSAGE), *(_metadata(c).alias(c.name) for c in table.metadata))
    for condition in table.conditions:
        found = found.where(_computed(found, condition))
    return found.select(f"{_MESSAGE}.*")


def _columns_of(fetched: Collection[str]) -> Callable[[str], Column]:
    """Return what finds a column, by its name, of the messages that are not decoded yet or have an error."""
    apart = UNDECODED_TYPE.names if UNDECODED in fetched else []
    return lambda name: F.col(f"{UNDECODED}.{name}" if name in apart else name)


def _value_row(table: KafkaTable) -> StructField | None:
    """Return the source's column with the decoded values, if the native kernel can decode them; None if not.

    Each value has a row there, none, or an error.
    """
    form, schema, options = table.value.format, table.value.schema, table.value.options
    # The dead letter of a bad key needs the value's bytes.
    if table.on_error == "dead-letter" and table.key is not None:
        return None
    wanted = [c.key.removeprefix(VALUE_PREFIX) for c in table.metadata if c.key.startswith(VALUE_PREFIX)]
    columns = {column.name for column in table.definition.columns}
    fields = zip(schema.names, table.value.columns, strict=True)
    used = [name for name, column in fields if column in columns]
    return value_field(form, schema, options, used=used, wanted=wanted)


def _nullable(type_: DataType) -> Any:
    """Return a type with nullable parts and without metadata."""
    match type_:
        case StructType():
            return StructType([StructField(f.name, _nullable(f.dataType)) for f in type_.fields])
        case ArrayType(elementType=element):
            return ArrayType(_nullable(element))
        case MapType(keyType=key, valueType=value):
            return MapType(key, _nullable(value))
        case _:
            return type_


def _decoded(
    messages: DataFrame, table: KafkaTable, fetched: Collection[str], column: Callable[[str], Column]
) -> DataFrame:
    """Return the messages with their decoded parts."""
    found = {}
    for encoding in _encodings(table):
        if encoding.name != "value" or VALUE_ROW not in fetched:
            found[encoding.name] = once(_decode(encoding, column))
        else:  # it is decoded already
            found[encoding.name] = F.col(VALUE_ROW)
    return messages.select("*", *(column.alias(f"__{name}") for name, column in found.items()))


def _with_rows(decoded: DataFrame, table: KafkaTable, fetched: Collection[str]) -> DataFrame:
    """Return the messages that have rows. It comes after the error policy: a message without rows can have an error."""
    is_last = F.col(LAST_ROW) if LAST_ROW in fetched else F.lit(False)
    if table.upsert:  # skip messages without a key; a value skipped by the format is not a tombstone
        read = _is_tombstone(fetched) | F.col("__value").isNotNull()
        return decoded.where((_has_key() & read) | is_last)
    if table.value.format.changelog:
        return decoded
    has_row = F.col("__value").isNotNull()
    has_row |= F.col(HISTORY_ROW).isNotNull() if HISTORY_ROW in fetched else F.lit(False)
    return decoded.where(has_row | is_last)


def _has_key() -> Column:
    """Return whether a message has a key. The format `raw` makes a row of one without bytes, too."""
    return F.col("key").isNotNull() & F.col("__key").isNotNull()


def _is_tombstone(fetched: Collection[str]) -> Column:
    """Return whether a message has no value. One that was decoded where it was read has a row in place of its bytes."""
    no_bytes = F.col("value").isNull()
    return no_bytes & F.col(VALUE_ROW).isNull() if VALUE_ROW in fetched else no_bytes


def _encodings(table: KafkaTable) -> Iterator[Encoding]:
    if table.key is not None:
        yield table.key
    yield table.value


def _decode(encoding: Encoding, column: Callable[[str], Column]) -> Column:
    form, message = encoding.format, column(encoding.name)
    if form.decode_with_ids is None or not _has_ids_in_headers(encoding):
        return form.decode(message, encoding.schema, encoding.options)
    ids = schema_id_header(F.col("headers"), encoding.name)
    return form.decode_with_ids(message, ids, encoding.schema, encoding.options)


def _has_ids_in_headers(encoding: Encoding) -> bool:
    return in_headers(encoding.format.name, encoding.options)


def _parts(table: KafkaTable) -> list[Part]:
    errors = {encoding.name: F.col(f"__{encoding.name}.{ERROR}") for encoding in _encodings(table)}
    if table.upsert and table.key is not None:
        errors["key"] = F.coalesce(errors["key"], *_nulls_in_key(table.key))
    return [Part(e.name, e.format.name, errors[e.name]) for e in _encodings(table)]


def _nulls_in_key(key: Encoding) -> Iterator[Column]:
    """Yield for each column of the key the reason why a message without it cannot be read: all are in the PRIMARY KEY."""
    for column, field in zip(key.columns, key.schema.names, strict=True):
        is_null = _has_key() & F.col(f"__key.{quoted(field)}").isNull()
        yield F.when(is_null, f"Column '{column}' is NULL, but it is in the PRIMARY KEY")


def _rows(decoded: DataFrame, table: KafkaTable, fetched: Collection[str]) -> DataFrame:
    """Return the table's physical and metadata columns, and `row_kind`."""
    value = "__value"
    kind: list[Column] = []
    if table.upsert:
        kind = [F.when(_is_tombstone(fetched), DELETE).otherwise(UPDATE_AFTER).alias(ROW_KIND)]
    elif table.value.format.changelog:
        found = F.col(f"__value.{ROWS}")
        if LAST_ROW in fetched:
            found = F.when(F.col(LAST_ROW), F.array_repeat(F.get(found, F.lit(0)), 1)).otherwise(found)
        decoded = decoded.select("*", F.explode(found).alias(_ROW))
        value = f"{_ROW}.row"
        kind = [F.col(f"{_ROW}.{ROW_KIND}").alias(ROW_KIND)]
    columns = [*_physical(table, value), *((column.name, _metadata(column)) for column in table.metadata)]
    if HISTORY_ROW in fetched:
        columns = [(name, _or_of_history(name, column)) for name, column in columns]
    last = [F.col(LAST_ROW)] if LAST_ROW in fetched else []
    return decoded.select(*(column.alias(name) for name, column in columns), *kind, *last)


def _or_of_history(name: str, column: Column) -> Column:
    """Return a column of the table, for the rows that a history has decoded already, too."""
    row = F.col(HISTORY_ROW)
    return F.when(row.isNull(), column).otherwise(F.col(f"{HISTORY_ROW}.{quoted(name)}"))


def _physical(table: KafkaTable, value: str) -> Iterator[tuple[str, Column]]:
    """Yield the physical columns. Those of the value win, as in Flink; a deleted row of `upsert-kafka` has only its key."""
    of_key, of_value = (
        {column: F.col(f"{place}.{quoted(f)}") for column, f in zip(e.columns, e.schema.names, strict=True)}
        if e is not None
        else {}
        for e, place in ((table.key, "__key"), (table.value, value))
    )
    for column in table.definition.columns:
        if column.name in of_value:
            found = of_value[column.name]
            if table.upsert and column.name in of_key:
                found = of_key[column.name]
            yield column.name, found
        elif column.name in of_key:
            yield column.name, of_key[column.name]


def _metadata(column: MetadataColumn) -> Column:
    if column.key.startswith(VALUE_PREFIX):
        found = F.col(f"__value.{METADATA}.{quoted(column.key.removeprefix(VALUE_PREFIX))}")
    else:
        key = METADATA_KEYS[column.key]
        found = key.read(F.col(key.column))
    return found.cast(cast_type(column.type))
