"""`dynamic-kafka tail` without a cluster: what messages are shown as, and where reading begins."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.avro import written
from tests.web import Answer, Request, WebServer

from dynamic_kafka.cli import tail
from dynamic_kafka.cli.main import main
from dynamic_kafka.cli.message_text import decoder_of, text_of, text_of_bytes, text_or_hex
from dynamic_kafka.cli.tail import _leaderless, parse_start
from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.rules.model import ClusterView

AVRO = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
    ],
}
PROTO = 'syntax = "proto3"; message Other { int32 x = 1; } message Order { int64 id = 1; string name = 2; }'
SCHEMAS = {
    1: {"schema": json.dumps(AVRO)},
    2: {"schema": PROTO, "schemaType": "PROTOBUF"},
    3: {"schema": "{}", "schemaType": "JSON"},
}


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """A registry that knows `SCHEMAS`."""

    def answer(request: Request) -> Answer:
        found = SCHEMAS.get(int(request.path.partition("?")[0].rpartition("/")[2]))
        body = json.dumps(found or {"error_code": 40403, "message": "Schema not found"}).encode()
        return 404 if found is None else 200, {"Content-Type": "application/vnd.schemaregistry.v1+json"}, body

    with WebServer(answer) as server:
        yield server.url


def framed(schema_id: int, data: bytes) -> bytes:
    """A message with the id of its schema."""
    return b"\0" + schema_id.to_bytes(4, "big") + data


def avro(record: object) -> bytes:
    """A message by the schema 1."""
    return framed(1, written(AVRO, record))


@pytest.mark.parametrize(
    ("start", "wait", "has_answered", "at_end", "code"),
    [
        ("earliest", 0.1, 1, 0, 1),
        ("earliest", None, 1, 0, 1),
        ("earliest", 0.1, 0, 1, 0),
        ("latest", 0.1, 0, 1, 1),
        ("latest", 0.1, 1, 1, 0),
        ("latest", 0.4, 0, 1, 1),
    ],
)
def test_a_cluster_that_falls_silent_ends_the_command(
    start: str, wait: float | None, has_answered: int, at_end: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After --wait, or --timeout if that is longer; the error names the cluster that did not answer."""
    clock = iter(range(100))
    monkeypatch.setattr(tail, "time", SimpleNamespace(monotonic=lambda: next(clock) / 10))
    silent: Any = SimpleNamespace(
        cluster="eu", has_answered=has_answered, at_end=at_end, reason="refused", poll=lambda timeout_s: None
    )
    messages = tail._messages([silent], argparse.Namespace(start=parse_start(start), wait=wait, timeout=0.3))
    if not code:
        assert list(messages) == []
        return
    with pytest.raises(ClusterUnavailableError, match=r"Cluster 'eu' does not answer, .*\(refused\)"):
        list(messages)
    assert next(clock) == max(wait or 0, 0.3) * 10 + 1


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        ("auto", b"caf\xc3\xa9", "café"),
        ("auto", b"\xff\x00", "0xff00"),
        ("raw", b"a\tb", "a\tb"),
        ("raw", b"\x1b[2J", "0x1b5b324a"),
        ("hex", b"ab", "0x6162"),
        ("json", b'{"a":  [1, "\xc3\xa9"]}', '{"a": [1, "é"]}'),
        ("auto", b"", ""),
    ],
)
def test_bytes_as_text(name: str, data: bytes, shown: str) -> None:
    """What is no text, or would control a terminal, is shown in hexadecimal digits."""
    assert text_of(decoder_of(name, None, {}, text_or_hex)(data)) == shown


@pytest.mark.parametrize("text", ["order 7", "\x1b[31mred", "a\u200db", "0xfffe", ""])
def test_bytes_for_programs_are_the_text_that_they_are(text: str) -> None:
    """With all of its characters: JSON has an escape for each. What is no text is an error, and nobody takes it for one."""
    assert decoder_of("auto", None, {}, text_of_bytes)(text.encode()) == text
    with pytest.raises(ValueError, match="no UTF-8"):
        decoder_of("raw", None, {}, text_of_bytes)(text.encode() + b"\xff")


