"""Reading a table: the source's rows, decoded, as the table's columns in their order.

Only the source's columns that the table needs are sent to Spark, and a message is decoded once. Computed columns and the
watermark come last, on the table's own names.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dynamic_kafka.errors import ConfigurationError, InvalidOptionError, SqlError
from dynamic_kafka.formats import DELETE, METADATA, ROW_KIND, UPDATE_AFTER
from dynamic_kafka.formats.arrow import handed_over, taken_over
from dynamic_kafka.formats.evolution import with_version
from dynamic_kafka.formats.expressions import named, nullable, once, quoted, without_call_sites
from dynamic_kafka.history.model import HISTORY_ROW
from dynamic_kafka.initializer import KafkaOffsetsInitializer
from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.spark.columns import COLUMN_TYPES, LAST_ROW, LEFT_OUT
from dynamic_kafka.spark.datasource import CONDITIONS, NAME
from dynamic_kafka.spark.messages import Part, column_of
from dynamic_kafka.sql.connectors.table import OtherTable
from dynamic_kafka.sql.dialect.translate import translate_expression
from dynamic_kafka.sql.errors.query import unknown_function
from dynamic_kafka.sql.tables.definition import (
    ComputedColumn,
    MetadataColumn,
    PhysicalColumn,
    TableDefinition,
    Watermark,
    qualified,
)
from dynamic_kafka.sql.tables.metadata_columns import METADATA_KEYS, VALUE_PREFIX, metadata_types
from dynamic_kafka.sql.tables.table import Encoding, KafkaTable, with_start
from dynamic_kafka.sql.tables.types import cast_type, flink_type, read_as_utc

__all__ = ["check_expressions", "finished", "read"]

_log = logging.getLogger(__name__)

_CHANGE = "__change"
_EVENT_TIME = "__rowtime"
_END_US = 1 << 62  # in the year 148108


@without_call_sites()
def read(spark: SparkSession, table: KafkaTable, *, streaming: bool) -> DataFrame:
    """Return the table as a DataFrame: a stream, or a batch of the current records.

    Its definition may be without the columns that a query does not use.

    Returns:
        The table's columns in order; for a changelog also `row_kind`, last.

    Raises:
        ConfigurationError: If the table can only be written to.
    """
    options = with_start(table.source)
    if options != table.source and not {"properties.group.id", "kafka.group.id"} & options.keys():
        raise ConfigurationError(
            f"Option 'scan.startup.mode' is missing for table {table.name}. Its default "
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
    needed = _needed(table)
    # Whether the end of one table leaves the watermarks of the others in a query as they are.
    ends_alone = (spark.conf.get("spark.sql.streaming.multipleWatermarkPolicy") or "min").lower() == "min"
    if streaming and settings.stopping is not None and table.definition.watermark is not None and ends_alone:
        needed = needed.add(LAST_ROW, BooleanType())
    if table.wanted:
        options = {**options, CONDITIONS: table.wanted}
    messages = reader.format(NAME).schema(needed).options(**options).load()
    if LEFT_OUT in needed.names:
        left_out = F.count_if(F.col(LEFT_OUT)).alias(table.on_error.replace("-", "_"))
        messages = messages.observe(f"dynamic-kafka: {'.'.join(table.definition.name)}", left_out).where(
            once(F.col(LEFT_OUT).isNull())
        )
    rows = _rows(messages, table, frozenset(needed.names))
    return finished(rows, table.definition, streaming=streaming)


def finished(rows: DataFrame, definition: TableDefinition, *, streaming: bool) -> DataFrame:
    """Return a table's physical and metadata columns with its computed columns, in order, and with its watermark.

    A column `row_kind` stays, after the others.
    """
    for column in definition.columns:
        if isinstance(column, ComputedColumn):
            computed = _computed(rows, column.expression)
            if LAST_ROW in rows.columns:  # which has only nulls, and the expression may fail for them
                computed = F.when(F.col(LAST_ROW).isNull(), computed)
            rows = rows.withColumn(column.name, computed)
    if definition.watermark is not None and streaming:
        rows = _with_watermark(rows, definition.watermark)
    names = [column.name for column in definition.columns]
    return rows.select(*map(named, names), *([ROW_KIND] if ROW_KIND in {*rows.columns} - {*names} else []))


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
            table.name,
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
                f"Column '{column.name}' of table {table.name} cannot be computed: {reason}"
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

    def type_of(text: str) -> DataType | None:
        try:
            return rows.select(F.expr(text)).schema.fields[0].dataType
        except (AnalysisException, ParseException) as error:
            if unknown_function(error) is not None:
                raise
            return None

    zone = str(rows.sparkSession.conf.get("spark.sql.session.timeZone"))
    return F.expr(translate_expression(expression, type_of, zone=zone))


# --- from messages to rows ----------------------------------------------------------------------------------------------


def _needed(table: KafkaTable) -> StructType:
    """Return the source's columns that the table needs; the others are not sent to Spark."""
    needed = {METADATA_KEYS[c.key].column for c in table.definition.metadata if c.key in METADATA_KEYS}
    of_source = [StructField(name, type_) for name, type_ in COLUMN_TYPES.items() if name in needed]
    encodings = filter(None, (table.key, table.value))
    decoded = [column_of(_part(encoding, table), table.on_error, table.letters) for encoding in encodings]
    left_out = [] if table.on_error == "fail" else [StructField(LEFT_OUT, BooleanType())]
    history = [] if (found := _history_row(table)) is None else [found]
    return StructType([*of_source, *decoded, *left_out, *history])


