"""Tables that Spark has itself: in its catalogs by a qualified name, and those of Delta and Iceberg by their connectors.

With a key, a row replaces the row with its key, by MERGE. Such a table takes the changes of a changelog, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from dynamic_kafka.changelog import changes_by_key, merge_changes
from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats.expressions import named, quoted
from dynamic_kafka.options import Option, non_blank
from dynamic_kafka.sql.connectors.table import WRITE_PARALLELISM, Connector, OtherTable, other_table
from dynamic_kafka.sql.errors.script import loading
from dynamic_kafka.sql.session.result import start
from dynamic_kafka.sql.tables.definition import Name, PhysicalColumn, TableDefinition, qualified
from dynamic_kafka.sql.tables.options import KEY_FIELDS
from dynamic_kafka.sql.tables.types import cast_type, flink_type

__all__ = ["DELTA", "ICEBERG", "check_columns", "find", "with_declared_types"]

_SEQUENCE = Option(
    "sequence.field",
    non_blank("a column"),
    doc="With a key: the column whose largest value marks the newest row of a key. A newer row of the table stays.",
)
_TABLE_PATH = Option("table-path", non_blank("a path"), doc="The folder of the Delta table.")
_CATALOG = Option("catalog-name", non_blank("a catalog"), doc="The catalog of the session that has the Iceberg table.")
_DATABASE = Option("catalog-database", non_blank("a database"), "default", doc="The table's database.")
_TABLE = Option("catalog-table", non_blank("a table"), shown_default="the name here", doc="The table's name there.")


def find(spark: SparkSession, name: Name, options: Mapping[str, str]) -> OtherTable | None:
    """Return a table of Spark's catalogs for an INSERT; None if there is none.

    The options of the INSERT's hint are a key, and the column with the order of its rows.

    Raises:
        ConfigurationError: If its catalog does not exist or cannot be loaded, or a column has a type that Flink lacks.
    """
    try:
        with loading():
            if not spark.catalog.tableExists(qualified(name)):
                return None
            fields = spark.table(qualified(name)).schema.fields
    except AnalysisException:  # such as a table that is dropped between the two
        return None
    except PySparkException as error:  # such as a catalog that does not answer
        raise ConfigurationError(
            f"Whether table {qualified(name)} exists in Spark's catalogs is not known: {str(error).splitlines()[0]}"
        ) from error
    key: tuple[str, ...] = KEY_FIELDS.of({KEY_FIELDS.key: KEY_FIELDS.parse(options.get(KEY_FIELDS.key, ""))})
    columns = tuple(
        PhysicalColumn(f.name, flink_type(f.dataType, nullable=f.nullable and f.name not in key)) for f in fields
    )
    for column in columns:
        try:
            cast_type(column.type)
        except KeyError:
            raise ConfigurationError(
                f"Column '{column.name}' of table {qualified(name)} has the type {column.type}, which is not one of Flink. "
                "Write to this table with spark.sql"
            ) from None
    return other_table(TableDefinition(name, columns, options=options), _NAMED, key)


def _place(table: OtherTable) -> str:
    """Return the table's name for Spark."""
    if table.kind is DELTA:
        return f"delta.{quoted(_TABLE_PATH.of(table.options))}"
    if table.kind is ICEBERG:
        name = _TABLE.of(table.options) or table.definition.name[-1]
        return qualified((_CATALOG.of(table.options), _DATABASE.of(table.options), name))
    return table.name


def _check(table: OtherTable) -> None:
    names = [column.name for column in table.definition.physical]
    sequence = _SEQUENCE.of(table.options)
    for key, columns in (("key.fields", table.key_columns), (_SEQUENCE.key, [] if sequence is None else [sequence])):
        for column in columns:
            if column not in names:
                raise ConfigurationError(
                    f"Option '{key}' names the column '{column}', but table {table.name} has {', '.join(names)}"
                )
    if sequence is not None and not table.upsert:
        raise ConfigurationError(f"Option '{_SEQUENCE.key}' of table {table.name} needs a key")


def _read(spark: SparkSession, table: OtherTable) -> DataFrame:
    return with_declared_types(_of_spark(spark, table), table)


def with_declared_types(rows: DataFrame, table: OtherTable) -> DataFrame:
    """Return the columns that a table declares, with their types."""
    return rows.select(*(named(c.name).cast(cast_type(c.type)).alias(c.name) for c in table.definition.physical))


