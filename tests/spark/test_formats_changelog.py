"""The changelog formats in Spark.

What is expected is what Flink 2.1's own classes answered to the same messages, but where a test says otherwise. The rows
of each operation are in `tests/unit/formats/test_formats_against_flink.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import pytest
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, StructField, StructType

from dynamic_kafka.formats import ERROR, METADATA, ROW_KIND, ROWS, Format
from dynamic_kafka.formats.changelog.format import CANAL_JSON, DEBEZIUM_JSON, MAXWELL_JSON, OGG_JSON
from tests.spark.tables import DEBEZIUM
from tests.spark.texts import Message, damaged, decode, encode, examples, frame, struct

pytestmark = pytest.mark.spark

Options = Mapping[str, str]
Case = tuple[Format, str, Options, Sequence[Message]]
"""A format, columns, options, and messages."""
FORMATS = (DEBEZIUM_JSON, CANAL_JSON, MAXWELL_JSON, OGG_JSON)
BYTES = StructType([StructField("value", BinaryType())])
ISO: Options = {"timestamp-format.standard": "ISO-8601"}
IGNORE: Options = {"ignore-parse-errors": "true"}
TABLES = {
    "customers": "id int, name string, email string, balance decimal(10, 2), vip boolean, joined timestamp, city string",
    "orders": "region string, number bigint, customer int, amount double, note string",
}
KEYS = {"customers": ("id",), "orders": ("region", "number")}
NO_GOLDENGATE_IMAGE = (
    'The "before" field of {} message is null; have GoldenGate extract whole rows (GETUPDATEBEFORES, and supplemental '
    "logging of all columns)"
)
NO_REPLICA_IDENTITY = 'The "before" field of {} message is null; set the REPLICA IDENTITY of a PostgreSQL table to FULL'


def parsed(found: Format, options: Options) -> dict[str, Any]:
    """The options' values under their whole names."""
    known = {option.key: option for option in found.options}
    return {
        key: known[key].parse(text) for key, text in ((f"{found.name}.{name}", text) for name, text in options.items())
    }


def decoded_all(spark: SparkSession, cases: Sequence[Case]) -> list[list[Any]]:
    """What is decoded of each message of some cases, as JSON, by one query; times are in UTC."""
    messages = [message for *_, given in cases for message in given]
    numbers = [n for n, (*_, given) in enumerate(cases) for _ in given]
    texts = []
    for n, (found, ddl, options, _) in enumerate(cases):
        result = decode(found, F.col("value"), struct(ddl), parsed(found, options))
        texts.append(F.when(F.col("n") == n, F.to_json(result, {"ignoreNullFields": "false"})))
    answers = frame(spark, messages, n=numbers).select("i", F.coalesce(*texts, F.lit(None)))
    ones = iter([None if text is None else json.loads(text) for _, text in sorted(answers.collect())])
    return [[next(ones) for _ in given] for *_, given in cases]


def decoded(
    spark: SparkSession, found: Format, ddl: str, messages: Iterable[Message], options: Options | None = None
) -> list[Any]:
    """What is decoded of each message, as JSON; times are in UTC."""
    (answers,) = decoded_all(spark, [(found, ddl, options or {}, list(messages))])
    return answers


def rows(one: Any) -> list[tuple[Any, ...]]:
    """The rows of a message that is no error, as their kind and their values."""
    assert one[ERROR] is None
    return [(row[ROW_KIND], *row["row"].values()) for row in one[ROWS]]


def error(one: Any) -> str:
    """The error of a message; it has no rows then."""
    assert one[ROWS] is None
    return str(one[ERROR])


# --- Debezium ---


