"""CAST, TRY_CAST and literals with a type."""

from __future__ import annotations

from pyspark.sql.types import DataType
from sqlglot import exp

from dynamic_kafka.errors import SqlError
from dynamic_kafka.sql.dialect.functions.documents import number_in_json
from dynamic_kafka.sql.dialect.functions.rules import Call, Writing, called
from dynamic_kafka.sql.dialect.windows import GROUP_WINDOWS
from dynamic_kafka.sql.dialect.writer import Writer
from dynamic_kafka.sql.parser.lexer import Cursor, tokenize
from dynamic_kafka.sql.parser.types import read_type
from dynamic_kafka.sql.tables.types import FlinkType, cast_type, kind_of, name_of

__all__ = ["cast", "target_of", "typed_literal"]

_TIME = r"'^\\s*\\d{1,4}-\\d{1,2}-\\d{1,2}( \\d{1,2}:\\d{1,2}(:\\d{1,2}(\\.\\d{1,9})?)?)?\\s*$'"
_SPARK_ONLY = ("TIMESTAMP_NTZ", "LONG", "SHORT", "BYTE", "REAL", "STRUCT", "VOID")


def cast(call: Call) -> str:
    """Return a CAST: to Spark's name of the type, with Flink's lengths of texts, and its words for booleans."""
    written = call.arguments[1].name.strip()
    target = _flink_type(written)
    if target is None:
        if not written.upper().startswith(_SPARK_ONLY):
            raise call.refuse(f"The type {written} is not known", 1)
        return f"{call.name}({call.sql(0)} AS {written}){call.over}"
    value = call.sql(0)
    name = name_of(cast_type(target))
    if target.name in ("CHAR", "VARCHAR", "STRING"):
        return call.translator.as_changed(call.node, _to_text(call, target))
    if target.name in ("BINARY", "VARBINARY"):
        length = target.parameters[0]
        bytes_ = f"{call.name}({value} AS BINARY)"
        cut = f"rpad({bytes_}, {length}, X'00')" if target.name == "BINARY" else f"left({bytes_}, {length})"
        return call.translator.as_changed(call.node, f"{cut}{call.over}")
    if target.name == "TIME":
        raise call.refuse("Times of a day are not supported: use TIMESTAMP", 1)
    from_json = number_in_json(call, target.name) if name in ("DOUBLE", "INT") else None
    if from_json is not None:
        found, is_fraction = from_json
        text = _from_text(call, target, name)
        return call.translator.as_changed(call.node, f"CASE WHEN {is_fraction} THEN {found} ELSE {text} END")
    if kind_of(call.type(0)) == "StringType":
        return call.translator.as_changed(call.node, _from_text(call, target, name))
    if target.name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return call.translator.as_changed(call.node, _cut(f"{call.name}({value} AS {name})", target.parameters[0]))
    text = f"{call.name}({value} AS {name})"
    same = (
        " ".join(written.upper().split()).replace("INTEGER", "INT").replace(", ", ",").replace("DEC(", "DECIMAL(")
        == name
    )
    return text if same else call.translator.as_changed(call.node, text)


def target_of(node: exp.Anonymous) -> DataType | None:
    """Return the type that a CAST is to, None if it is one that only Spark has."""
    target = _flink_type(node.expressions[1].name.strip()) if len(node.expressions) == 2 else None
    return None if target is None else cast_type(target)