def _of_spark(spark: SparkSession, table: OtherTable) -> DataFrame:
    """Return the table in Spark.

    Raises:
        ConfigurationError: If it does not exist or cannot be loaded, or lacks a column.
    """
    place = _place(table)
    try:
        with loading():
            by_path = table.kind is DELTA
            rows = spark.read.format("delta").load(_TABLE_PATH.of(table.options)) if by_path else spark.table(place)
            names = rows.columns
    except AnalysisException as error:
        raise ConfigurationError(
            f"Table {table.name} is {place} in Spark, which cannot be read: {str(error).splitlines()[0]}. Create it with "
            "spark.sql, in a session with its catalog"
        ) from error
    check_columns(table, f"{place} in Spark", names)
    return rows


def check_columns(
    table: OtherTable, place: str, names: Sequence[str], same: Callable[[str], str] = lambda name: name
) -> None:
    """Raise unless what a table is has its columns. `same` makes names equal that mean the same column.

    Raises:
        ConfigurationError: If one is missing.
    """
    found = set(map(same, names))
    for column in table.definition.physical:
        if same(column.name) not in found:
            raise ConfigurationError(
                f"Table {table.name} is {place}, which has no column '{column.name}'. Its columns are {', '.join(names)}"
            )


def _in_order(rows: DataFrame, table: OtherTable) -> DataFrame:
    """Return the rows with the columns of Spark's table in their order; without a key, these are all that it has."""
    target = _of_spark(rows.sparkSession, table).schema
    given = set(rows.columns)
    if table.upsert:
        return rows
    return rows.select(
        *((named(f.name) if f.name in given else F.lit(None).cast(f.dataType)).alias(f.name) for f in target.fields)
    )


def _merge(rows: DataFrame, place: str, key: tuple[str, ...], sequence: str | None) -> None:
    changes = changes_by_key(rows, key, sequence).persist()  # MERGE reads them more than once
    try:
        merge_changes(changes, place, key, sequence)
    finally:
        changes.unpersist()


def _write(rows: DataFrame, table: OtherTable) -> None:
    if table.upsert:
        _merge(rows, _place(table), table.key_columns, _SEQUENCE.of(table.options))
    elif table.kind is DELTA:
        rows.write.format("delta").mode("append").save(_TABLE_PATH.of(table.options))
    else:
        rows.write.insertInto(_place(table))


def _start(writer: DataStreamWriter, table: OtherTable, rows: DataFrame) -> StreamingQuery:
    place, key, sequence = _place(table), table.key_columns, _SEQUENCE.of(table.options)
    if not key and table.kind is DELTA:
        return writer.format("delta").outputMode("append").start(_TABLE_PATH.of(table.options))
    provider = None if key else _transactional(rows.sparkSession, table)
    if provider is not None:
        return writer.format(provider).outputMode("append").toTable(place)

    def apply(batch: DataFrame, _: int) -> None:
        if key:
            _merge(batch, place, key, sequence)
        else:
            batch.write.insertInto(place)

    return start(writer.foreachBatch(apply), ("update", "append") if key else ("append",))


def _transactional(spark: SparkSession, table: OtherTable) -> str | None:
    """Return the format of a table that takes no batch of a stream twice: Delta and Iceberg remember its number."""
    if table.kind is ICEBERG:
        return "iceberg"
    details = spark.sql(f"DESCRIBE TABLE EXTENDED {_place(table)}").where("col_name = 'Provider'").collect()
    providers = {str(row["data_type"]).lower() for row in details} & {"delta", "iceberg"}
    return providers.pop() if providers else None


_NAMED = Connector((KEY_FIELDS, _SEQUENCE, WRITE_PARALLELISM), _read, _write, _start, _check, encode=_in_order)
DELTA = Connector(
    (_TABLE_PATH, _SEQUENCE, WRITE_PARALLELISM),
    _read,
    _write,
    _start,
    _check,
    required=(_TABLE_PATH,),
    encode=_in_order,
)
"""Delta tables by path."""
ICEBERG = Connector(
    (_CATALOG, _DATABASE, _TABLE, _SEQUENCE, WRITE_PARALLELISM),
    *(_read, _write, _start, _check),
    required=(_CATALOG,),
    encode=_in_order,
)
"""Iceberg tables of a catalog of the session."""