def test_partitions_without_a_leader_are_named() -> None:
    """Those that should be read: nobody knows what they have."""
    ends = {KafkaTopicPartition("t", 1): 5, KafkaTopicPartition("u", 0): 5}
    shown = ClusterView("id", {"t": "x", "u": "y"}, {"t": 4, "u": 1}, ends)
    assert _leaderless(shown, "t", None) == [0, 2, 3]
    assert _leaderless(shown, "t", [1, 3]) == [3]
    assert _leaderless(shown, "u", None) == []


def test_messages_with_schemas_are_decoded(registry: str) -> None:
    """By the format that is named, or by the type of the schema."""
    order = avro({"id": 7, "at": 1_700_000_000_000, "raw": b"\xff"})
    expected = {"id": 7, "at": "2023-11-14 22:13:20+00:00", "raw": "0xff"}
    for name in ("auto", "avro-confluent"):
        assert decoder_of(name, registry, {}, text_or_hex)(order) == expected
    message = framed(2, b"\x02\x02" + b"\x08\x2a\x12\x01n")  # the second message: one index, 1
    for name in ("auto", "protobuf-confluent"):
        assert decoder_of(name, registry, {}, text_or_hex)(message) == {"id": "42", "name": "n"}
    assert decoder_of("auto", registry, {}, text_or_hex)(framed(3, b'{"a": 1}')) == {"a": 1}
    assert decoder_of("auto", registry, {}, text_or_hex)(b"plain") == "plain"
    assert decoder_of("auto", registry, {}, text_or_hex)(framed(99, b"x")) == "0x000000006378"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("avro-confluent", b"plain", "does not begin with the id of a schema"),
        ("avro-confluent", framed(2, b"\0"), "its schema 2 is of type PROTOBUF"),
        ("avro-confluent", framed(1, b"\x02"), "does not fit its schema 1"),
        ("protobuf-confluent", framed(2, b"\0\xff"), "does not fit its schema"),
        ("protobuf-confluent", framed(2, b"\x02\x0e\x00"), "indexes"),
        ("protobuf-confluent", framed(2, b"\x02"), "indexes of a message"),
        ("json", b"{", "Expecting"),
    ],
)
def test_bytes_that_do_not_fit_are_a_value_error(registry: str, name: str, data: bytes, message: str) -> None:
    """So that one bad message does not hide the others."""
    with pytest.raises(ValueError, match=message):
        decoder_of(name, registry, {}, text_or_hex)(data)


def test_a_format_with_schemas_needs_a_registry() -> None:
    """The error names the argument."""
    with pytest.raises(ConfigurationError, match="avro-confluent needs --registry"):
        decoder_of("avro-confluent", None, {}, text_or_hex)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("latest", ("latest", 0)),
        ("earliest", ("earliest", 0)),
        ("12", ("offset", 12)),
        ("-3", ("last", 3)),
        ("2026-11-22T20:00Z", ("time", 1_795_377_600_000)),
        ("2026-11-22T21:00+01:00", ("time", 1_795_377_600_000)),
        ("2026-11-22", ("time", 1_795_305_600_000)),
    ],
)
def test_where_reading_begins(text: str, start: tuple[str, int]) -> None:
    """A number is an offset, and a negative one counts from the end. Times are in UTC unless they say it."""
    assert tuple(parse_start(text)) == start


def test_other_starts_are_errors(capsys: pytest.CaptureFixture[str]) -> None:
    """Of usage."""
    with pytest.raises(argparse.ArgumentTypeError, match="expected earliest, latest, a time"):
        parse_start("yesterday")
    assert main(["tail"]) == 2
    assert "No topic is given" in capsys.readouterr().err
    assert main(["tail", "--topic", "t"]) == 2
    assert "No brokers are given" in capsys.readouterr().err
