"""Rows that the sink cannot write: which ones they are, and what their dead letters hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from tests.unit.sink.test_sink_records import TYPES, batch

from dynamic_kafka.errors import ConfigurationError, InvalidOptionError, RowError
from dynamic_kafka.formats.arrow import MESSAGE_OR_ERROR, with_errors
from dynamic_kafka.kafka.clients import ClientSettings, ClusterClients
from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.native import Encoded
from dynamic_kafka.sink.configure import configure_sink
from dynamic_kafka.sink.dead_letters import record_sizes, with_letters
from dynamic_kafka.sink.producers import ClusterProducer
from dynamic_kafka.sink.record_producer import RecordProducer
from dynamic_kafka.sink.records import DEAD_LETTER, HEADERS, Records, check_schema
from dynamic_kafka.sink.report import TaskReport, Volume
from dynamic_kafka.sink.settings import Destination, SinkSettings

WITH_LETTERS = {**TYPES, "value": pa.binary(), DEAD_LETTER: pa.struct([("error", pa.string()), ("row", pa.string())])}
OPTIONS = {"kafka.bootstrap.servers": "h:9092", "topic": "t"}


def settings(topic: str | None = "t", letters: str | None = "bad") -> SinkSettings:
    """A sink's settings."""
    return SinkSettings(service=InMemoryMetadataService, stream="s", topic=topic, dead_letter_topic=letters)


def producer(largest_bytes: int = 1000, limits: Mapping[str, int] | None = None) -> Any:
    """What is known of a producer."""
    return SimpleNamespace(
        cluster="east",
        largest_bytes=largest_bytes,
        partitions=lambda _topic, _at_least=0: 4,
        topic_limits=lambda topics: [(limits or {}).get(topic) for topic in topics],
    )


def sorted_out(
    only: str | None = "t",
    largest_bytes: int = 1000,
    limits: Mapping[str, int] | None = None,
    **columns: Sequence[Any],
) -> tuple[Records | None, list[dict[str, Any]], int]:
    """The records of rows, the dead letters with their headers as a dict, and the number of rows in them."""
    rows = batch(WITH_LETTERS, **columns)
    records, letters, bad = with_letters(rows, Destination({}), settings(only), producer(largest_bytes, limits))
    if letters is None:
        return records, [], bad
    assert letters.topics == ["bad"]
    assert letters.volume.records == letters.rows.num_rows
    found = letters.rows.to_pylist()
    return records, [{**row, "headers": {h["key"]: h["value"] for h in row["headers"]}} for row in found], bad


def test_rows_without_faults_are_records() -> None:
    """And nothing is a dead letter."""
    records, letters, bad = sorted_out(value=[b"a", b"b"], key=[None, b"k"])
    assert records is not None
    assert (records.rows.column("value").to_pylist(), records.volume) == ([b"a", b"b"], Volume(2, 3))
    assert (letters, bad) == ([], 0)
    columns: dict[str, Any] = {"value": [b"a"], DEAD_LETTER: [None]}
    assert sorted_out(**columns)[1:] == ([], 0)


def test_a_row_that_could_not_be_encoded() -> None:
    """Its letter is its JSON; the other rows are records."""
    fault = {"error": "Column 'id' is NOT NULL", "row": '{"id":null}'}
    columns: dict[str, Any] = {"value": [b"a", None, b"c"], DEAD_LETTER: [None, fault, None]}
    records, (letter,), bad = sorted_out(**columns)
    assert records is not None
    assert (records.rows.column("value").to_pylist(), records.volume, bad) == ([b"a", b"c"], Volume(2, 2), 1)
    assert (letter["key"], letter["value"], letter["partition"]) == (None, b'{"id":null}', None)
    assert letter["headers"] == {
        "dynamic-kafka.error": b"Column 'id' is NOT NULL",
        "dynamic-kafka.cluster": b"east",
        "dynamic-kafka.topic": b"t",
        "dynamic-kafka.content": b"row",
    }