@pytest.mark.parametrize("ignore", [False, True])
def test_debezium_messages_that_no_row_can_tell(spark: SparkSession, ignore: bool) -> None:  # noqa: FBT001
    """Truncations, logical messages, heartbeats, changes of a schema and missing rows are errors, or are left out."""
    messages = {
        '{"before":null,"after":{"id":2},"op":"u"}': NO_REPLICA_IDENTITY.format("UPDATE"),
        '{"before":null,"after":null,"op":"d"}': NO_REPLICA_IDENTITY.format("DELETE"),
        '{"before":{"id":1},"after":null,"op":"u"}': 'Its "after" is null',
        '{"before":null,"after":null,"op":"c"}': 'Its "after" is null',
        '{"before":null,"after":null,"op":"t"}': 'Unknown "op" value "t": TRUNCATE',
        '{"op":"m","message":{"prefix":"a","content":"dA=="}}': 'Unknown "op" value "m": logical messages',
        '{"after":{"id":3},"op":5}': 'Unknown "op" value "5"',
        '{"ts_ms":1}': 'It does not have the field "op"',
        '{"source":{"a":1},"ts_ms":1,"ddl":"CREATE TABLE a"}': 'It does not have the field "op"',
        '{"schema":{},"payload":{"before":null,"after":{"id":3},"op":"c"}}': "set 'debezium-json.schema-include' to 'true'",
        "{}": 'It does not have the field "op"',
    }
    found = decoded(spark, DEBEZIUM_JSON, "id int", messages, IGNORE if ignore else {})
    if ignore:
        assert found == [None] * len(messages)
    else:
        assert [part for one, part in zip(found, messages.values(), strict=True) if part not in error(one)] == []


def test_a_tombstone_is_no_row(spark: SparkSession) -> None:
    """A message without a value, or with an empty one, is skipped."""
    cases: list[Case] = [(found, "id int", {}, [None, ""]) for found in FORMATS]
    assert decoded_all(spark, cases) == [[None, None]] * len(FORMATS)


def test_debezium_with_schema(spark: SparkSession) -> None:
    """With `schema-include` the message is in `payload`; the schema can be read as its text."""
    messages = [
        '{"schema":{"type":"struct","x":[1,2]},"payload":{"after":{"id":3},"op":"c","ts_ms":12,"source":{"db":"d"}}}',
        '{"after":{"id":3},"op":"c"}',
        '{"schema":null,"payload":null}',
    ]
    first, *others = decoded(spark, DEBEZIUM_JSON, "id int", messages, {"schema-include": "true"})
    assert rows(first) == [("+I", 3)]
    assert json.loads(first[METADATA]["schema"]) == {"type": "struct", "x": [1, 2]}
    assert first[METADATA]["ingestion-timestamp"] == "1970-01-01T00:00:00.012Z"
    assert first[METADATA]["source.database"] == "d"
    assert ["set 'debezium-json.schema-include' to 'false'" in error(one) for one in others] == [True, True]


