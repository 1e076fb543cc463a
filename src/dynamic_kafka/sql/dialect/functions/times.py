"""Rules of functions on dates and times.

Flink's TIMESTAMP has no time zone and is Spark's TIMESTAMP_NTZ; its TIMESTAMP_LTZ is Spark's TIMESTAMP.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot import exp

from dynamic_kafka.sql.dialect.functions.rules import Call, Refused, Rule, called
from dynamic_kafka.sql.tables.types import DAY_UNITS, UNITS_US, YEAR_UNITS, kind_of

__all__ = ["REFUSED", "RULES", "SAME", "truncate"]

SAME = frozenset(
    (
        *("CURRENT_DATE", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "NOW", "YEAR", "QUARTER", "MONTH", "DAYOFYEAR"),
        *("DAYOFMONTH", "DAYOFWEEK", "HOUR", "MINUTE", "SECOND"),
    )
)
_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
_BEFORE_CLOCKS_CHANGED = "INTERVAL '584388' DAY"
"""1600 years, after which the calendar is the same. Spark counts months in the session's time zone, and no zone had changed
its clocks then."""
_LETTERS = frozenset("yMdHhmsSaE")
"""Letters of a pattern that mean the same to Flink and to Spark."""


def check_pattern(call: Call) -> str:
    """Return the second argument, which is a pattern of dates and times.

    Raises:
        SqlError: If it has letters with a different meaning in Spark, or is not known before rows are read.
    """
    pattern = call.text(1)
    if pattern is None:
        raise call.refuse(f"The pattern of {call.name} has to be a literal, so that it can be compared with Spark's", 1)
    letters = set(re.sub(r"'[^']*'|[^A-Za-z]", "", pattern))
    if odd := sorted(letters - _LETTERS):
        raise call.refuse(
            f"The letters {', '.join(odd)} in a pattern mean something else in Spark, or nothing. Known are "
            f"{', '.join(sorted(_LETTERS))}. (A year is yyyy: YYYY is the year of a week)",
            1,
        )
    return call.sql(1)


def truncate(call: Call, *, up: bool) -> str:
    """Return FLOOR or CEIL of a time to a unit."""
    unit = call.arguments[1].name.upper()
    if unit not in _UNITS:
        raise call.refuse(f"{call.name} knows the units {', '.join(_UNITS)}", 1)
    found, value = kind_of(call.type(0)), call.sql(0)
    if up or unit == "WEEK":
        raise call.refuse(
            f"{call.name} to {unit} has no equal in Spark: use date_trunc('{unit}', ts), which rounds down", 1
        )
    if found == "TimestampType":
        return f"CAST(date_trunc('{unit}', {value}) AS TIMESTAMP)"
    if found not in ("DateType", "TimestampNTZType"):
        raise call.refuse(f"{call.name} to {unit} needs a date or a time", 0)
    rest = {"SECOND": "0, extract(SECOND FROM {0}) % 1", "MINUTE": "0, extract(SECOND FROM {0})"}
    rest["HOUR"] = "minute({0}), extract(SECOND FROM {0})"
    if unit in rest:
        return value if found == "DateType" else f"({value} - make_dt_interval(0, 0, {rest[unit].format(value)}))"
    day = f"CAST({value} AS DATE)" if unit == "DAY" else f"trunc({value}, '{unit}')"
    return day if found == "DateType" else f"CAST({day} AS TIMESTAMP_NTZ)"


def _extract(call: Call) -> str:
    unit, value = call.arguments[0].name.upper(), call.sql(1)
    match unit:
        case "YEAR" | "QUARTER" | "MONTH" | "WEEK" | "DAY" | "DOW" | "DOY" | "HOUR" | "MINUTE":
            return f"CAST(extract({unit} FROM {value}) AS BIGINT)"
        case "SECOND":
            return f"CAST(floor(extract(SECOND FROM {value})) AS BIGINT)"
        case _:
            raise call.refuse(f"EXTRACT({unit} FROM ...) has no equal in Spark: use date_part, or unix_millis(ts)", 0)


def _date_format(call: Call) -> str:
    pattern = check_pattern(call)
    if kind_of(call.type(0)) == "StringType":
        raise call.refuse(
            "DATE_FORMAT of a text: Spark reads other texts as times than Flink. Write TO_TIMESTAMP(text) first", 0
        )
    if kind_of(call.type(0)) == "TimestampNTZType":  # date_format would read it in the session's time zone
        return (
            f"get_json_object(to_json(named_struct('t', {call.sql(0)}), map('timestampNTZFormat', {pattern})), '$.t')"
        )
    return f"date_format({call.sql(0)}, {pattern})"


_DEFAULT = "'yyyy-MM-dd HH:mm:ss'"
_SHAPE = r"'^\\d{4}-\\d{1,2}-\\d{1,2}( \\d{1,2}:\\d{1,2}:\\d{1,2}(\\.\\d{1,9})?)?$'"
_FIXED = r"'^\\d{4}-\\d{2}-\\d{2}( \\d{2}:\\d{2}:\\d{2}(\\.\\d{1,9})?)?$'"


def _odd(call: Call) -> str:
    return f"raise_error('{call.name} of such a time or date is not the same in Spark')"


def _to_timestamp(call: Call) -> str:
    pattern = check_pattern(call) if len(call.arguments) == 2 else _DEFAULT
    if kind_of(call.type(0)) != "StringType":
        raise call.refuse("TO_TIMESTAMP reads a text. Of a number, write TO_TIMESTAMP_LTZ(n, 0) or (n, 3)", 0)
    value = call.sql(0)
    if pattern != _DEFAULT:
        return _by_pattern(call, pattern, lenient=False)
    # Milliseconds are kept, and a day behind the end of its month is the last one.
    text = f"regexp_replace({value}, '(\\\\.\\\\d{{3}})\\\\d+$', '$1')"
    last = f"date_format(last_day(TRY_CAST(concat(left({value}, 7), '-01') AS DATE)), 'dd')"
    clamped = f"concat(left({text}, 8), {last}, substring({text}, 11))"
    return (
        f"CASE WHEN rlike({value}, {_SHAPE}) THEN CASE WHEN TRY_CAST({text} AS TIMESTAMP_NTZ) IS NOT NULL "
        f"THEN TRY_CAST({text} AS TIMESTAMP_NTZ) WHEN rlike({value}, ' 24:') OR NOT rlike({value}, {_FIXED}) "
        f"THEN {_odd(call)} WHEN substring({value}, 9, 2) BETWEEN '29' AND '31' "
        f"THEN TRY_CAST({clamped} AS TIMESTAMP_NTZ) END END"
    )


def _by_pattern(call: Call, pattern: str, *, lenient: bool) -> str:
    """Return a time read by a pattern. Of a text with the shape of the pattern that Spark does not read, it is an error.

    Flink would read such a text: it takes the 30th of February for another day. `lenient` is for a text with fewer digits,
    or with more after it, which Flink's TO_DATE reads, too.
    """
    value = call.sql(0)
    shape = "".join(_shape(part, lenient=lenient) for part in _parts(str(call.text(1))))
    shape = shape.replace("\\", "\\\\").replace("'", "\\'")
    end = "" if lenient else "$"
    return (
        f"CASE WHEN try_to_timestamp({value}, {pattern}) IS NOT NULL THEN to_timestamp_ntz({value}, {pattern}) "
        f"WHEN rlike({value}, '^{shape}{end}') THEN {_odd(call)} END"
    )


def _shape(part: str, *, lenient: bool) -> str:
    """Return a regular expression for what a part of a pattern reads."""
    if not part[0].isalpha():
        return re.escape(part.removeprefix("\x00"))
    if part[0] in "Ea" or (part[0] == "M" and len(part) > 2):
        return r"\S+"
    return r"\d+" if lenient else rf"\d{{{len(part)}}}"


def _parts(pattern: str) -> list[str]:
    """Return the parts of a pattern: repeated letters, and what is between them, with a NUL in front of what was quoted."""
    found = re.findall(r"'((?:[^']|'')*)'|(([A-Za-z])\3*)|([^A-Za-z']+)", pattern)
    parts = (f"\x00{quoted}" if quoted else letters or other for quoted, letters, _, other in found)
    return [part for part in parts if part]


def _to_timestamp_ltz(call: Call) -> str:
    found = kind_of(call.type(0))
    precision = call.arguments[1].name if len(call.arguments) > 1 else "3"
    if found == "StringType" or len(call.arguments) > 2:
        raise call.refuse(
            "TO_TIMESTAMP_LTZ of a text has no equal in Spark: CAST(TO_TIMESTAMP(text, pattern) AS TIMESTAMP_LTZ)", 0
        )
    if precision not in ("0", "3"):
        raise call.refuse("The precision of TO_TIMESTAMP_LTZ is 0 for seconds or 3 for milliseconds", 1)
    if found not in ("ByteType", "ShortType", "IntegerType", "LongType"):
        raise call.refuse("TO_TIMESTAMP_LTZ of a number with a fraction: CAST(x AS BIGINT) first", 0)
    return f"{'timestamp_seconds' if precision == '0' else 'timestamp_millis'}({call.sql(0)})"


def _unix_timestamp(call: Call) -> str:
    """Flink reads a text leniently, up to where it fits. What is not clearly a time, or clearly none, is an error here."""
    if not call.arguments:
        return "unix_timestamp()"
    pattern = check_pattern(call) if len(call.arguments) == 2 else _DEFAULT
    value = _seconds_as_text(call) or call.sql(0)
    read = value if pattern != _DEFAULT else rf"regexp_replace({value}, '^(.{{19}})\\.\\d+$', '$1')"
    return (
        f"CASE WHEN {value} IS NULL THEN NULL WHEN try_to_timestamp({read}, {pattern}) IS NOT NULL "
        f"THEN unix_seconds(try_to_timestamp({read}, {pattern})) "
        f"WHEN rlike({value}, '^\\\\s*[-+]?\\\\d') THEN raise_error('UNIX_TIMESTAMP: not a time with this pattern') "
        "ELSE -9223372036854775808 END"
    )


def _seconds_as_text(call: Call) -> str | None:
    """Return a time as text without a fraction, which is not read, for the argument CAST(ts AS STRING)."""
    node = call.arguments[0]
    if len(call.arguments) > 1 or not isinstance(node, exp.Anonymous) or called(node) != "CAST":
        return None
    written = "".join(node.expressions[1].name.upper().split())
    inner = Call(call.translator, node, "CAST")
    if written not in ("STRING", "VARCHAR", "VARCHAR(2147483647)"):
        return None
    return f"left(CAST({inner.sql(0)} AS STRING), 19)" if kind_of(inner.type(0)).startswith("Timestamp") else None


def _from_unixtime(call: Call) -> str:
    pattern = check_pattern(call) if len(call.arguments) == 2 else _DEFAULT
    return f"date_format(timestamp_seconds({call.sql(0)}), {pattern})"


def _to_date(call: Call) -> str:
    if len(call.arguments) == 2:
        return f"CAST({_by_pattern(call, check_pattern(call), lenient=True)} AS DATE)"
    value = f"regexp_replace(trim({call.sql(0)}), ' .*$', '')"
    return rf"CASE WHEN rlike({value}, '^\\d{{4}}(-\\d{{1,2}}(-\\d{{1,2}})?)?$') THEN TRY_CAST({value} AS DATE) END"


def _difference(call: Call) -> str:
    unit = call.arguments[0].name.upper()
    one, other = call.sql(1), call.sql(2)
    kinds = {kind_of(call.type(1)), kind_of(call.type(2))}
    if unit not in (*YEAR_UNITS, *DAY_UNITS):
        raise call.refuse("TIMESTAMPDIFF knows the units SECOND, MINUTE, HOUR, DAY, MONTH and YEAR", 0)
    if unit in ("MONTH", "YEAR"):
        if kinds <= {"TimestampNTZType", "DateType"}:
            one, other = (f"CAST({end} AS TIMESTAMP_NTZ) - {_BEFORE_CLOCKS_CHANGED}" for end in (one, other))
        return f"CAST(timestampdiff({unit}, {one}, {other}) AS INT)"
    if kinds == {"TimestampType"}:
        return f"CAST((unix_millis({other}) - unix_millis({one})) DIV {UNITS_US[unit] // 1000} AS INT)"
    if kinds <= {"TimestampNTZType", "DateType"}:
        ends = [f"CAST({end} AS TIMESTAMP_NTZ)" for end in (other, one)]
        return f"CAST(({ends[0]} - {ends[1]}) DIV INTERVAL '1' {unit} AS INT)"
    raise call.refuse("TIMESTAMPDIFF between a TIMESTAMP and a TIMESTAMP_LTZ: CAST one of them first", 1)


def _add(call: Call) -> str:
    unit = call.arguments[0].name.upper()
    kind = kind_of(call.type(2))
    if unit not in (*UNITS_US, "MONTH", "YEAR", "QUARTER"):
        raise call.refuse("TIMESTAMPADD knows the units SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, QUARTER and YEAR", 0)
    count, value = call.sql(1), call.sql(2)
    if unit in ("MONTH", "YEAR", "QUARTER"):
        months = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}[unit]
        return f"({value} + make_ym_interval(0, ({count}) * {months}))"
    if kind == "DateType" and unit in ("DAY", "WEEK"):
        return f"date_add({value}, ({count}) * {7 if unit == 'WEEK' else 1})"
    if kind == "TimestampType":
        return f"timestamp_micros(unix_micros({value}) + CAST({count} AS BIGINT) * {UNITS_US[unit]})"
    seconds = UNITS_US[unit] // 1_000_000
    return f"({value} + make_dt_interval(0, 0, 0, ({count}) * {seconds}))"


RULES: Mapping[str, Rule] = {
    "EXTRACT": Rule(
        _extract, "Flink returns a whole number of seconds, Spark one with a fraction.", "`extract`, as BIGINT", (2,)
    ),
    "WEEK": Rule("weekofyear({0})", "Only the name differs."),
    "DATE_FORMAT": Rule(_date_format, "Only with a literal pattern of letters that both know.", "`date_format`", (2,)),
    "TO_TIMESTAMP": Rule(
        _to_timestamp,
        "Flink returns a TIMESTAMP without a time zone, and NULL for other texts.",
        "`try_to_timestamp`, as TIMESTAMP_NTZ",
        (1, 2),
    ),
    "TO_TIMESTAMP_LTZ": Rule(
        _to_timestamp_ltz, "Spark has another function of this name.", "`timestamp_millis(n)`", (1, 2, 3)
    ),
    "UNIX_TIMESTAMP": Rule(
        _unix_timestamp, "Another text is an error in Spark.", "`unix_seconds(try_to_timestamp(s, p))`", (0, 1, 2)
    ),
    "FROM_UNIXTIME": Rule(_from_unixtime, "", "`date_format(timestamp_seconds(n), p)`", (1, 2)),
    "TO_DATE": Rule(
        _to_date, "Flink returns NULL for other texts, Spark fails.", "`try_to_timestamp(s, p)`, as DATE", (1, 2)
    ),
    "TIMESTAMPDIFF": Rule(
        _difference,
        "Spark counts in the session's time zone, also without one in the type.",
        "differences of times",
        (3,),
    ),
    "TIMESTAMPADD": Rule(_add, "As TIMESTAMPDIFF.", "`ts + make_dt_interval(...)`", (3,)),
    "CURRENT_ROW_TIMESTAMP": Rule("current_timestamp()", "The time of the micro-batch."),
    "PROCTIME": Rule(lambda _: "current_timestamp()", "The time of the micro-batch.", "`current_timestamp()`", (0,)),
    "CONVERT_TZ": Rule(
        "left(CAST(convert_timezone({1}, {2}, CAST({0} AS TIMESTAMP_NTZ)) AS STRING), 19)",
        "Spark does not have it.",
    ),
}
REFUSED: Mapping[str, Refused] = {
    "CURRENT_TIME": Refused("Times of a day are not supported: use CURRENT_TIMESTAMP"),
    "LOCALTIME": Refused("Times of a day are not supported: use LOCALTIMESTAMP"),
    "CURRENT_WATERMARK": Refused("Spark does not show its watermark to queries"),
}