def test_a_batch_of_bad_rows_only() -> None:
    """It has no records. A row names its topic, which may be what is missing."""
    fault = {"error": "e" * 5000, "row": "{}"}
    columns: dict[str, Any] = {"value": [None, None], "topic": ["u", None], DEAD_LETTER: [fault, fault]}
    records, letters, bad = sorted_out(only=None, largest_bytes=5000, **columns)
    assert (records, bad) == (None, 2)
    assert [letter["headers"]["dynamic-kafka.topic"] for letter in letters] == [b"u", b""]
    assert {len(letter["headers"]["dynamic-kafka.error"]) for letter in letters} == {2000}


def test_a_record_that_the_producer_does_not_take() -> None:
    """Its letter is the record as it is, in parts whose values joined are its value."""
    value = bytes(range(256)) * 10
    header = {"key": "trace", "value": b"7"}
    records, letters, bad = sorted_out(
        value=[b"a", value], key=[None, b"k"], headers=[[], [header]], timestamp=[None, 1_700_000_000_123_000]
    )
    assert records is not None
    assert (records.rows.column("value").to_pylist(), records.volume, bad) == ([b"a"], Volume(1, 1), 1)
    assert b"".join(letter["value"] for letter in letters) == value
    assert {(letter["key"], letter["timestamp"]) for letter in letters} == {(b"k", 1_700_000_000_123)}
    assert len({letter["partition"] for letter in letters}) == 1
    assert letters[0]["partition"] in range(4)
    parts = [letter["headers"].pop("dynamic-kafka.part").decode() for letter in letters]
    assert parts == [f"{i + 1}/{len(parts)}" for i in range(len(parts))]
    assert len({letter["headers"].pop("dynamic-kafka.letter") for letter in letters}) == 1
    assert (
        letters[0]["headers"]
        == letters[-1]["headers"]
        == {
            "trace": b"7",
            "dynamic-kafka.error": b"The record has 2,605 bytes, more than the producer takes; raise max.request.size",
            "dynamic-kafka.cluster": b"east",
            "dynamic-kafka.topic": b"t",
            "dynamic-kafka.content": b"record",
        }
    )


def test_a_record_that_its_topic_does_not_take() -> None:
    """Each topic has its own limit; the letter is whole where its topic takes it. An unknown limit is none."""
    columns: dict[str, Any] = {"value": [bytes(300), bytes(300), bytes(300)], "topic": ["u", "v", "w"]}
    records, letters, bad = sorted_out(only=None, limits={"u": 200, "v": 2000}, **columns)
    assert records is not None
    assert [records.topics[i] for i in records.rows.column("topic").to_pylist()] == ["v", "w"]
    assert (len(letters), bad, letters[0]["value"]) == (1, 1, bytes(300))
    assert letters[0]["headers"]["dynamic-kafka.topic"] == b"u"
    assert b"more than max.message.bytes=200 of the topic" in letters[0]["headers"]["dynamic-kafka.error"]


def test_parts_fit_the_topic_for_dead_letters() -> None:
    """With key, headers, and all numbers before them."""
    for size in (900, 2_000, 20_000, 300_000):
        rows = batch(WITH_LETTERS, value=[bytes(size)], key=[b"k" * 50])
        _, letters, _ = with_letters(rows, Destination({}), settings(), producer(800, {"bad": 700}))
        assert letters is not None
        assert letters.rows.num_rows > 1
        assert all(size.max() <= 700 for size in record_sizes(letters.rows))


def test_the_topic_for_dead_letters_is_looked_up_with_the_first_row() -> None:
    """And not only with the first bad one, perhaps weeks later."""

    def partitions(topic: str, _at_least: int = 0) -> int:
        raise LookupError(topic)

    absent = producer()
    absent.partitions = partitions
    with pytest.raises(LookupError, match="bad"):
        with_letters(batch(WITH_LETTERS, value=[b"v"]), Destination({}), settings(), absent)


def test_a_key_that_is_too_large_for_a_letter() -> None:
    """Ends the query, because a key cannot be split."""
    with pytest.raises(RowError, match="'key' or its headers are too large for a dead letter, too"):
        sorted_out(value=[b"v"], key=[bytes(2000)])


