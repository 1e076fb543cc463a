"""All tables of an environment, on Kafka or not: from definitions to tables, and reading them."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from dynamic_kafka.errors import InvalidOptionError, suggestion
from dynamic_kafka.sql.connectors.datagen import DATAGEN
from dynamic_kafka.sql.connectors.filesystem import FILESYSTEM
from dynamic_kafka.sql.connectors.jdbc import JDBC
from dynamic_kafka.sql.connectors.scan import finished, read
from dynamic_kafka.sql.connectors.sinks import BLACKHOLE, PRINT
from dynamic_kafka.sql.connectors.spark_table import DELTA, ICEBERG
from dynamic_kafka.sql.connectors.table import Connector, OtherTable, other_table
from dynamic_kafka.sql.tables.definition import TableDefinition
from dynamic_kafka.sql.tables.options import CONNECTOR, CONNECTORS
from dynamic_kafka.sql.tables.table import KafkaTable
from dynamic_kafka.sql.tables.table import table_of as kafka_table

__all__ = ["OTHERS", "Table", "read_table", "table_of"]

Table = KafkaTable | OtherTable

OTHERS: Mapping[str, Connector] = {
    "print": PRINT,
    "blackhole": BLACKHOLE,
    "datagen": DATAGEN,
    "filesystem": FILESYSTEM,
    "jdbc": JDBC,
    "delta": DELTA,
    "iceberg": ICEBERG,
}
"""The connectors besides Kafka's, by name."""


def table_of(definition: TableDefinition) -> Table:
    """Check a table's definition, and return the table.

    Raises:
        ConfigurationError: If it is wrong, with the option or column, its value and the expected ones.
    """
    given = definition.options.get(CONNECTOR.key)
    name = "" if given is None else given.strip().lower()
    if name in OTHERS:
        return other_table(definition, OTHERS[name], definition.primary_key if name in ("delta", "iceberg") else ())
    if given is not None and name not in CONNECTORS:
        known = (*CONNECTORS, *OTHERS)
        raise InvalidOptionError(CONNECTOR.key, given, f"one of {', '.join(known)}{suggestion(given, known)}")
    return kafka_table(definition)


def read_table(spark: SparkSession, table: Table, *, streaming: bool) -> DataFrame:
    """Return a table's rows, with its columns in order.

    A table that is not on Kafka and has an end is a batch, also beside streams: then Spark joins each micro-batch with it.

    Raises:
        ConfigurationError: If it can only be written to, or is wrong.
    """
    if isinstance(table, KafkaTable):
        return read(spark, table, streaming=streaming)
    if table.kind.read is None:
        raise table.can_only("be written to")
    return finished(table.kind.read(spark, table), table.definition, streaming=not table.bounded)
