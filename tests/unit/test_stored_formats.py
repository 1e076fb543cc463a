"""What is stored is read, and written again, byte for byte.

`data/stored` holds offset documents of a checkpoint in both layouts, records of a commit log, and the names of commit
logs and transactional ids. Spark compares offset documents as texts, so a changed text is a changed offset.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dynamic_kafka.errors import CheckpointError
from dynamic_kafka.sink.configure import commit_log_topic
from dynamic_kafka.sink.log import records as log_records
from dynamic_kafka.sink.log.chain import Chain, Record, follow
from dynamic_kafka.sink.transactional_ids import belongs_to, transactional_id
from dynamic_kafka.source.document import offsets

STORED = Path(__file__).parent / "data" / "stored"
DOCUMENTS: dict[str, Any] = json.loads((STORED / "offset-documents.json").read_text())
IN_COLUMNS: dict[str, Any] = json.loads((STORED / "offset-documents-columns.json").read_text())
RECORDS = (STORED / "commit-log.jsonl").read_text().splitlines()
NAMES: dict[str, dict[str, str]] = json.loads((STORED / "names.json").read_text())


@pytest.mark.parametrize("name", sorted(DOCUMENTS.keys() - {"marker"}))
def test_an_offset_document_is_the_same_text_after_reading(name: str) -> None:
    """Otherwise Spark would plan an empty batch after each upgrade, or for ever."""
    stored = DOCUMENTS[name]
    assert json.dumps(offsets.encode(offsets.decode(stored))) == json.dumps(stored)


@pytest.mark.parametrize("name", sorted(IN_COLUMNS))
def test_a_large_offset_document_is_the_same_text_after_reading(name: str) -> None:
    """In the layout "columns"."""
    stored = IN_COLUMNS[name]
    assert stored["layout"] == "columns"
    assert json.dumps(offsets.encode(offsets.decode(stored))) == json.dumps(stored)


def test_the_marker_is_the_same() -> None:
    """It stands for the start of a query in every checkpoint, so it can never change."""
    assert DOCUMENTS["marker"] == offsets.MARKER
    with pytest.raises(CheckpointError):
        offsets.decode(DOCUMENTS["marker"])


def test_commit_log_records_are_the_same_bytes_after_reading() -> None:
    """Drivers of two versions may follow one log during an upgrade."""
    for text in RECORDS:
        record = log_records.decode(text.encode())
        assert isinstance(record, Record)
        assert log_records.encode(record).decode() == text


def test_a_commit_log_is_followed_to_its_last_record() -> None:
    """The chain's head says what was decided."""
    chain = Chain()
    for offset, text in enumerate(RECORDS):
        record = log_records.decode(text.encode())
        assert isinstance(record, Record)
        chain = follow(chain, offset, record, start=0)
    assert (chain.offset, chain.state.status, chain.state.batch) == (3, "voided", 42)
    assert dict(chain.state.applied) == {"query/7d1c": 41}


@pytest.mark.parametrize("prefix", sorted(NAMES["commit log topics"]))
def test_names_on_the_brokers_are_the_same(prefix: str) -> None:
    """A commit log under another name is an empty one, and ids under other names are not fenced."""
    assert commit_log_topic(prefix) == NAMES["commit log topics"][prefix]
    name = NAMES["transactional ids"][prefix]
    assert transactional_id(prefix, "0a1b2c3d4e5f", 17) == name
    assert belongs_to(prefix, name)
