"""Types of columns: `DECIMAL(10, 2) NOT NULL`, `ROW<a INT, b ARRAY<STRING>>` and all others of Flink."""

from __future__ import annotations

from dataclasses import replace

from dynamic_kafka.errors import suggestion
from dynamic_kafka.sql.parser.lexer import Cursor
from dynamic_kafka.sql.tables.types import DAY_UNITS, YEAR_UNITS, FlinkType, RowField

__all__ = ["read_interval_units", "read_type"]

_MAX_LENGTH = 2**31 - 1
_MAX_DEPTH = 20  # of types within types: far above real ones, far below Python's recursion limit

_Parameter = tuple[str, int, int, int]
"""A parameter of a type: its name, least and greatest value, and default."""
_LENGTH: _Parameter = ("a length", 1, _MAX_LENGTH, 1)
_OPEN_LENGTH: _Parameter = ("a length", 1, _MAX_LENGTH, _MAX_LENGTH)
"""Without a length, VARCHAR and VARBINARY are unlimited in Flink's SQL, whatever its documents of types say."""
_PARAMETERS: dict[str, tuple[_Parameter, ...]] = {
    **dict.fromkeys(("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE"), ()),
    **dict.fromkeys(("STRING", "BYTES", "VARIANT"), ()),
    **dict.fromkeys(("CHAR", "BINARY"), (_LENGTH,)),
    **dict.fromkeys(("VARCHAR", "VARBINARY"), (_OPEN_LENGTH,)),
    "DECIMAL": (("a precision", 1, 38, 10), ("a scale", 0, 38, 0)),
    "TIME": (("a precision", 0, 9, 0),),
    "TIMESTAMP": (("a precision", 0, 9, 6),),
    "TIMESTAMP_LTZ": (("a precision", 0, 9, 6),),
}
"""The types that do not contain other types."""
_UNLIMITED = {"VARCHAR": "STRING", "VARBINARY": "BYTES"}
_SYNONYMS = {"INTEGER": "INT", "DEC": "DECIMAL", "NUMERIC": "DECIMAL", "CHARACTER": "CHAR"}
_NESTED = ("ARRAY", "MULTISET", "MAP", "ROW")
_UNSUPPORTED = {
    "RAW": "RAW types hold Java objects, which Spark cannot read; use BYTES",
    "STRUCTURED": "STRUCTURED types belong to Java classes; write ROW<...> with the same fields",
    "NULL": "a column cannot have the type NULL; use the type of its values",
    "SYMBOL": "SYMBOL is an internal type of Flink",
    "DESCRIPTOR": "DESCRIPTOR is an internal type of Flink",
    "BITMAP": "Spark does not have this type; use BYTES",
}


def read_type(cursor: Cursor, *, depth: int = 0) -> FlinkType:
    """Parse a type with its nullability, such as `ARRAY<INT NOT NULL> NOT NULL` or `INT NOT NULL ARRAY`.

    Raises:
        SqlError: If there is no type, or one that Spark does not have.
    """
    found = _read_nullability(cursor, _read_name(cursor, depth))
    while collection := cursor.take_one_of("ARRAY", "MULTISET"):
        depth = _deeper(cursor, depth)
        found = _read_nullability(cursor, FlinkType(collection, elements=(found,)))
    return found


def _deeper(cursor: Cursor, depth: int) -> int:
    if depth == _MAX_DEPTH:
        raise cursor.error(f"Types are nested deeper than {_MAX_DEPTH} levels")
    return depth + 1


def _read_nullability(cursor: Cursor, type_: FlinkType) -> FlinkType:
    if cursor.take("NOT", "NULL"):
        return replace(type_, nullable=False)
    cursor.take("NULL")
    return type_


