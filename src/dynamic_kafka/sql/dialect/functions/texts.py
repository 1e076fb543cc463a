"""Rules of functions on texts and bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot import exp

from dynamic_kafka.sql.dialect.functions.rules import Call, Refused, Rule

__all__ = ["REFUSED", "RULES", "SAME"]

SAME = frozenset(
    (
        *("UPPER", "LOWER", "CHAR_LENGTH", "CHARACTER_LENGTH", "CONCAT", "CONCAT_WS", "REVERSE", "REPEAT", "LEFT"),
        *("RIGHT", "MD5", "SHA1", "SHA2", "BTRIM", "STARTSWITH", "ENDSWITH", "INSTR", "TRANSLATE", "ELT", "CHR"),
        *("ENCODE", "DECODE", "REGEXP_COUNT", "REGEXP_SUBSTR", "REGEXP_INSTR", "REGEXP_EXTRACT_ALL", "PARSE_URL"),
        *("URL_ENCODE", "URL_DECODE"),
    )
)
"""Functions that mean the same in Spark."""


_PARTS_OF_REGEX = r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?<(?![=!])|\(\?|\(|\)|\|"
"""The parts of a regular expression that groups are known by, and what hides them."""


def _trim(call: Call) -> str | None:
    if not isinstance(call.arguments[0], exp.Var):
        raise call.refuse("Write TRIM(BOTH characters FROM text), or BTRIM(text, characters)")
    kind = call.arguments[0].name.upper()
    if len(call.arguments) == 2:
        return f"trim({kind} FROM {call.sql(1)})"
    return f"trim({kind} {call.sql(1)} FROM {call.sql(2)})"


def _takes_part(pattern: str, group: str) -> bool:
    """Return whether a group of a regular expression, given by its number, takes part in each match."""
    if not group.isdigit() or "\\Q" in pattern or re.search(r"\[[^]\\]*\[", pattern):
        return False
    places = {0: 0}  # the place of each group that has a number; 0 is the whole expression
    around: dict[int, list[int]] = {}  # the places of the groups around the one at a place
    open_ = [0]
    alternatives, skipped = set[int](), set[int]()
    for part in re.finditer(_PARTS_OF_REGEX, pattern, re.DOTALL):
        place = part.start() + 1
        match part[0]:
            case "(" | "(?<":
                places[len(places)], around[place] = place, list(open_)
                open_.append(place)
            case "(?":
                open_.append(place)
                if pattern[part.end() : part.end() + 1] in ("!", "=", "<"):
                    skipped.add(place)
            case ")":
                closed = open_.pop()
                if not open_:
                    return False
                if re.match(r"[?*]|\{0", pattern[part.end() :]):
                    skipped.add(closed)
            case "|":
                alternatives.add(open_[-1])
    found = places.get(int(group))
    if found is None or found in skipped:
        return False
    return not (alternatives | skipped) & set(around[found])


def _regexp_extract(call: Call) -> str:
    """Return the match of a group. One that took no part is NULL in Flink, and in Spark an empty text."""
    group = call.sql(2) if len(call.arguments) == 3 else "0"
    pattern = call.text(1)
    if group != "0" and (pattern is None or not _takes_part(pattern, group)):
        raise call.refuse(
            "REGEXP_EXTRACT of a group that may take no part in a match is NULL in Flink and an empty text in Spark. Write "
            "a pattern, as a literal, in which the group always takes part, or extract group 0",
            1,
        )
    value, regex = call.sql(0), call.sql(1)
    return f"CASE WHEN rlike({value}, {regex}) THEN regexp_extract({value}, {regex}, {group}) END"


def _substring(call: Call) -> str:
    value, start = call.sql(0), call.sql(1)
    text = f"substring({value}, {start})"
    cases = ""
    if len(call.arguments) == 3:
        length = call.sql(2)
        text = f"substring({value}, {start}, {length})"
        cases = "" if length.isdigit() else f"WHEN {length} < 0 THEN NULL "
    if not start.isdigit():
        cases += f"WHEN {start} < -char_length({value}) THEN '' "
    return f"CASE {cases}ELSE {text} END" if cases else text


def _replace(call: Call) -> str | None:
    search = call.text(1)
    if search == "":
        raise call.refuse("REPLACE of an empty text is not the same in Spark", 1)
    if search is not None:
        return None
    what, text = call.sql(1), f"replace({call.sql(0)}, {call.sql(1)}, {call.sql(2)})"
    return (
        f"CASE WHEN {what} = '' THEN raise_error('REPLACE of an empty text is not the same in Spark') ELSE {text} END"
    )


def _regexp_replace(call: Call) -> str | None:
    new = call.text(2)
    if new is not None and not set(new) & set("$\\"):
        return None
    quoted = f"replace(replace({call.sql(2)}, '\\\\', '\\\\\\\\'), '$', '\\\\$')"
    return f"regexp_replace({call.sql(0)}, {call.sql(1)}, {quoted})"


def _trim_side(side: str) -> Mapping[int, str]:
    return {1: f"trim({side} FROM {{0}})", 2: f"trim({side} {{1}} FROM {{0}})"}


def _overlay(call: Call) -> str:
    value, new, start = (call.sql(i) for i in range(3))
    length = f" FOR {call.sql(3)}" if len(call.arguments) == 4 else ""
    text = f"overlay({value} PLACING {new} FROM {start}{length})"
    known = " AND ".join(f"{call.sql(i)} IS NOT NULL" for i in range(1, len(call.arguments)))
    return f"CASE WHEN {start} BETWEEN 1 AND char_length({value}) THEN {text} WHEN {known} THEN {value} END"


def _split(call: Call) -> str:
    if not call.text(1):
        raise call.refuse("The separator of SPLIT has to be a literal that is not empty", 1)
    return (
        f"CASE WHEN {call.sql(0)} = '' THEN CAST(array() AS ARRAY<STRING>) "
        f"ELSE split({call.sql(0)}, concat('\\\\Q', {call.sql(1)}, '\\\\E'), -1) END"
    )


def _split_index(call: Call) -> str:
    separator, index = call.sql(1), call.sql(2)
    if type(call.type(1)).__name__ != "StringType":
        separator = f"chr({separator})"
    if call.text(1) == "":
        raise call.refuse("The separator of SPLIT_INDEX is empty", 1)
    text = f"get(split(nullif({call.sql(0)}, ''), concat('\\\\Q', {separator}, '\\\\E'), -1), {index})"
    if call.text(1):
        return text
    return f"CASE WHEN {separator} = '' THEN raise_error('The separator of SPLIT_INDEX is empty') ELSE {text} END"


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(
        ("SUBSTRING", "SUBSTR"),
        Rule(
            _substring,
            "A negative length is NULL in Flink, and a start before the text is nothing.",
            "`substring`, with these cases",
            (2, 3),
        ),
    ),
    "REPLACE": Rule(_replace, "Not of an empty text.", "`replace`", (3,)),
    "REGEXP_REPLACE": Rule(
        _regexp_replace, "`$1` in the new text is a group in Spark, and itself in Flink.", "`regexp_replace`", (3,)
    ),
    "LTRIM": Rule(_trim_side("LEADING"), "Spark has the arguments in the other order."),
    "RTRIM": Rule(_trim_side("TRAILING"), "Spark has the arguments in the other order."),
    "ASCII": Rule(
        "CASE WHEN ascii({0}) < 128 THEN ascii({0}) WHEN {0} IS NOT NULL THEN "
        "CAST(conv(left(hex({0}), 2), 16, 10) AS INT) - 256 END",
        "Of other letters, Flink returns their first byte.",
    ),
    "LOCATE": Rule(
        {2: "locate({0}, {1})", 3: "CASE WHEN {2} < 1 THEN locate({0}, {1}) ELSE locate({0}, {1}, {2}) END"},
        "A place below 1 is 1 in Flink.",
    ),
    "POSITION": Rule({2: "locate({0}, {1})", 3: "locate({0}, {1}, {2})"}, "Only the syntax differs."),
    "OVERLAY": Rule(
        _overlay, "A start outside of the text changes nothing in Flink.", "`overlay`, with this case", (3, 4)
    ),
    "TRIM": Rule(_trim, "Only the syntax differs.", "`trim(BOTH x FROM s)`", (2, 3)),
    "REGEXP": Rule("rlike({0}, {1})", "Only the name differs."),
    "REGEXP_EXTRACT": Rule(
        _regexp_extract,
        "Without a group, Flink returns the match and Spark group 1. Without a match, Flink returns NULL and Spark ''.",
        "`CASE WHEN rlike(s, r) THEN regexp_extract(s, r, 0) END`",
        (2, 3),
    ),
    "SPLIT_INDEX": Rule(_split_index, "Spark does not have it.", "`get(split(...), i)`", (3,)),
    "SPLIT": Rule(
        _split, "Flink splits at a text, Spark at a regular expression.", "`split`, with the separator quoted", (2,)
    ),
    "FROM_BASE64": Rule("CAST(unbase64({0}) AS STRING)", "Spark returns bytes."),
    "TO_BASE64": Rule("base64({0})", "Only the name differs."),
    "SHA224": Rule("sha2({0}, 224)", "Spark does not have it."),
    "SHA256": Rule("sha2({0}, 256)", "Spark does not have it."),
    "SHA384": Rule("sha2({0}, 384)", "Spark does not have it."),
    "SHA512": Rule("sha2({0}, 512)", "Spark does not have it."),
    "STR_TO_MAP": Rule(
        {1: "str_to_map({0}, ',', '=')", 3: "str_to_map({0}, {1}, {2})"},
        "Flink's default is `=` between key and value.",
    ),
    "LPAD": Rule(
        "CASE WHEN {1} >= 0 AND {2} <> '' THEN lpad({0}, {1}, {2}) END", "A negative length is NULL in Flink."
    ),
    "RPAD": Rule(
        "CASE WHEN {1} >= 0 AND {2} <> '' THEN rpad({0}, {1}, {2}) END", "A negative length is NULL in Flink."
    ),
    "IS_ALPHA": Rule("coalesce(rlike(CAST({0} AS STRING), '^\\\\p{{L}}+$'), false)", "Spark does not have it."),
    "IS_DIGIT": Rule("coalesce(rlike(CAST({0} AS STRING), '^\\\\p{{Nd}}+$'), false)", "Spark does not have it."),
    "IS_DECIMAL": Rule(
        "coalesce(rlike(CAST({0} AS STRING), "
        "'^\\\\s*[+-]?(\\\\d+(\\\\.\\\\d*)?|\\\\.\\\\d+)([eE][+-]?\\\\d+)?\\\\s*$'), false)",
        "Spark does not have it.",
    ),
}
REFUSED: Mapping[str, Refused] = {
    "INITCAP": Refused(
        "Flink begins a new word behind each sign, Spark behind a blank only: register a function with Spark"
    ),
    "PRINTF": Refused("Flink's and Spark's formats differ in details: use concat, or format_string of Spark"),
}
