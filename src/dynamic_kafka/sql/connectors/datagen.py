"""`datagen`: generated rows. Spark's `rate` source counts (`range`, if there is an end), and expressions make values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_kafka.errors import ConfigurationError, InvalidOptionError
from dynamic_kafka.formats.expressions import quoted
from dynamic_kafka.options import Option, boolean, choice, duration_ms, integer
from dynamic_kafka.sql.connectors.table import READ_PARALLELISM, Connector, OtherTable
from dynamic_kafka.sql.tables.types import FlinkType, cast_type, string_literal

__all__ = ["DATAGEN", "expressions", "row_count"]

T = TypeVar("T")

_ROWS_PER_SECOND = Option(
    "rows-per-second", integer(at_least=1), "10000", doc="The number of rows a second of a table without an end."
)
_NUMBER_OF_ROWS = Option(
    "number-of-rows", integer(at_least=0), shown_default="no end", doc="The number of rows. The table then has an end."
)
_FIELDS = "fields."
_OF_FIELD = ("kind", "min", "max", "max-past", "length", "var-len", "null-rate", "start", "end")
_INTEGERS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
_FLOATS = {"FLOAT": ("1.4E-45", "3.4028235E38"), "DOUBLE": ("4.9E-324", "1.7976931348623157E308")}
_LENGTH = 100
_ELEMENTS = 3


def row_count(table: OtherTable) -> int | None:
    """Return the number of a table's rows; None if it has no end.

    It ends with `number-of-rows`, and with the shortest sequence.
    """
    options = _Options(table.rest)
    counts = [
        options.of(c.name, "end", int) - options.of(c.name, "start", int) + 1
        for c in table.definition.physical
        if options.kind(c.name) == "sequence"
    ]
    number: int | None = _NUMBER_OF_ROWS.of(table.options)
    return min([*counts, *([] if number is None else [number])], default=None)


def expressions(table: OtherTable) -> Iterator[str]:
    """Yield Spark's expression for each physical column, on a column `value` that counts from 0.

    Raises:
        ConfigurationError: If an option is wrong, unknown or missing, or a type cannot be generated.
    """
    options = _Options(table.rest)
    for column in table.definition.physical:
        name = column.name
        if options.kind(name) == "sequence":
            start, end = options.of(name, "start", int), options.of(name, "end", int)
            if end < start:
                raise InvalidOptionError(f"{_FIELDS}{name}.end", str(end), f"a number from {start} on")
            if column.type.name not in {*_INTEGERS, *_FLOATS, "DECIMAL", "CHAR", "VARCHAR", "STRING"}:
                raise ConfigurationError(
                    f"Column '{name}' is {column.type}, of which there is no sequence. Use '{_FIELDS}{name}.kind' = 'random'"
                )
            yield f"value + {start}L"
        else:
            yield _random(column.type, name, options)
    options.check_all_used()


class _Options:
    """The options `fields.<name>.<option>` of a table."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given, self._used = given, set[str]()

    def kind(self, name: str) -> str:
        """Return whether a column is `random` or a `sequence`."""
        return str(self.get(name, "kind", choice("random", "sequence"), "random"))

    def of(self, name: str, option: str, parse: Callable[[str], T]) -> T:
        """Return an option that has to be given."""
        if f"{_FIELDS}{name}.{option}" not in self._given:
            raise ConfigurationError(
                f"Option '{_FIELDS}{name}.{option}' is missing; a sequence needs 'start' and 'end'"
            )
        return self.get(name, option, parse, None)  # type: ignore[return-value]

    def get(self, name: str, option: str, parse: Callable[[str], T], default: T) -> T:
        """Return an option, or its default."""
        key = f"{_FIELDS}{name}.{option}"
        text = self._given.get(key)
        if text is None:
            return default
        self._used.add(key)
        try:
            return parse(text)
        except (ValueError, InvalidOperation) as error:
            expected = getattr(parse, "expected", "a number")
            raise InvalidOptionError(key, text, expected) from error

    def check_all_used(self) -> None:
        """Raise for an option of a column that does not exist, or that its type does not have."""
        for key in sorted(self._given.keys() - self._used):
            raise ConfigurationError(
                f"Option '{key}' does not fit a column. Columns have {', '.join(_OF_FIELD)}, as their type and kind allow: "
                f"'{_FIELDS}<column>.<option>'"
            )


def _random(type_: FlinkType, name: str, options: _Options) -> str:
    rate = options.get(name, "null-rate", float, 0.0)
    if not 0 <= rate <= 1:
        raise InvalidOptionError(f"{_FIELDS}{name}.null-rate", str(rate), "a number from 0 to 1")
    value = _value(type_, name, options)
    return f"CASE WHEN rand() >= {rate!r}D THEN {value} END" if rate else value