@pytest.mark.parametrize(
    "columns",
    [
        {"value": [100]},
        {"value": [3000], "key": [64]},
        {"value": [None], "key": [10_000]},
        {"value": [5], "headers": [("a", 0), ("b" * 70, None), ("c", 20_000)]},
    ],
)
def test_sizes_are_those_of_librdkafka(columns: dict[str, list[Any]]) -> None:
    """Checked with the smallest `message.max.bytes` that takes the record, and the one below it, of at least 1000."""
    row: dict[str, Any] = {n: None if s[0] is None else bytes(s[0]) for n, s in columns.items() if n != "headers"}
    headers = [
        {"key": name, "value": None if size is None else bytes(size)} for name, size in columns.get("headers", [])
    ]
    types = {"value": pa.binary(), "key": pa.binary(), "headers": HEADERS}
    row |= {"headers": headers} if headers else {}
    made = {name: pa.array([value], types[name]) for name, value in row.items()}
    if record_sizes(pa.record_batch(made))[0][0] < 1001:
        made["value"] = pa.array([bytes(1000) + (row["value"] or b"")], pa.binary())
    records = Records(["t"], pa.record_batch(made), Volume())
    size = int(record_sizes(records.rows)[0][0])

    def refused(most: int) -> bool:
        assert most >= 1000  # librdkafka's smallest limit
        fixed = {"message.max.bytes": most}
        clients = ClusterClients({"bootstrap.servers": "localhost:1"}, producer=ClientSettings({}, fixed))
        producer = RecordProducer(clients)
        refusal = producer.produce(records, 1, _no_room)
        producer.purge()
        clients.close()
        assert refusal is None or refusal.error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        return refusal is not None

    assert (refused(size), refused(size - 1)) == (False, True)


def _no_room() -> None:
    pytest.fail("there is room")


def test_the_producers_own_limit() -> None:
    """By Java's name or librdkafka's, also behind a reference; librdkafka's default otherwise."""

    def limit(**properties: str) -> int:
        return ClusterProducer(
            "east", {name.replace("_", "."): value for name, value in properties.items()}
        ).largest_bytes

    assert limit() == 1_000_000
    assert limit(max_request_size="5000") == 5000
    assert limit(message_max_bytes="6000") == 6000


def test_the_limit_of_a_topic_is_for_compressed_batches() -> None:
    """So it says nothing of a record before it is compressed, and nobody is asked."""
    for compressed in ({"compression.type": "lz4"}, {"compression.codec": "${env:CODEC}"}):
        assert ClusterProducer("east", compressed).topic_limits(["t", "u"]) == [None, None]


def test_the_option() -> None:
    """Off by default; the topic is another one than those of the rows."""
    assert configure_sink(OPTIONS).dead_letter_topic is None
    assert configure_sink(OPTIONS | {"sink.dead-letter.topic": "bad"}).dead_letter_topic == "bad"
    for wrong in ("t", "a b", ""):
        with pytest.raises(InvalidOptionError, match=r"sink\.dead-letter\.topic"):
            configure_sink(OPTIONS | {"sink.dead-letter.topic": wrong})


def test_the_column_needs_the_option() -> None:
    """Without it, the column is an unknown one."""
    schema = pa.schema([("value", pa.binary()), (DEAD_LETTER, WITH_LETTERS[DEAD_LETTER])])
    check_schema(schema, settings())
    with pytest.raises(ConfigurationError, match=DEAD_LETTER):
        check_schema(schema, settings(letters=None))


def test_rows_of_a_report() -> None:
    """Those in dead letters count: a batch with more rows is another one."""
    assert TaskReport({"east": Volume(3, 10)}, dead_letters=2).rows == 5


def test_errors_of_rows_become_values() -> None:
    """Each row has its message or its reason."""
    messages = pa.array([b"a", None, None, None, b"e"], pa.binary())
    found = with_errors(Encoded(messages, [(1, "name", "is bad"), (3, "", "has a text that is not UTF-8")]))
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        (b"a", None),
        (None, "A row's column 'name' is bad"),
        (None, None),
        (None, "A row has a text that is not UTF-8"),
        (b"e", None),
    ]
    assert found.type.names == MESSAGE_OR_ERROR.names
    assert len(with_errors(Encoded(pa.array([], pa.binary()), []))) == 0
