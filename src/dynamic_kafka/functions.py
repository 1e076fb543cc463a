"""Formats for DataFrames: the bytes of Kafka messages to columns, and back.

The formats and their options are those of SQL tables; see docs/reference/sql.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.errors import ParseException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from dynamic_kafka.errors import ConfigurationError, InvalidOptionError
from dynamic_kafka.formats import ERROR, METADATA, ROW_KIND, ROWS, Format, FormatOptions, format_named
from dynamic_kafka.formats.arrow import decoded, encoded
from dynamic_kafka.formats.evolution import refuse_evolution
from dynamic_kafka.formats.expressions import decoded_struct, has, let, nullable
from dynamic_kafka.formats.format import explained
from dynamic_kafka.formats.options import ON_ERROR, check_unknown, format_options
from dynamic_kafka.formats.schema_ids import refuse_headers
from dynamic_kafka.options import texts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

__all__ = ["from_kafka", "to_kafka"]


def from_kafka(
    value: Column | str,
    format: str,  # noqa: A002  as in the options
    schema: StructType | str | None = None,
    options: Mapping[str, object] | None = None,
) -> Column:
    """Decode keys or values.

    Args:
        value: A binary column, such as `value`, or its name.
        format: Flink's name of the format, such as `json` or `avro-confluent`.
        schema: The fields, as a type or in Spark's DDL (`id BIGINT, name STRING`). None for those of the latest schema of
            the subject in the format's schema registry, such as `avro-confluent.subject`.
        options: The format's options by their whole names, such as `json.ignore-parse-errors`. `format.on-error` is `fail`
            (the default) or `skip`, which returns null.

    Returns:
        A struct of the schema's fields; null for a null message. For a changelog format an array of
        `struct<row_kind: string, row: struct<...>, metadata: struct<...>>`, which can be exploded. The fields of `metadata`
        have the names of SQL's metadata columns without `value.`.

    Raises:
        ConfigurationError: If the format or an option is unknown or wrong, or does not support the schema.
        RegistryError: If the registry does not answer, or does not have the subject.

    Examples:
        >>> df.select(from_kafka("value", "json", "id BIGINT, name STRING").alias("order"))  # doctest: +SKIP
    """
    given = texts(options or {})
    policy = given.pop(ON_ERROR.key, ON_ERROR.default)
    if policy not in ("fail", "skip"):
        raise InvalidOptionError(
            ON_ERROR.key, policy, "fail or skip (dead-letter is for SQL tables and for value.format)"
        )
    used, parsed, fields = _format(format, given, schema)
    refuse_headers(used.name, parsed)
    refuse_evolution(used, parsed)
    column = F.col(value) if isinstance(value, str) else value

    decode = used.decoder(fields, parsed)

    def rows(messages: pa.Array) -> pa.Array:
        return explained(decode(messages), messages, "A message", used.name)

    def checked(message: Column) -> Column:
        row = _changes(message) if used.changelog else message.dropFields(ERROR)
        fine = F.when(message.isNull() | message[ERROR].isNull(), row)
        return fine if policy == "skip" else fine.otherwise(F.raise_error(message[ERROR]))

    found = decoded(rows, decoded_struct(used, nullable(fields)), column)
    # Spark calls an Arrow function once, wherever its result is used, but not within a lambda.
    return let(found, checked) if used.changelog else checked(found)


def _changes(decoded: Column) -> Column:
    """Return the rows of a changelog's message, each with the message's metadata."""
    return F.transform(
        decoded[ROWS],
        lambda r: F.struct(r[ROW_KIND].alias(ROW_KIND), r["row"].alias("row"), decoded[METADATA].alias(METADATA)),
    )


def to_kafka(
    row: Column | str,
    format: str,  # noqa: A002  as in the options
    schema: StructType | str,
    options: Mapping[str, object] | None = None,
) -> Column:
    """Encode rows as keys or values.

    Args:
        row: A struct column, or its name. Its fields, also those of nested structs, are matched by name. For a changelog
            format it also has the field `row_kind`.
        format: Flink's name of the format.
        schema: The fields without `row_kind`, as a type or in Spark's DDL.
        options: The format's options by their whole names.

    Returns:
        A binary column.

    Raises:
        ConfigurationError: For the same reasons as in `from_kafka`.

    Examples:
        >>> df.select(to_kafka(struct("id", "name"), "json", "id BIGINT, name STRING").alias("value"))  # doctest: +SKIP
    """
    used, parsed, fields = _format(format, texts(options or {}), schema)
    column = F.col(row) if isinstance(row, str) else row
    names = [*fields.fields, StructField(ROW_KIND, StringType())] if used.changelog else fields.fields
    # With a name, because Spark cannot make one of a struct in such an expression.
    return encoded(used.rows(_by_name(column, StructType(names)), fields, parsed)).alias("to_kafka")


def _by_name(column: Column, type_: DataType) -> Column:
    """Cast a value, and structs field by field by name: Spark's cast matches fields by position."""
    match type_:
        case StructType():
            fields = (_by_name(column[f.name], f.dataType).alias(f.name) for f in type_.fields)
            return F.when(column.isNotNull(), F.struct(*fields))
        case ArrayType(elementType=element) if has(element, (StructType,)):
            return F.transform(column, lambda x: _by_name(x, element))
        case MapType(valueType=element) if has(element, (StructType,)):
            return F.transform_values(column, lambda _, x: _by_name(x, element))
        case _:
            return column.cast(type_)


def _struct(schema: StructType | str) -> StructType:
    if isinstance(schema, StructType):
        return schema
    try:
        parsed = StructType.fromDDL(schema)
    except ParseException as error:
        raise ConfigurationError(
            f"The schema {schema!r} is not Spark's DDL ('id BIGINT, name STRING'): {str(error).strip().splitlines()[0]}"
        ) from error
    if not isinstance(parsed, StructType):
        raise ConfigurationError(f"The schema {schema!r} does not have fields; write it as in 'id BIGINT, name STRING'")
    return parsed


def _format(
    name: str, options: Mapping[str, str], schema: StructType | str | None
) -> tuple[Format, FormatOptions, StructType]:
    used = format_named(name)
    parsed, names = format_options(used, "", options)
    check_unknown(options.keys() - names, [("", used)])
    if schema is not None:
        fields = _struct(schema)
    elif used.columns is not None:
        fields, added = used.columns(parsed)
        parsed = {**parsed, **added}
    else:
        raise ConfigurationError(f"The schema is missing; the format '{name}' has no schema registry that knows it")
    used.check(fields, parsed)
    return used, parsed, fields
