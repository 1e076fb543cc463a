"""What is a record of a commit log, what is of another program, and what is of a newer version."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_kafka.sink.log.chain import Record, State, Transaction
from dynamic_kafka.sink.log.records import Pointer, UnreadableRecordError, decode, encode

STATE = State(
    chain="x",
    generation=3,
    status="decided",
    identity="app/ä",
    batch=7,
    transactions=(Transaction("a", "p.dk-0123456789ab-0", 2**40, 12),),
    clusters={"a": {"cluster.id": "Xyz", "bootstrap.servers": "h:1"}},
    applied={"app/ä": 7, "other": 0},
    places=("Old/log", "Xyz/log"),
    before=4,
    owner="run",
)
RECORD = Record("r", 41, STATE)


@pytest.mark.parametrize(
    "record", [RECORD, replace(RECORD, state=State(places=("Xyz/log",))), Pointer("Xyz/log", "east")]
)
def test_what_is_encoded_is_decoded(record: Record | Pointer) -> None:
    """With all that belongs to it."""
    assert decode(encode(record)) == record


def test_a_field_is_left_out_while_it_has_its_default() -> None:
    """So a later field changes no record that does not need it."""
    assert json.loads(encode(Record("r", 0, State(places=("Xyz/log",)))))["state"] == {"places": ["Xyz/log"]}


DEEP = [b"[" * 200_000, b'{"version":' * 200_000]
"""JSON that is nested more deeply than the interpreter can follow."""


@pytest.mark.parametrize(
    "text", [None, b"", b"\xff", b"{}", b"[]", b"1", b"null", b'{"version":"2"}', b'{"state":{}}', *DEEP]
)
def test_what_another_program_wrote_is_skipped(text: bytes | None) -> None:
    """It is not JSON, or has no number of a version."""
    assert decode(text) is None


def changed(**changes: Any) -> bytes:
    """The record with other content."""
    return json.dumps(json.loads(encode(RECORD)) | changes).encode()


def in_state(**changes: Any) -> bytes:
    """The record with another state."""
    return changed(state=json.loads(encode(RECORD))["state"] | changes)


@pytest.mark.parametrize(
    "text",
    [
        changed(version=2),
        changed(more=1),
        changed(state=None),
        changed(follows="1"),
        in_state(more=1),
        in_state(transactions=[1]),
        in_state(transactions=None),
        in_state(transactions=[["a", "p-0", 1, 2, 3]]),
        b'{"version":2}',
        b'{"version":1}',
        b'{"version":1,"pointer":{"place":"x/y","cluster":"c","more":1}}',
    ],
)
def test_what_a_newer_version_wrote_stops_us(text: bytes) -> None:
    """It may count, and this version does not know what it says. The error tells which version wrote it."""
    with pytest.raises(UnreadableRecordError, match=f"^version {json.loads(text)['version']}$"):
        decode(text)


@given(
    st.binary(max_size=50)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_whatever_is_in_the_topic(text: bytes) -> None:
    """It is never an error of another kind."""
    assert decode(text) is None