def test_debezium_with_schema_says_what_numbers_are(spark: SparkSession) -> None:
    """Times as counts and decimals as base64 are read as what the schema in the message says, and only then."""
    fields = [
        {"field": "id", "type": "int32"},
        {"field": "t", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        {"field": "d", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
    ]
    images = [{"field": image, "type": "struct", "fields": fields} for image in ("before", "after")]
    with_types = {"schema": {"type": "struct", "fields": images}}
    row = {"id": 3, "t": 1_123_000, "d": "MDk="}
    messages = [
        json.dumps(with_types | {"payload": {"before": row | {"d": None}, "after": row, "op": "u"}}),
        json.dumps({"schema": {}, "payload": {"after": row | {"t": "1970-01-01 00:00:02", "d": "1.5"}, "op": "c"}}),
        json.dumps({"schema": {}, "payload": {"after": row, "op": "c"}}),
        json.dumps(with_types | {"payload": {"after": row | {"t": 10**30}, "op": "c"}}),
    ]
    columns = "id int, t timestamp_ntz, d decimal(10, 2)"
    found = decoded(spark, DEBEZIUM_JSON, columns, messages, {"schema-include": "true"})
    assert rows(found[0]) == [
        ("-U", 3, "1970-01-01T00:00:01.123", None),
        ("+U", 3, "1970-01-01T00:00:01.123", 123.45),
    ]
    assert rows(found[1]) == [("+I", 3, "1970-01-01T00:00:02.000", 1.5)]
    assert [error(one) != "" for one in found[2:]] == [True, True]


def test_debezium_metadata(spark: SparkSession) -> None:
    """All of `source` as texts, and its parts; what is missing, or is no time, is null."""
    source = {"ts_ms": 1589373515477, "db": "shop", "schema": "public", "table": "customers", "txId": 7, "xmin": None}
    envelope = {"after": {"id": 1}, "op": "c", "ts_ms": 1589373515500}
    messages = [
        {**envelope, "source": source},
        {"after": {}, "op": "c"},
        {**envelope, "ts_ms": 2**63 - 1, "source": {}},
    ]
    full, missing, wrong = decoded(spark, DEBEZIUM_JSON, "id int", map(json.dumps, messages))
    assert full[METADATA] == {
        "schema": None,
        "ingestion-timestamp": "2020-05-13T12:38:35.500Z",
        "source.timestamp": "2020-05-13T12:38:35.477Z",
        "source.database": "shop",
        "source.schema": "public",
        "source.table": "customers",
        "source.properties": {key: None if value is None else str(value) for key, value in source.items()},
    }
    assert set(missing[METADATA].values()) == {None}
    assert wrong[METADATA]["ingestion-timestamp"] is None
    assert [one[ERROR] for one in (full, missing, wrong)] == [None] * 3


@pytest.mark.parametrize("kind", ["schemaless", "with-schema"])
@pytest.mark.parametrize("table", TABLES)
def test_what_real_debezium_wrote_gives_the_databases_rows(spark: SparkSession, kind: str, table: str) -> None:
    """The rows of a recorded change stream, taken and removed in its order, are in the end what the database had."""
    lines = _recorded(kind, f"shop.public.{table}")
    options = {**ISO, "schema-include": str(kind == "with-schema")}
    found = decoded(spark, DEBEZIUM_JSON, TABLES[table], (line["value"] for line in lines), options)
    state: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line, one in zip(lines, found, strict=True):
        assert (one is None) == (line["value"] is None)
        if one is None:
            continue
        assert one[ERROR] is None
        assert one[METADATA]["source.table"] == table
        assert (one[METADATA]["schema"] is None) == (kind == "schemaless")
        for change in one[ROWS]:
            row = change["row"]
            key = tuple(row[name] for name in KEYS[table])
            if change[ROW_KIND] in ("-U", "-D"):
                assert state.pop(key) == row
            else:
                assert key not in state
                state[key] = row
    expected = json.loads((DEBEZIUM / "rows.json").read_text(encoding="utf-8"))[table]
    assert [state[key] for key in sorted(state)] == [_as_decoded(row) for row in expected]


def _as_decoded(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the database as it is decoded, in JSON."""
    row = dict(row)
    if row.get("balance") is not None:
        row["balance"] = float(row["balance"])
    if row.get("joined") is not None:
        seconds, _, fraction = row["joined"].removesuffix("+00:00").partition(".")
        row["joined"] = f"{seconds}.{fraction.ljust(3, '0')}Z"
    return row


def _recorded(kind: str, topic: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (DEBEZIUM / f"{kind}.json").read_text(encoding="utf-8").splitlines())
    return [line for line in lines if topic in line["topic"]]


# --- Canal and Maxwell ---


def canal(kind: str | None, data: Any, old: Any = None, **more: Any) -> str:
    """A message of Canal."""
    return json.dumps({"data": data, "old": old, "database": "inv", "table": "products2", "type": kind, **more})


PRODUCTS = "id int, name string, weight decimal(10, 2)"


def test_canal_values_that_do_not_fit(spark: SparkSession) -> None:
    """Real numbers will do, too; what is no number is an error, or null if parse errors are ignored."""
    messages = [
        canal("INSERT", [{"id": 1.7, "name": 12.5, "weight": 1}]),
        canal("INSERT", [{"id": "x", "name": "a"}]),
        canal("UPDATE", [{"id": "1", "name": "a"}], [{"id": {}}]),
    ]
    fine, *misfits = decoded(spark, CANAL_JSON, PRODUCTS, messages)
    assert rows(fine) == [("+I", 1, "12.5", 1.0)]
    assert [error(one) for one in misfits] == [f"It does not fit the columns: {image}.id" for image in ("data", "old")]
    assert [rows(one) for one in decoded(spark, CANAL_JSON, PRODUCTS, messages, IGNORE)] == [
        [("+I", 1, "12.5", 1.0)],
        [("+I", None, "a", None)],
        [("-U", None, "a", None), ("+U", 1, "a", None)],
    ]


def test_canal_old_of_each_row_counts_for_itself(spark: SparkSession) -> None:
    """A field that one row's `old` names is unchanged in another row; in Flink it would be null there."""
    data = [{"id": "1", "name": "a", "weight": "1"}, {"id": "2", "name": "b", "weight": "2"}]
    (one,) = decoded(spark, CANAL_JSON, PRODUCTS, [canal("UPDATE", data, [{"name": "x"}, {"weight": None}])])
    assert rows(one) == [("-U", 1, "x", 1.0), ("+U", 1, "a", 1.0), ("-U", 2, "b", None), ("+U", 2, "b", 2.0)]


@pytest.mark.parametrize("ignore", [False, True])
def test_canal_messages_without_rows(spark: SparkSession, ignore: bool) -> None:  # noqa: FBT001
    """A created table is skipped; other statements and rows that are missing are errors, or are left out."""
    one = {"id": "1"}
    messages = {
        canal("CREATE", None): None,
        canal("ALTER", None): 'Unknown "type" value "ALTER"',
        canal(None, [one]): 'It does not have the field "type"',
        canal("INSERT", None): 'Its "data" is null, or one of its rows is',
        canal("DELETE", [one, None]): 'Its "data" is null, or one of its rows is',
        canal("UPDATE", [one], None): 'Update event: "old" has fewer rows than "data"',
        canal("UPDATE", [one, one], [one]): 'Update event: "old" has fewer rows than "data"',
    }
    found = decoded(spark, CANAL_JSON, PRODUCTS, messages, IGNORE if ignore else {})
    expected = [None] * len(messages) if ignore else list(messages.values())
    assert [None if one is None else re.split(" of Canal|, which ", error(one))[0] for one in found] == expected


def test_canal_metadata(spark: SparkSession) -> None:
    """All six, with times from milliseconds."""
    more = {"sqlType": {"id": 4, "name": 12}, "pkNames": ["id"], "ts": 1589373515477, "es": 1589373515000}
    full, missing = decoded(spark, CANAL_JSON, PRODUCTS, [canal("INSERT", [{}], **more), '{"data":[],"type":"INSERT"}'])
    assert full[METADATA] == {
        "database": "inv",
        "table": "products2",
        "sql-type": {"id": 4, "name": 12},
        "pk-names": ["id"],
        "ingestion-timestamp": "2020-05-13T12:38:35.477Z",
        "event-timestamp": "2020-05-13T12:38:35.000Z",
    }
    assert set(missing[METADATA].values()) == {None}


def test_maxwell_messages_without_rows(spark: SparkSession) -> None:
    """Bootstraps, statements and missing rows are errors, as in Flink."""
    messages: list[dict[str, Any]] = [
        {"type": "bootstrap-insert", "data": {"id": 1}},
        {"type": "table-create"},
        {"type": "insert", "data": None},
        {"type": "update", "data": {"id": 1}},
    ]
    found = decoded(spark, MAXWELL_JSON, PRODUCTS, map(json.dumps, messages))
    assert [error(one).split(", which ")[0] for one in found] == [
        'Unknown "type" value "bootstrap-insert"',
        'Unknown "type" value "table-create"',
        'Its "data" is null',
        'Update event: "old" has fewer rows than "data"',
    ]
    assert decoded(spark, MAXWELL_JSON, PRODUCTS, map(json.dumps, messages), IGNORE) == [None] * 4


def test_maxwell_metadata(spark: SparkSession) -> None:
    """The time is in seconds."""
    envelope = {"database": "test", "table": "product", "ts": 1596684904, "primary_key_columns": ["id"], "xid": 7201}
    (one,) = decoded(spark, MAXWELL_JSON, PRODUCTS, [json.dumps({**envelope, "type": "insert", "data": {"id": 1}})])
    assert one[METADATA] == {
        "database": "test",
        "table": "product",
        "primary-key-columns": ["id"],
        "ingestion-timestamp": "2020-08-06T03:35:04.000Z",
    }


# --- Oracle GoldenGate ---


def test_ogg_messages_without_rows(spark: SparkSession) -> None:
    """An update or a deletion without the former row is an error, as a truncation is."""
    messages: list[dict[str, Any]] = [{"op_type": "U", "after": {"id": 111}}, {"op_type": "D"}, {"op_type": "T"}]
    assert [error(one) for one in decoded(spark, OGG_JSON, "id int", map(json.dumps, messages))] == [
        NO_GOLDENGATE_IMAGE.format("UPDATE"),
        NO_GOLDENGATE_IMAGE.format("DELETE"),
        'Unknown "op_type" value "T": a truncation cannot become rows',
    ]


def test_ogg_metadata(spark: SparkSession) -> None:
    """Times are texts in UTC, with or without fractions, whatever the session's time zone."""
    full = {"table": "PRODUCT", "primary_keys": ["id"], "op_type": "I", "after": {"id": 1}}
    times = [
        ("2020-05-13 15:40:06.000000", "2020-05-13T15:40:07.123456"),
        ("2020-05-13 15:40:06.5", "2020-05-13 15:40:07"),
        ("garbage", None),
    ]
    messages = [json.dumps({**full, "op_ts": event, "current_ts": ingestion}) for event, ingestion in times]
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        found = [one[METADATA] for one in decoded(spark, OGG_JSON, "id int", messages)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert [found[0]["table"], found[0]["primary-keys"]] == ["PRODUCT", ["id"]]
    assert [(one["event-timestamp"], one["ingestion-timestamp"]) for one in found] == [
        ("2020-05-14T00:40:06.000+09:00", "2020-05-14T00:40:07.123+09:00"),
        ("2020-05-14T00:40:06.500+09:00", "2020-05-14T00:40:07.000+09:00"),
        (None, None),
    ]


# --- all of them ---


@pytest.mark.parametrize("found", FORMATS, ids=lambda found: found.name)
def test_the_type_of_what_is_decoded(spark: SparkSession, found: Format) -> None:
    """Rows with their kinds, the format's metadata, and the error; one parse for all messages but updates."""
    schema = struct("id int, tags array<string>, at struct<x: double, y: double>")
    messages = spark.createDataFrame([], BYTES)
    result = messages.select(decode(found, F.col("value"), schema, {}).alias("x")).schema["x"].dataType
    assert isinstance(result, StructType)
    assert result.names == [ROWS, METADATA, ERROR]
    assert result[ROWS].dataType.simpleString() == f"array<struct<row_kind:string,row:{schema.simpleString()}>>"
    assert (
        result[METADATA].dataType.simpleString()
        == StructType([StructField(name, data_type) for name, data_type in found.metadata.items()]).simpleString()
    )


SAMPLES = {
    DEBEZIUM_JSON.name: [line["value"].encode() for line in _recorded("schemaless", "customers") if line["value"]],
    CANAL_JSON.name: [
        canal("UPDATE", [{"id": "1", "name": "ä"}, {"id": "2"}], [{"name": None}, {"id": "3"}], ts=1).encode(),
        canal("INSERT", [{"id": "1"}], pkNames=["id"], sqlType={"id": 4}).encode(),
    ],
    MAXWELL_JSON.name: [b'{"type":"update","data":{"id":1,"name":"x"},"old":{"name":null},"ts":1,"database":"d"}'],
    OGG_JSON.name: [b'{"op_type":"U","before":{"id":1},"after":{"id":2},"op_ts":"2020-05-13 15:40:06.5"}'],
}


@pytest.mark.slow
@pytest.mark.parametrize("found", FORMATS, ids=lambda found: found.name)
def test_damaged_messages_are_errors_and_nothing_else(spark: SparkSession, found: Format) -> None:
    """Whatever the bytes: each message gives rows or an error, and with `ignore-parse-errors` never an error."""
    messages = examples(st.sampled_from(SAMPLES[found.name]).flatmap(damaged), each=5)
    cases: list[Case] = [(found, TABLES["customers"], options, messages) for options in (ISO, {**ISO, **IGNORE})]
    strict, lenient = decoded_all(spark, cases)
    for message, one in zip(messages, strict, strict=True):
        assert one is not None or message == b"", message
        assert one is None or (one[ROWS] is None) != (one[ERROR] is None), message
    assert [one for one in lenient if one is not None and one[ERROR] is not None] == []
    fine = [(one, other) for one, other in zip(strict, lenient, strict=True) if one is not None and one[ERROR] is None]
    assert [one for one, other in fine if one != other] == []


# --- writing ---

WRITTEN = (
    "row_kind string, id int, name string, d double, c decimal(10, 2), y date, ts timestamp_ntz, m map<string, int>, "
    "r struct<a: int, b: string>, x array<string>"
)
FULL = """1, 'a "b" \\\\ é', 1.5, 10.50, date'2020-02-29', timestamp_ntz'2020-01-02 03:04:05.6', map('k', 1, 'n', null),
    named_struct('a', 1, 'b', null), array('p', null)"""
FULL_JSON = (
    '{"id":1,"name":"a \\"b\\" \\\\ é","d":1.5,"c":10.5,"y":"2020-02-29","ts":"2020-01-02T03:04:05.6","m":{"k":1,"n":null},'
    '"r":{"a":1,"b":null},"x":["p",null]}'
)
BARE = "2, null, 1e10, -0.10, null, null, null, null, null"
BARE_JSON = '{"id":2,"name":null,"d":1.0E10,"c":-0.1,"y":null,"ts":null,"m":null,"r":null,"x":null}'
ENVELOPES = {
    DEBEZIUM_JSON.name: ('{"before":null,"after":%s,"op":"c"}', '{"before":%s,"after":null,"op":"d"}'),
    CANAL_JSON.name: ('{"data":[%s],"type":"INSERT"}', '{"data":[%s],"type":"DELETE"}'),
    MAXWELL_JSON.name: ('{"data":%s,"type":"insert"}', '{"data":%s,"type":"delete"}'),
    OGG_JSON.name: ('{"before":null,"after":%s,"op_type":"I"}', '{"before":%s,"after":null,"op_type":"D"}'),
}


def encoded(
    spark: SparkSession, found: Iterable[Format], changes: Iterable[tuple[str, str]], options: Options
) -> list[list[str | None]]:
    """The messages of rows, each given as its kind and its values in SQL, in each of the formats."""
    schema = struct(WRITTEN)
    tuples = ", ".join(f"('{kind}', {values})" for kind, values in changes)
    table = spark.sql(f"SELECT * FROM VALUES {tuples} AS t({', '.join(schema.names)})").to(schema)
    fields = StructType(schema.fields[1:])
    row = F.struct(*fields.names, ROW_KIND)
    columns = table.select(*(encode(one, row, fields, parsed(one, options)) for one in found)).collect()
    return [
        [None if value is None else bytes(value).decode() for value in column] for column in zip(*columns, strict=True)
    ]


ALL_CHANGES = [("+I", FULL), ("-U", FULL), ("+U", BARE), ("-D", BARE)]


def test_messages_are_flinks_to_the_byte(spark: SparkSession) -> None:
    """New rows are insertions, old ones deletions, in the envelope that Flink writes."""
    for found, messages in zip(FORMATS, encoded(spark, FORMATS, ALL_CHANGES, ISO), strict=True):
        insertion, deletion = ENVELOPES[found.name]
        assert messages == [
            insertion % FULL_JSON,
            deletion % FULL_JSON,
            insertion % BARE_JSON,
            deletion % BARE_JSON,
        ]


def test_messages_without_null_fields(spark: SparkSession) -> None:
    """With `encode.ignore-null-fields` the row that is not there is left out, too; decimals may be plain."""
    options = {"encode.ignore-null-fields": "true", "encode.decimal-as-plain-number": "true"}
    changes = [("+I", BARE), ("-D", BARE)]
    for found, messages in zip(FORMATS, encoded(spark, FORMATS, changes, options), strict=True):
        insertion, deletion = (
            text.replace('"before":null,', "").replace('"after":null,', "") for text in ENVELOPES[found.name]
        )
        bare = '{"id":2,"d":1.0E10,"c":-0.10}'
        assert messages == [insertion % bare, deletion % bare]


@pytest.mark.slow
def test_what_was_written_is_read_again(spark: SparkSession, compiled: None) -> None:
    """Only the kinds of updates are gone. Spark compiles its expressions here."""
    written = encoded(spark, FORMATS, ALL_CHANGES, ISO)
    ddl = WRITTEN.removeprefix("row_kind string, ")
    cases: list[Case] = [(found, ddl, ISO, messages) for found, messages in zip(FORMATS, written, strict=True)]
    for answers in decoded_all(spark, cases):
        changes = list(chain.from_iterable(map(rows, answers)))
        assert [change[:3] for change in changes] == [
            ("+I", 1, 'a "b" \\ é'),
            ("-D", 1, 'a "b" \\ é'),
            ("+I", 2, None),
            ("-D", 2, None),
        ]
        assert changes[0][1:] == changes[1][1:]
        assert changes[2][1:] == changes[3][1:]


def test_a_row_without_a_kind_is_refused(spark: SparkSession) -> None:
    """A row whose kind is none of the four fails the query, and the message names what it has."""
    with pytest.raises(Exception, match=r"'row_kind' of a row must be one of \+I, -U, \+U, -D, not 'upsert'"):
        encoded(spark, [DEBEZIUM_JSON], [("upsert", BARE)], {})


TYPES = "s STRING, d DATE, t TIMESTAMP_NTZ, p DECIMAL(5,2), a ARRAY<STRING>, r STRUCT<x: DATE>"


WRONG: list[dict[str, Any]] = [
    {"d": 18262},
    {"d": "0000-00-00"},
    {"t": 1577934245000000},
    {"p": "Ag=="},
    {"p": "123456.78"},
    {"a": "x"},
    {"r": "x"},
    {"r": {"x": "x"}},
]


def test_no_value_of_a_row_becomes_null_in_silence(spark: SparkSession) -> None:
    """The error names the field within its row."""

    def message(found: Format, row: dict[str, Any]) -> str:
        envelopes: dict[str, dict[str, Any]] = {
            "debezium-json": {"before": None, "after": row, "op": "c"},
            "canal-json": {"data": [row], "type": "INSERT"},
            "maxwell-json": {"data": row, "type": "insert"},
            "ogg-json": {"after": row, "op_type": "I"},
        }
        return json.dumps(envelopes[found.name])

    cases: list[Case] = [(f, TYPES, {}, [message(f, {"s": "x", **wrong}) for wrong in WRONG]) for f in FORMATS]
    for (found, *_), answers in zip(cases, decoded_all(spark, cases), strict=True):
        for wrong, one in zip(WRONG, answers, strict=True):
            (name,) = wrong
            path = f"{name}.x" if wrong == {"r": {"x": "x"}} else name
            image = "data" if found.name in ("canal-json", "maxwell-json") else "after"
            assert error(one) == f"It does not fit the columns: {image}.{path}", (found.name, wrong)