def _value(type_: FlinkType, name: str, options: _Options) -> str:
    """Return an expression for random values of a type."""
    match type_:
        case FlinkType(name="BOOLEAN"):
            return "rand() < 0.5D"
        case FlinkType(name=integers) if integers in _INTEGERS:
            least, most = -(1 << _INTEGERS[integers]), (1 << _INTEGERS[integers]) - 1
            return _whole(*_range(name, options, int, least, most))
        case FlinkType(name=floats) if floats in _FLOATS:
            low, high = _range(name, options, float, *map(float, _FLOATS[floats]))
            return f"CAST({low!r}D + rand() * ({high!r}D - {low!r}D) AS {floats})"
        case FlinkType(name="DECIMAL", parameters=(precision, scale)):
            most_digits = Decimal(10**precision - 1).scaleb(-scale)
            smallest, largest = _range(name, options, Decimal, Decimal(0), most_digits)
            whole = _whole(int(smallest.scaleb(scale)), int(largest.scaleb(scale)))
            return f"CAST(CAST({whole} AS STRING) || 'E-{scale}' AS DECIMAL({precision}, {scale}))"
        case FlinkType(name="CHAR" | "VARCHAR" | "STRING" | "BINARY" | "VARBINARY" | "BYTES"):
            return _text(type_, name, options)
        case FlinkType(name="DATE"):
            return "current_date()"
        case FlinkType(name="TIMESTAMP" | "TIMESTAMP_LTZ"):
            past_ms = options.get(name, "max-past", duration_ms(at_least=0), 0)
            now = "unix_millis(current_timestamp())"
            time = f"timestamp_millis({now} - CAST(floor(rand() * {past_ms + 1}) AS BIGINT))"
            return f"CAST({time} AS TIMESTAMP_NTZ)" if type_.name == "TIMESTAMP" else time
        case FlinkType(name="ROW", fields=fields):
            parts = (f"{string_literal(f.name)}, {_cast(f.type, f'{name}.{f.name}', options)}" for f in fields)
            return f"named_struct({', '.join(parts)})"
        case FlinkType(name="ARRAY", elements=(element,)):
            length = options.get(name, "length", integer(at_least=1), _ELEMENTS)
            return f"array({', '.join(_cast(element, f'{name}.element', options) for _ in range(length))})"
        case _:
            raise ConfigurationError(
                f"Column '{name}' is {type_}, of which 'datagen' makes no random values. Compute the column from others: "
                f"{quoted(name)} AS ..."
            )


def _cast(type_: FlinkType, name: str, options: _Options) -> str:
    return f"CAST({_random(type_, name, options)} AS {cast_type(type_).simpleString()})"


def _range(name: str, options: _Options, parse: Callable[[str], Any], least: Any, most: Any) -> tuple[Any, Any]:
    low, high = options.get(name, "min", parse, least), options.get(name, "max", parse, most)
    if low > high:
        raise InvalidOptionError(f"{_FIELDS}{name}.max", str(high), f"a number from {low} on")
    return low, high


def _whole(low: int, high: int) -> str:
    """Return an expression for a whole number of a range, each with the same probability."""
    size = high - low + 1
    if size < 1 << 63 and low > -(1 << 63):
        return f"({low}L + pmod(xxhash64(rand()), {size}L))"
    whole = "CAST({} AS DECIMAL(38, 0))".format
    return f"({whole(repr(str(low)))} + pmod({whole('xxhash64(rand())')}, {whole(repr(str(size)))}))"


def _text(type_: FlinkType, name: str, options: _Options) -> str:
    """Return an expression for a text of hexadecimal digits, or for bytes."""
    most = type_.parameters[0] if type_.parameters else _LENGTH
    length = options.get(name, "length", integer(at_least=1), most)
    if type_.parameters and length > type_.parameters[0]:
        raise InvalidOptionError(f"{_FIELDS}{name}.length", str(length), f"at most {most}, the length of {type_}")
    of_bytes = "BINARY" in type_.name or type_.name == "BYTES"
    digits = length * 2 if of_bytes else length
    text = " || ".join(["md5(CAST(rand() AS STRING))"] * -(-digits // 32))
    cut = str(digits)
    if options.get(name, "var-len", boolean, False):
        cut = f"(1 + CAST(floor(rand() * {length}) AS INT)){' * 2' if of_bytes else ''}"
    return f"unhex(left({text}, {cut}))" if of_bytes else f"left({text}, {cut})"


def _read(spark: SparkSession, table: OtherTable) -> DataFrame:
    tasks: int | None = READ_PARALLELISM.of(table.options)
    rows = row_count(table)
    if rows is None:
        reader = spark.readStream.format("rate").option("rowsPerSecond", _ROWS_PER_SECOND.of(table.options))
        counted = (reader if tasks is None else reader.option("numPartitions", tasks)).load()
    else:
        counted = spark.range(0, rows, numPartitions=tasks).toDF("value")
    columns = zip(table.definition.physical, expressions(table), strict=True)
    return counted.select(*(F.expr(text).cast(cast_type(c.type)).alias(c.name) for c, text in columns))


def _check(table: OtherTable) -> None:
    list(expressions(table))
    row_count(table)


DATAGEN = Connector(
    options=(_ROWS_PER_SECOND, _NUMBER_OF_ROWS, READ_PARALLELISM),
    read=_read,
    check=_check,
    endless=lambda table: None if row_count(table) is not None else "'number-of-rows' = '1000'",
    prefixes=(_FIELDS,),
)
"""Generated rows."""
