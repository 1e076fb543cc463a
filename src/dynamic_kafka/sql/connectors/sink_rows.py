"""INSERT INTO: a query's columns, by position, as the sink's rows.

Rules (Flink's INSERT INTO): values are for the physical columns and for the metadata columns that are not VIRTUAL, in the
order of the table. A column list names some of them; the others are null. A changelog table accepts a last column `row_kind`
too; without it, rows are inserted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, DecimalType, StringType, StructField, StructType

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import DELETES, INSERT, ROW_KIND, ROW_KINDS
from dynamic_kafka.formats.arrow import encoded, encoded_or_error
from dynamic_kafka.formats.expressions import TEMPORAL, rebuilt, temporal_text
from dynamic_kafka.formats.format import Rows
from dynamic_kafka.sink.records import DEAD_LETTER, ENCODER
from dynamic_kafka.sql.connectors.all import Table
from dynamic_kafka.sql.connectors.table import OtherTable
from dynamic_kafka.sql.tables.definition import MetadataColumn, PhysicalColumn
from dynamic_kafka.sql.tables.metadata_columns import METADATA_KEYS
from dynamic_kafka.sql.tables.table import Encoding, KafkaTable
from dynamic_kafka.sql.tables.types import alike, cast_type, flink_type, spark_type

__all__ = ["check_writable", "to_sink_rows", "to_table_rows", "values_of"]

_FAULT = "fault"
"""A column of rows on their way to the sink: the reason why a row cannot be encoded, null if it can."""

Written = PhysicalColumn | MetadataColumn
"""A column that an INSERT has a value for."""


def check_writable(table: KafkaTable) -> tuple[Written, ...]:
    """Return the columns that an INSERT has values for.

    Raises:
        ConfigurationError: If the table can only be read.
    """
    name, columns = table.name, table.definition.written
    metadata = [c for c in columns if isinstance(c, MetadataColumn)]
    writable = [key for key, found in METADATA_KEYS.items() if found.write is not None]
    one_topic = table.sink_settings.topic is not None
    if one_topic:
        writable.remove("topic")
    if table.connector != "dynamic-kafka":
        writable.remove("kafka_cluster")
    for column in metadata:
        if column.key not in writable:
            raise ConfigurationError(
                f"Column '{column.name}' of table {name} is METADATA FROM '{column.key}', which cannot be written. Declare "
                f"it VIRTUAL (these can be written: {', '.join(writable)})"
            )
    written = [METADATA_KEYS[column.key].column for column in metadata]
    for column, target in zip(metadata, written, strict=True):
        if written.count(target) > 1:
            raise ConfigurationError(
                f"Column '{column.name}' of table {name} is one of several that write the messages' {target}. Declare all "
                "but one VIRTUAL"
            )
    if not one_topic and table.connector != "dynamic-kafka" and "topic" not in written:
        raise ConfigurationError(
            f"Table {name} has several topics, so each row needs the name of its topic. Add a column `topic` STRING NOT "
            "NULL METADATA"
        )
    return columns


def to_sink_rows(query: DataFrame, table: KafkaTable, names: Sequence[str] | None = None) -> DataFrame:
    """Return the sink's rows: `key` and `value`, and `topic`, `headers`, `timestamp` or `cluster` if the table has them.

    `key` and `value` are structs if the sink encodes them; the column's metadata then says how. With
    `sink.dead-letter.topic`, rows that cannot be encoded are in the column `DEAD_LETTER`, and do not end the query.

    Raises:
        ConfigurationError: If the columns do not fit the table.
    """
    columns = check_writable(table)
    faults: list[Column] | None = None if table.sink_settings.dead_letter_topic is None else []
    rows, values, given_kind = values_of(query, table, columns, names, faults)
    kind_column = F.lit(INSERT) if given_kind is None else given_kind
    if faults is not None:
        rows = rows.withColumn(_FAULT, F.coalesce(F.lit(None).cast("string"), *faults))
    selected, reported = [], []
    for encoding in filter(None, (table.key, table.value)):
        row = _row(encoding, values, kind_column)
        metadata: dict[str, str] = {}
        if faults is not None:
            row = F.when(F.col(_FAULT).isNull(), row)
        found = encoding.format.rows(row, encoding.schema, encoding.options)
        # Spark spreads the rows over tasks by the bytes of their key.
        needed = encoding is table.key and "sink.parallelism" in table.sink
        if isinstance(found, Rows) and found.spec is not None and not needed:
            sent, metadata = found.column, {ENCODER: found.spec}
        elif isinstance(found, Rows) and faults is not None:
            sent = encoded_or_error(found)
            reported.append(encoding.name)
        else:
            sent = encoded(found)
        if table.upsert and encoding is table.value:
            sent = F.when(~kind_column.isin(*DELETES), sent)
        selected.append(sent.alias(encoding.name, metadata=metadata))
    for column in columns:
        if isinstance(column, MetadataColumn):
            key = METADATA_KEYS[column.key]
            assert key.write is not None
            selected.append(key.write(values[column.name].cast(key.type)).alias(key.column))
    if faults is None:
        return rows.select(*selected)
    given = {name: f"c{place}" for name, place in _assigned(query, table, columns, names).items()}
    if given_kind is not None:
        given[ROW_KIND] = f"c{len(given)}"
    return _with_dead_letters(rows, selected, reported, given)


def to_table_rows(query: DataFrame, table: OtherTable, names: Sequence[str] | None = None) -> DataFrame:
    """Return the rows for a table that is not on Kafka: its physical columns, and `row_kind` if the query has it.

    Raises:
        ConfigurationError: If the columns do not fit the table, or it can only be read.
    """
    if table.kind.write is None:
        raise table.can_only("be read")
    for column in table.definition.metadata:
        if not column.virtual:
            raise ConfigurationError(
                f"Column '{column.name}' of table {table.name} is METADATA FROM '{column.key}', which cannot be written. "
                "Declare it VIRTUAL"
            )
    rows, values, kind = values_of(query, table, table.definition.physical, names)
    columns = (value.alias(name) for name, value in values.items())
    return rows.select(*columns, *([] if kind is None else [kind.alias(ROW_KIND)]))


def values_of(
    query: DataFrame,
    table: Table,
    columns: Sequence[Written],
    names: Sequence[str] | None,
    faults: list[Column] | None = None,
) -> tuple[DataFrame, dict[str, Column], Column | None]:
    """Return the query's rows with other names, in these the value of each column, and the kind of a row if there is one.

    Columns are matched by position; `names` are those that an INSERT lists, None for all. `faults` gets columns with the
    reason why a row cannot be written, null if it can. Without it, such a row ends the query.

    Raises:
        ConfigurationError: If the columns do not fit the table.
    """
    given = _assigned(query, table, columns, names)
    has_kind = _has_kind(query, table, names or [c.name for c in columns])
    rows = query.toDF(*(f"c{i}" for i in range(len(query.columns))))
    values = {}
    for c in columns:
        value = F.col(f"c{given[c.name]}") if c.name in given else F.lit(None)
        values[c.name] = value.cast(cast_type(c.type)) if faults is None else _cast_or_fault(value, c, faults)
    kind = _checked_kind(F.col(f"c{len(query.columns) - 1}"), table, faults) if has_kind else None
    or_insert = F.lit(INSERT) if kind is None else kind
    values |= {c.name: _not_null(values[c.name], c, table, or_insert, faults) for c in columns if not c.type.nullable}
    return rows, values, kind


def _unless(wrong: Column, reason: Column, value: Column, faults: list[Column] | None) -> Column:
    """Return a value that ends the query if it is wrong; with `faults`, note that instead."""
    if faults is None:
        return F.when(wrong, F.raise_error(reason)).otherwise(value)
    faults.append(F.when(wrong, reason))
    return value


def _checked_kind(kind: Column, table: Table, faults: list[Column] | None) -> Column:
    rule = f"Column '{ROW_KIND}' of a row for table {table.name} must be +I, -U, +U or -D, not "
    refusal = F.concat(F.lit(rule), F.coalesce(kind, F.lit("NULL")), F.lit(". Correct the query"))
    return _unless(~F.coalesce(kind.isin(*ROW_KINDS), F.lit(False)), refusal, kind, faults)


def _not_null(
    value: Column,
    column: Written,
    table: Table,
    kind: Column,
    faults: list[Column] | None,
) -> Column:
    """Return a value that fails the query if it is null (Flink's `table.exec.sink.not-null-enforcer` = ERROR)."""
    wrong = value.isNull()
    if table.upsert and column.name not in table.key_columns:
        wrong = wrong & ~kind.isin(*DELETES)  # a deleted row needs its key only
    refusal = (
        f"Column '{column.name}' of table {table.name} is NOT NULL, but a row has NULL for it. Filter "
        "such rows, use COALESCE, or declare the column without NOT NULL"
    )
    return _unless(wrong, F.lit(refusal), value, faults)


def _row(encoding: Encoding, values: dict[str, Column], kind: Column) -> Column:
    """Return a struct of the key's or the value's fields, and of the kind for a changelog format."""
    fields = [
        values[column].alias(field) for column, field in zip(encoding.columns, encoding.schema.names, strict=True)
    ]
    if encoding.format.changelog:
        fields.append(kind.alias(ROW_KIND))
    return F.struct(*fields)


def _has_kind(query: DataFrame, table: Table, names: Sequence[str]) -> bool:
    if len(query.columns) != len(names) + 1 or query.columns[-1] != ROW_KIND:
        return False
    if not table.takes_changes:
        raise ConfigurationError(
            f"Table {table.name} accepts only new rows, but the query has updates and deletes (in its "
            "column 'row_kind'). Use a changelog format or 'upsert-kafka', or select the other columns"
        )
    return True


def _assigned(
    query: DataFrame,
    table: Table,
    columns: Sequence[Written],
    names: Sequence[str] | None,
) -> dict[str, int]:
    """Return the position of the query's column for each column of the table that gets a value."""
    by_name = {column.name: column for column in columns}
    wanted = list(by_name) if names is None else list(names)
    for name in wanted:
        if name not in by_name or wanted.count(name) > 1:
            what = "twice" if name in by_name else "which is not a column that can be written"
            raise ConfigurationError(
                f"INSERT INTO {table.name} lists the column '{name}', {what}. The columns are {', '.join(by_name)}"
            )
    for column in columns:
        if not column.type.nullable and column.name not in wanted and isinstance(column, PhysicalColumn):
            raise ConfigurationError(
                f"INSERT INTO {table.name} does not have the column '{column.name}', which is NOT NULL"
            )
    given = len(query.columns) - _has_kind(query, table, wanted)
    if given != len(wanted):
        raise _mismatch("different number of columns", query, table, [by_name[name] for name in wanted])
    for name, found in zip(wanted, query.schema.fields, strict=False):
        if not alike(found.dataType, spark_type(by_name[name].type), _fits):
            given_type = flink_type(found.dataType)
            cause = f"column '{name}' is {by_name[name].type}, but the query's '{found.name}' is {given_type}"
            raise _mismatch(cause, query, table, [by_name[n] for n in wanted])
    return {name: i for i, name in enumerate(wanted)}


def _fits(given: DataType, wanted: DataType) -> bool:
    """Return whether Flink casts a type implicitly, without loss; nothing is cast to text."""
    if given == wanted or given.typeName() == "void":
        return True
    numbers = ("byte", "short", "integer", "long", "decimal", "float", "double")
    a, b = given.typeName(), wanted.typeName()
    if a in numbers and b in numbers:
        return numbers.index(a) <= numbers.index(b)
    if a.startswith("timestamp") and b.startswith("timestamp"):
        return True
    return isinstance(wanted, StringType) and isinstance(given, StringType)


def _mismatch(cause: str, query: DataFrame, table: Table, columns: Sequence[Written]) -> ConfigurationError:
    """Return Flink's error, with both schemas."""
    given = ", ".join(f"{f.name}: {flink_type(f.dataType)}" for f in query.schema.fields)
    wanted = ", ".join(f"{c.name}: {c.type}" for c in columns)
    return ConfigurationError(
        f"Column types of the query's result and of table {table.name} do not match: {cause}. Cast or "
        f"select matching columns\nQuery: [{given}]\nTable: [{wanted}]"
    )


# --- dead letters -------------------------------------------------------------------------------------------------------


def _cast_or_fault(value: Column, column: Written, faults: list[Column]) -> Column:
    """Return a value in the type of its column, and note when it does not fit.

    Only decimals can be too large: all other implicit casts are to a wider type. Decimals inside arrays, maps and rows end
    the query, because Spark would turn them into nulls.
    """
    wanted = cast_type(column.type)
    if not isinstance(wanted, DecimalType):
        return value.cast(wanted)
    found = value.try_cast(wanted)
    reason = F.lit(f"Column '{column.name}' has a number that does not fit {column.type}")
    faults.append(F.when(value.isNotNull() & found.isNull(), reason))
    return found


def _with_dead_letters(
    rows: DataFrame, selected: Sequence[Column], reported: Collection[str], given: Mapping[str, str]
) -> DataFrame:
    """Return the sink's rows, with the column `DEAD_LETTER`.

    Those of the selected columns that are `reported` are of `arrow.MESSAGE_OR_ERROR`. `given` has the column of the rows
    that each column of the table is from.
    """
    names = rows.select(*selected).columns
    schema = StructType([StructField(name, rows.schema[source].dataType) for name, source in given.items()])
    row = F.struct(*(F.col(source).alias(name) for name, source in given.items()))
    error = F.coalesce(F.col(_FAULT), *(F.col(name)["error"] for name in reported))
    text = F.to_json(rebuilt(row, schema, TEMPORAL, temporal_text), {"ignoreNullFields": "false"})
    letter = F.struct(error.alias("error"), text.alias("row"))
    return rows.select(*rows.columns, *selected).select(
        *(F.col(name)["message"].alias(name) if name in reported else F.col(name) for name in names),
        F.when(error.isNotNull(), letter).alias(DEAD_LETTER),
    )