def _part(encoding: Encoding, table: KafkaTable) -> Part:
    """Return how keys or values are decoded. Only the columns that a query uses are sent to Spark."""
    form = encoding.format
    columns = {column.name for column in table.definition.columns}
    fields = zip(encoding.schema.fields, encoding.columns, strict=True)
    row = handed_over(nullable(StructType([field for field, column in fields if column in columns])))
    type_: DataType = row
    if form.changelog:
        keys = [c.key.removeprefix(VALUE_PREFIX) for c in table.definition.metadata if c.key.startswith(VALUE_PREFIX)]
        metadata = StructType([StructField(key, form.metadata[key]) for key in dict.fromkeys(keys)])
        change = [StructField(ROW_KIND, StringType()), StructField("row", row), StructField(METADATA, metadata)]
        type_ = ArrayType(StructType(change))
    primary_key = encoding.columns if table.upsert and encoding.name == "key" else ()
    return Part(
        encoding.name,
        form.name,
        encoding.prefix,
        form.portable(with_version(form, encoding.options)),
        encoding.schema,
        type_,
        required=bool(primary_key) if table.upsert else encoding.name == "value",
        primary_key=primary_key,
    )


def _history_row(table: KafkaTable) -> StructField | None:
    """Return the source's column with the table's rows that a history has decoded already; None without a history."""
    if "history.path" not in table.source or table.changelog:
        return None
    columns = [c for c in table.definition.columns if not isinstance(c, ComputedColumn)]
    row = nullable(StructType([StructField(c.name, cast_type(c.type)) for c in columns]))
    return StructField(HISTORY_ROW, row, metadata={"optional": [c.name for c in table.definition.metadata]})


def _rows(messages: DataFrame, table: KafkaTable, fetched: Collection[str]) -> DataFrame:
    """Return the table's physical and metadata columns, and `row_kind`."""
    value = "value"
    kind: list[Column] = []
    if table.upsert:
        is_tombstone = F.col(value).isNull()
        kind = [F.when(is_tombstone, DELETE).otherwise(UPDATE_AFTER).alias(ROW_KIND)]
    elif table.value.format.changelog:
        changes = F.col(value)
        if LAST_ROW in fetched:
            changes = F.when(F.col(LAST_ROW), F.array_repeat(F.get(changes, F.lit(0)), 1)).otherwise(changes)
        messages = messages.select("*", F.explode(changes).alias(_CHANGE))
        value = f"{_CHANGE}.row"
        kind = [F.col(f"{_CHANGE}.{ROW_KIND}").alias(ROW_KIND)]
    columns = [*_physical(table, value), *((column.name, _metadata(column)) for column in table.definition.metadata)]
    if HISTORY_ROW in fetched:
        columns = [(name, _or_of_history(name, column)) for name, column in columns]
    last = [F.col(LAST_ROW)] if LAST_ROW in fetched else []
    return messages.select(*(column.alias(name) for name, column in columns), *kind, *last)


def _or_of_history(name: str, column: Column) -> Column:
    """Return a column of the table, for the rows that a history has decoded already, too."""
    row = F.col(HISTORY_ROW)
    return F.when(row.isNull(), column).otherwise(F.col(f"{HISTORY_ROW}.{quoted(name)}"))


def _physical(table: KafkaTable, value: str) -> Iterator[tuple[str, Column]]:
    """Yield the physical columns. Those of the value win, as in Flink; a deleted row of `upsert-kafka` has only its key."""
    of_key, of_value = (
        {
            c: taken_over(F.col(f"{place}.{quoted(f.name)}"), f.dataType)
            for c, f in zip(e.columns, e.schema, strict=True)
        }
        if e is not None
        else {}
        for e, place in ((table.key, "key"), (table.value, value))
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
        found = F.col(f"{_CHANGE}.{METADATA}.{quoted(column.key.removeprefix(VALUE_PREFIX))}")
    else:
        key = METADATA_KEYS[column.key]
        found = key.read(F.col(key.column))
    return found.cast(cast_type(column.type))