def _read_name(cursor: Cursor, depth: int) -> FlinkType:
    token = cursor.token
    if token.kind == "name":
        raise cursor.error(f"{cursor.found()} is not a type of Flink; user-defined types are not supported")
    if token.kind != "word":
        raise cursor.unexpected("a type")
    word = token.text.upper()
    name = _SYNONYMS.get(word, word)
    if name in _UNSUPPORTED:
        raise cursor.error(f"The type {name} is not supported: {_UNSUPPORTED[name]}")
    if name not in _PARAMETERS and name not in (*_NESTED, "INTERVAL"):
        hint = suggestion(name, [*_PARAMETERS, *_SYNONYMS, *_NESTED])
        raise cursor.error(f"{cursor.found()} is not a type of Flink{hint}")
    cursor.next()
    if name == "INTERVAL":
        return FlinkType(f"INTERVAL {read_interval_units(cursor)}")
    if name in _NESTED:
        return _read_nested(cursor, name, _deeper(cursor, depth))
    if name in ("CHAR", "BINARY") and cursor.take("VARYING"):
        name = f"VAR{name}"
    if name == "DOUBLE":
        cursor.take("PRECISION")
    parameters = _read_parameters(cursor, name)
    if name in ("CHAR", "VARCHAR") and cursor.take("CHARACTER", "SET"):
        cursor.next()  # Calcite prints it: `UTF-16LE`. Texts are Unicode anyway
    if name in ("TIME", "TIMESTAMP"):
        name = _read_time_zone(cursor, name)
    if name in _UNLIMITED and parameters == (_MAX_LENGTH,):
        return FlinkType(_UNLIMITED[name])
    return FlinkType(name, parameters)


def _read_parameters(cursor: Cursor, name: str) -> tuple[int, ...]:
    found = [default for *_, default in _PARAMETERS[name]]
    if found and cursor.take("("):
        for i, (what, least, most, _) in enumerate(_PARAMETERS[name]):
            if i and not cursor.take(","):
                break
            found[i] = cursor.number(what, least, min(most, found[0]) if what == "a scale" else most)
        cursor.expect(")")
    return tuple(found)


def _read_time_zone(cursor: Cursor, name: str) -> str:
    if name == "TIMESTAMP" and cursor.take("WITH", "LOCAL", "TIME", "ZONE"):
        return "TIMESTAMP_LTZ"
    if cursor.at("WITH", "TIME", "ZONE"):
        raise cursor.error(
            f"{name} WITH TIME ZONE is not supported, as in Flink's connectors; use TIMESTAMP_LTZ for a point in time"
        )
    cursor.take("WITHOUT", "TIME", "ZONE")
    return name


def _read_nested(cursor: Cursor, name: str, depth: int) -> FlinkType:
    if name == "ROW":
        close = ")" if cursor.take("(") else ">"
        if close == ">":
            cursor.expect("<", hint="write ROW<name type, ...>")
        return FlinkType(name, fields=_read_fields(cursor, close, depth))
    cursor.expect("<", hint=f"write {name}<...> with the type of its elements")
    elements = [read_type(cursor, depth=depth)]
    if name == "MAP":
        cursor.expect(",", hint="write MAP<key type, value type>")
        elements.append(read_type(cursor, depth=depth))
    cursor.expect(">")
    return FlinkType(name, elements=tuple(elements))


def _read_fields(cursor: Cursor, close: str, depth: int) -> tuple[RowField, ...]:
    fields: dict[str, RowField] = {}
    if cursor.take(close):
        return ()
    while True:
        token = cursor.token
        name = cursor.name("a field's name")
        if name in fields:
            raise cursor.error(f"The row has two fields {cursor.shown(token)}", token)
        type_ = read_type(cursor, depth=depth)
        # Flink prints the comment without the keyword; both forms are accepted.
        comment = cursor.string("a comment") if cursor.take("COMMENT") or cursor.token.kind == "string" else None
        fields[name] = RowField(name, type_, comment)
        if cursor.take(close):
            return tuple(fields.values())
        if not cursor.take(","):
            raise cursor.unexpected(f"',' or '{close}'")


def read_interval_units(cursor: Cursor) -> str:
    """Parse the units of an interval and return them, as `DAY` or `DAY(2) TO SECOND(3)`; plurals are accepted.

    Raises:
        SqlError: If Flink does not have them.
    """
    unit, text = _read_unit(cursor, (*YEAR_UNITS, *DAY_UNITS))
    family = YEAR_UNITS if unit in YEAR_UNITS else DAY_UNITS
    smaller = family[family.index(unit) + 1 :]
    if smaller and cursor.take("TO"):
        text += f" TO {_read_unit(cursor, smaller)[1]}"
    return text


def _read_unit(cursor: Cursor, units: tuple[str, ...]) -> tuple[str, str]:
    word = cursor.token.text.upper().removesuffix("S")
    if cursor.token.kind != "word" or word not in units:
        raise cursor.unexpected(f"a unit of time ({', '.join(units)})")
    cursor.next()
    if not cursor.take("("):
        return word, word
    precision = str(cursor.number("a precision", 0, 10))
    if word == "SECOND" and cursor.take(","):
        precision += f", {cursor.number('a precision', 0, 9)}"
    cursor.expect(")")
    return word, f"{word}({precision})"
