"""Messages as text: JSON, also with the changes of rows, and CSV."""

from __future__ import annotations

import json
from typing import Any

from tests.flink_answers.messages import Case

__all__ = ["CSV", "TEXTS"]


def case(name: str, columns: str, *messages: str | bytes, **options: str) -> Case:
    """Return messages of a format; `_` stands for `-` in the names of options."""
    found = [m.encode() if isinstance(m, str) else m for m in messages]
    return Case(columns, {"": name} | {k.replace("_", "-"): v for k, v in options.items()}, tuple(dict.fromkeys(found)))


def both(title: str, columns: str, *messages: str | bytes) -> dict[str, Case]:
    """Return a case of JSON for each of Flink's two parsers; the first one is the default."""
    return {
        f"json: {title}": case("json", columns, *messages),
        f"json: {title}, as a tree": case("json", columns, *messages, **{"decode.json-parser.enabled": "false"}),
    }


def change(**parts: Any) -> str:
    """Return a message about a change."""
    return json.dumps(parts)


THREE = "s STRING, i INT, b BOOLEAN"
ROW = {"a": 1, "s": "x"}
JSON: dict[str, Case] = {
    **both(
        "objects",
        "a INT",
        *(
            '{"a":1}',
            "",
            "  ",
            ' {"a" : 1} ',
            '{"a":null}',
            "{}",
            '{"A":1}',
            '{"b":[1,{"a":2}],"a":1}',
            '{"a":1} x',
            '{"a":1}{"a":2}',
        ),
        *(
            "null",
            "1",
            '"s"',
            "[]",
            '[{"a":1}]',
            '[{"a":1},{"a":2}]',
            '{"a":1',
            '{"a":01}',
            "{'a':1}",
            "{a:1}",
            '/**/{"a":1}',
            b"\0",
        ),
        *('{"a":1,"a":2}', '{"a":1,}', '{"a":+1}', b'\xef\xbb\xbf{"a":1}', '{"a":1}\n'),
    ),
    **both(
        "INT",
        "a INT",
        *(
            f'{{"a":{v}}}'
            for v in (
                '"1"',
                '" 1 "',
                '"+1"',
                "1.0",
                "1.7",
                "-1.7",
                "1e3",
                '"1.0"',
                '"x"',
                '""',
                "true",
                "99999999999",
                '{"b":1}',
                "[1]",
                "-0",
                '"0x1"',
                "NaN",
            )
        ),
    ),
    **both(
        "numbers",
        "a TINYINT, b SMALLINT, c BIGINT, d FLOAT, e DOUBLE, f DECIMAL(10, 2)",
        *(
            '{"a":-128,"b":"7","c":9223372036854775807}',
            '{"a":128}',
            '{"b":40000}',
            '{"c":1e19}',
            '{"c":"-9223372036854775808"}',
            '{"c":9223372036854775808}',
        ),
        *(
            '{"d":0.1,"e":1}',
            '{"d":"1.5","e":" 2 "}',
            '{"e":"NaN","d":"-Infinity"}',
            '{"e":1e400,"d":"1e50"}',
            '{"e":true}',
            '{"d":1e50}',
        ),
        *('{"f":1.235}', '{"f":"-1.235"}', '{"f":1e3}', '{"f":"x"}', '{"f":123456789.12}', '{"f":""}', '{"f":true}'),
    ),
    **both(
        "texts",
        "s STRING, b BOOLEAN, x BYTES",
        *(
            '{"s":"ä\\u00e4\\t"}',
            '{"s":"a\tb\nc"}',
            '{"s":true}',
            '{"s":12345678901234567890}',
            '{"s":{"x": 1, "y":[null, "z"]}}',
            '{"s":[1, 2]}',
        ),
        *('{"s":1.10}', '{"s":1e3}', '{"s":"\\x"}', b'{"s":"a\xff"}', '{"s":"\\ud83d\\ude00"}', '{"s":"\\ud83d"}'),
        *('{"b":true}', '{"b":"TRUE "}', '{"b":1}', '{"b":0}', '{"b":"x"}', '{"b":""}', '{"b":[]}'),
        *('{"x":"YWJj"}', '{"x":"YWJj\\n"}', '{"x":"###"}', '{"x":1}', '{"x":"YW"}', '{"x":""}'),
    ),
    **both(
        "times",
        "d DATE, t TIMESTAMP(3), l TIMESTAMP_LTZ(3), u TIMESTAMP(6)",
        *('{"d":"2020-01-02"}', '{"d":18000}', '{"d":"2020-02-30"}', '{"d":"2020-1-2"}', '{"d":"2020-01-02 00:00:00"}'),
        *(
            '{"t":"2020-01-02 03:04:05"}',
            '{"t":"2020-01-02T03:04:05"}',
            '{"t":"2020-01-02 03:04:05.123"}',
            '{"t":"2020-01-02 03:04:05Z"}',
            '{"t":1}',
            '{"t":"2020-01-02"}',
        ),
        *(
            '{"u":"2020-01-02 03:04:05.123456"}',
            '{"u":"2020-01-02 03:04:05.123456789"}',
            '{"t":"2020-01-02 03:04:05.123456"}',
        ),
        *(
            '{"l":"2020-01-02 03:04:05Z"}',
            '{"l":"2020-01-02 03:04:05.12Z"}',
            '{"l":"2020-01-02 03:04:05"}',
            '{"l":1577934245000}',
            '{"l":"2020-01-02T03:04:05Z"}',
        ),
    ),
    "json: times in ISO": case(
        "json",
        "t TIMESTAMP(3), l TIMESTAMP_LTZ(3)",
        *(
            '{"t":"2020-01-02T03:04:05"}',
            '{"t":"2020-01-02 03:04:05"}',
            '{"l":"2020-01-02T03:04:05.1Z"}',
            '{"l":"2020-01-02T03:04:05+01:00"}',
            '{"t":"2020-01-02T03:04"}',
        ),
        **{"timestamp-format.standard": "ISO-8601"},
    ),
    **both(
        "nested",
        "a ARRAY<INT>, m MAP<STRING, INT>, r ROW<x INT, y STRING>, n ARRAY<ROW<z ARRAY<STRING>>>",
        *(
            '{"a":[1,null,"2"],"m":{"k":"3","n":null},"r":{"x":"4"}}',
            '{"a":[],"m":{},"r":{}}',
            '{"a":[1,"x"]}',
            '{"a":1}',
            '{"m":{"k":"x"}}',
            '{"m":[]}',
        ),
        *(
            '{"r":{"x":"q"}}',
            '{"r":[1]}',
            '{"r":"x"}',
            '{"n":[{"z":["a",null]},null,{}]}',
            '{"a":"[1]"}',
            '{"m":{"k":1,"k":2}}',
            '{"a":null,"m":null,"r":null}',
        ),
    ),
    "json: errors ignored": case(
        "json",
        "a INT, b DATE, c ARRAY<INT>, r ROW<x INT, y STRING>, m MAP<STRING, INT>",
        *(
            '{"a":"x","b":"2020-01-02"}',
            '{"a":1,"b":"x"}',
            '{"c":[1,"x"],"r":{"x":"q","y":"ok"}}',
            '{"c":1,"r":1,"a":2}',
            '{"a":1',
            "  ",
            "null",
            "1",
            "",
            '{"m":{"k":"x","l":1}}',
        ),
        **{"ignore-parse-errors": "true"},
    ),
    "json: missing fields": case(
        "json",
        "a ROW<b INT>, m INT",
        *('{"a":{"b":1},"m":1}', '{"a":{"b":null},"m":null}', '{"a":null,"m":1}', '{"m":1}', '{"a":{},"m":1}', ""),
        **{"fail-on-missing-field": "true"},
    ),
}
CSV: dict[str, Case] = {
    "csv": case(
        "csv",
        THREE,
        *(
            "a,1,true",
            "a,1,true\n",
            "a,1,true\r\n",
            "a,1,true,",
            " a , 1 , TRUE ",
            '"a,b","1","true"',
            '"a""b" ,1,x',
            '"a\nb",1,',
            '"""a""",1,true',
        ),
        *(
            '"",1,true',
            ",1,true",
            'a"b, 1,true',
            ' "a",1,true',
            b"\xef\xbb\xbfa,1,true",
            "#a,1,true",
            r"a\,1,true",
            "a,1",
            "a,1,true,x",
            "a,1,true,,",
            "",
        ),
        *(
            "\na,1,true",
            "a\rb,1,true",
            '"a,1,true',
            '"a"x,1,true',
            '""a,1,true',
            'a,1,"true',
            b"\xff,1,true",
            "a,,true",
            "a,x,true",
            "a,1.0,true",
            "a,99999999999,true",
        ),
        *("a,1,true\nb,2,false", "a;1;true", ",,", "a,1,1", "a,1,yes", "a,+1,true", "a,-0,true"),
        *("a,1,true,  ", '"a",1,"true"]', "a,\t1,\ttrue\v", "a,1\x7f,true", "\ufeff\ufeffa,1,true"),
    ),
    "csv: errors ignored": case(
        "csv",
        THREE,
        *("a,1", "a", "a,x,true", "a,,", ",,", "a,1,true,x", '"a,1,true', "", "a,1,true,", "x,y,z"),
        ignore_parse_errors="true",
    ),
    "csv: null": case(
        "csv", THREE, "n/a,n/a,n/a", '"n/a",1,true', ",1,true", " n/a,1,true", "n/a ,1,true", null_literal="n/a"
    ),
    "csv: null is empty": case("csv", THREE, ",,", '"",1,true', "a,,", null_literal=""),
    "csv: delimiter": case(
        "csv", THREE, "a\t1\ttrue", "a,b\t1\ttrue", "a,1,true", '"a\tb"\t1\ttrue', field_delimiter="\\t"
    ),
    "csv: quotes": case(
        "csv",
        THREE,
        "'a|b'|1|true",
        '"a"|1|true',
        "'a''b'|1|true",
        "it's|1|true",
        quote_character="'",
        field_delimiter="|",
    ),
    "csv: no quotes": case("csv", THREE, '"a",1,true', '"a,1,true', 'a""b,1,true', disable_quote_character="true"),
    "csv: comments": case(
        "csv",
        THREE,
        "# x\na,1,true",
        "# x\r\n#y\n\n a,1,true",
        "a#b,1,true",
        "# x",
        " #a,1,true",
        "#",
        "a,1,true#x",
        allow_comments="true",
    ),
    "csv: escapes": case(
        "csv",
        THREE,
        r"a\,b,1,true",
        r'"a\"b",1,true',
        r'"a""b\\",1,true',
        r"\x\n\t,1,true",
        r"\"a,1,true",
        r'"a\",1,true',
        "a\\",
        "a,1,true\\",
        escape_character="\\",
    ),
    "csv: another escape": case(
        "csv", THREE, "a^,b,1,true", "^^,1,true", '"^"",1,true', r"a\,1,true", escape_character="^"
    ),
    "csv: numbers": case(
        "csv",
        "n TINYINT, m SMALLINT, l BIGINT, f FLOAT, d DOUBLE, e DECIMAL(10, 2)",
        *(
            "1,2,3,4.5,5.5,6.555",
            " -1 , 2 , 3 ,NaN,Infinity,1e2",
            "128,2,3,4,5,6",
            "1,2,3,x,5,6",
            "1,2,3,4,5,y",
            "1,2,3,4,5,123456789.12",
            "1,2,9223372036854775808,4,5,6",
        ),
        *("1,2,3,1e50,1e400,6", "1,2,3,4f,5d,6", "1,2,3,4,5, 6", "1,2,3,0x1p3,5,6"),
        *(
            "1,2,3,inf,5,6",
            "1,2,3,4,nan,6",
            "1,2,3,-NaN,+Infinity,6",
            "1,2,3,.5,5.,.5",
            "1,2,3,4,5,0e99",
            "1,2,3,4,5,1e-99",
        ),
    ),
    "csv: times": case(
        "csv",
        "d DATE, t TIMESTAMP(3), l TIMESTAMP_LTZ(3)",
        *(
            "2020-1-2,2020-01-02 03:04:05.123,2020-01-02 03:04:05Z",
            "2020-01-02, 2020-01-02 03:04:05 ,2020-01-02 03:04:05.1Z",
        ),
        *(
            "x,2020-01-02 03:04:05,2020-01-02 03:04:05Z",
            "2020-01-02,2020-01-02T03:04:05,2020-01-02 03:04:05Z",
            "2020-01-02,2020-01-02 03:04:05,2020-01-02 03:04:05",
        ),
        *(
            "2020-02-30,2020-01-02 03:04:05,2020-01-02 03:04:05Z",
            "2020-01-02,2020-01-02 03:04:05.123456,2020-01-02 03:04:05Z",
            "2020-01-02,2020-01-02 03:04,2020-01-02 03:04:05Z",
        ),
        *(
            "2020-01-02,2020-01-02 03:04:05.,2020-01-02 03:04:05.Z",
            "2020-01-02,+2020-01-02 03:04:05,2020-01-02 03:04:05Z",
            "2020-01-02,10000-01-02 03:04:05,2020-01-02 03:04:05Z",
            "2-12-31,2020-01-02 03:04:05,2020-01-02 03:04:05Z",
        ),
    ),
    "csv: nested": case(
        "csv",
        "a ARRAY<INT>, r ROW<x INT, y STRING>, x BYTES",
        *(
            "1;2; 3,1;a,YWJj",
            '"1;2","1;a",YWJj',
            ",,YWJj",
            "1,1;a;b,YWJj",
            "1;;3,1;a,YWJj",
            "1,1,YWJj",
            "1,1;a,###",
            "x,1;a,YWJj",
            "1,q;a,YWJj",
            "1;,1;a,YWJj",
            ";,1;a,YWJj",
        ),
        *(" , ,", "1,1;a,YW Jj", "1,1;a, YWJj YQ== ", "1,1;a,YQ", "1,1;a,YR==", "1,1;a,YQ==YQ=="),
    ),
    "csv: nested, delimiter": case(
        "csv",
        "a ARRAY<STRING>, r ROW<x INT, y STRING>",
        *("a||n/a,1|n/a", "n/a,1|b", "a;b,1|c", '"a|b","1|c"', "|,1|"),
        array_element_delimiter="|",
        null_literal="n/a",
    ),
    "csv: nested, errors ignored": case(
        "csv",
        "a ARRAY<INT>, r ROW<x INT, y STRING>",
        *("1;x;3,1;a", "1,q;a", "x,x", "1", "1;;2,1"),
        ignore_parse_errors="true",
    ),
    "csv: one text": case("csv", "s STRING", *("a", "", '""', " ", "a,b", "\n", "\r\n", "a\n")),
}
CHANGES: dict[str, Case] = {
    "debezium-json": case(
        "debezium-json",
        "a INT, s STRING",
        *(change(before=None, after=ROW, op=op) for op in "crudx"),
        *(change(before=ROW, after={"a": 2}, op=op) for op in "crud"),
        *(change(before=ROW, after=None, op=op) for op in "crud"),
        *(
            change(before=None, after=None, op="c"),
            change(after=ROW),
            change(op="c"),
            "{}",
            "",
            "x",
            "null",
            change(after={"a": "x"}, op="c"),
            change(op="t"),
        ),
        *(
            change(op="m", message={}),
            change(after=ROW, op=None),
            change(payload={"after": ROW, "op": "c"}),
            change(after=ROW, op="C"),
        ),
    ),
    "debezium-json: with a schema": case(
        "debezium-json",
        "a INT, s STRING",
        *(
            change(schema={}, payload={"after": ROW, "op": "c"}),
            change(payload={"after": ROW, "op": "c"}),
            change(after=ROW, op="c"),
            change(schema={}, payload=None),
        ),
        **{"schema-include": "true"},
    ),
    "debezium-json: errors ignored": case(
        "debezium-json",
        "a INT, s STRING",
        change(after=ROW, op="x"),
        "x",
        change(after={"a": "x"}, op="c"),
        change(before=None, op="d"),
        "{}",
        **{"ignore-parse-errors": "true"},
    ),
    "canal-json": case(
        "canal-json",
        "a INT, s STRING",
        *(
            change(data=[ROW, {"a": "2"}], old=None, type=kind, isDdl=False)
            for kind in ("INSERT", "DELETE", "CREATE", "TRUNCATE", "insert")
        ),
        *(
            change(data=[{"a": "2", "s": "y"}], old=[old], type="UPDATE")
            for old in ({"a": "1"}, {"s": None}, {"a": "1", "s": "x"}, {})
        ),
        *(
            change(data=None, type="INSERT"),
            change(data=[], type="INSERT"),
            change(type="QUERY", isDdl=True),
            "{}",
            "",
            "x",
            change(data=[{"a": "x"}], type="INSERT"),
            change(data=[ROW], type="UPDATE"),
        ),
    ),
    "maxwell-json": case(
        "maxwell-json",
        "a INT, s STRING",
        *(
            change(data=ROW, type=kind)
            for kind in ("insert", "delete", "update", "bootstrap-insert", "bootstrap-start", "INSERT")
        ),
        *(change(data=ROW, old=old, type="update") for old in ({"a": 0}, {"s": None}, {}, {"z": 1})),
        *(change(data=None, type="insert"), change(type="insert"), "{}", "", "x"),
    ),
    "ogg-json": case(
        "ogg-json",
        "a INT, s STRING",
        *(change(before=None, after=ROW, op_type=op) for op in "IUDTX"),
        *(change(before=ROW, after={"a": 2}, op_type=op) for op in "IUD"),
        *(change(before=ROW, after=None, op_type=op) for op in "IUD"),
        *("{}", "", "x", change(after=ROW)),
    ),
}
TEXTS: dict[str, Case] = {**JSON, **CSV, **CHANGES}