def _from_text(call: Call, target: FlinkType, name: str) -> str:
    """Return the CAST of a text, which Spark reads more leniently than Flink in some cases, and less in others."""
    value = call.sql(0)
    text = f"{call.name}({value} AS {name})"
    match target.name:
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":  # Flink cuts a fraction off
            whole = f"regexp_replace({value}, '^(\\\\s*[-+]?\\\\d+)\\\\.\\\\d*\\\\s*$', '$1')"
            whole = f"regexp_replace({whole}, '^\\\\s*[-+]?\\\\.\\\\d+\\\\s*$', '0')"
            return f"{call.name}({whole} AS {name})"
        case "DECIMAL" if call.name == "TRY_CAST":
            raise call.refuse(
                "TRY_CAST of some texts without digits to DECIMAL is 0 in Flink: TRY_CAST to DOUBLE first", 0
            )
        case "FLOAT" | "DOUBLE" if call.name == "TRY_CAST":
            word = f"rlike({value}, '(?i)inf|nan') AND NOT rlike({value}, '^\\\\s*[-+]?(Infinity|NaN)\\\\s*$')"
            return f"CASE WHEN {word} THEN NULL ELSE {text} END"
        case "BOOLEAN" if call.name == "TRY_CAST":
            return f"CASE WHEN NOT rlike({value}, '^\\\\s|\\\\s$') THEN {text} END"
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            text = _cut(text, target.parameters[0])
            if call.name == "TRY_CAST":
                return f"CASE WHEN rlike({value}, {_TIME}) THEN {text} END"
    return text


def _cut(text: str, precision: int) -> str:
    """Return a time with no more digits of a second than its type has."""
    if precision >= 6:
        return text
    return f"({text} - make_dt_interval(0, 0, 0, extract(SECOND FROM {text}) % {10**-precision:.{precision}f}))"


def _to_text(call: Call, target: FlinkType) -> str:
    value, found = call.sql(0), kind_of(call.type(0))
    precision = _digits(call.translator, call.arguments[0]) if found.startswith("Timestamp") else None
    if found in ("TimestampType", "TimestampNTZType") and precision is None:
        raise call.refuse(
            "A time as text has as many digits of a second in Flink as its type, and in Spark as it needs. Write "
            "DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm:ss.SSS')",
            0,
        )
    if found in ("ArrayType", "MapType", "StructType", "DayTimeIntervalType", "YearMonthIntervalType", "VariantType"):
        raise call.refuse("Flink and Spark write this type otherwise as a text: use to_json", 0)
    text = f"{call.name}({value} AS STRING)"
    if found == "BooleanType":
        text = f"upper({text})"
    if precision is not None:
        point = f"concat({text}, CASE WHEN instr({text}, '.') > 0 THEN '' ELSE '.' END)"
        text = f"rpad({point}, {20 + precision}, '0')" if precision else f"left({text}, 19)"
    if target.name == "STRING":
        return text
    length = target.parameters[0]
    return f"rpad({text}, {length}, ' ')" if target.name == "CHAR" else f"left({text}, {length})"


def _digits(t: Writing, node: exp.Expr) -> int | None:
    """Return how many digits of a second the type of a time has in Flink, None if that is not known here."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        return 3 if t.is_of_window(node) else None
    name = called(node)
    if name in ("CAST", "TRY_CAST") and len(node.expressions) == 2:
        target = _flink_type(node.expressions[1].name.strip())
        known = target is not None and target.name in ("TIMESTAMP", "TIMESTAMP_LTZ") and target.parameters[0] <= 6
        return target.parameters[0] if known and target is not None else None
    if name in ("TO_TIMESTAMP", "TO_TIMESTAMP_LTZ") or GROUP_WINDOWS.get(name, ("", ""))[1]:
        return 3
    return None


def _flink_type(text: str) -> FlinkType | None:
    try:
        cursor = Cursor(text, tokenize(text))
        found = read_type(cursor)
        cursor.expect_end()
    except SqlError:
        return None
    return found


def typed_literal(translator: Writer, node: exp.Cast) -> str:
    """Return a literal with a type in front, such as `TIMESTAMP '2020-01-01 00:00:00'`, which has no time zone in Flink."""
    kind = node.to.this.name if hasattr(node.to.this, "name") else str(node.to.this)
    if not isinstance(node.this, exp.Literal):
        raise translator.refuse(node, "Write CAST(x AS type)")
    if kind == "DATE":
        return f"DATE {translator.sql(node.this)}"
    if kind in ("TIMESTAMP", "TIMESTAMPNTZ") and not node.to.expressions:
        return translator.as_changed(node, f"TIMESTAMP_NTZ {translator.sql(node.this)}")
    raise translator.refuse(node, f"A literal of the type {kind} is not known: write CAST('...' AS {kind})")
