"""What Flink's formats read from messages (`tests/flink_answers`) beside ours: the same rows, or a known difference."""

from __future__ import annotations

import pprint
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.flink_answers.avro_messages import AVRO, SCHEMAS
from tests.flink_answers.compare import DIFFERENCES, answers, difference, known, table
from tests.flink_answers.messages import Case, serving
from tests.flink_answers.protobuf_messages import PROTOBUF
from tests.flink_answers.record_formats import CASES
from tests.flink_answers.text_messages import TEXTS

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.formats import ERROR
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.sql.tables.table import Encoding

READ = {**AVRO, **PROTOBUF, **TEXTS}
"""All formats, without Spark."""
DOCS = Path(__file__).parents[3] / "docs" / "guides" / "from-flink.md"


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """The schema registry of the messages."""
    with serving(SCHEMAS) as url:
        yield url


def ours(case: Case, registry: str) -> tuple[Encoding | None, list[Any]]:
    """The columns and the format, and for each message its row, None if there is none, or the error."""
    try:
        found = table(case, registry)
        assert found.format.decoder is not None
        decode = found.format.decoder(found.schema, found.options)
    except ConfigurationError as error:
        return None, [error] * len(case.messages)
    rows: list[Any] = []
    for message in case.messages:  # one by one: a schema that does not fit fails the batch
        try:
            (row,) = decode(pa.array([message], pa.binary())).to_pylist()
        except ConfigurationError as error:
            rows.append(error)
            continue
        reason = None if row is None else row.pop(ERROR)
        rows.append(row if reason is None else ConfigurationError(reason))
    return found, rows


def compared(case: Case, name: str, registry: str) -> dict[str, Any]:
    """The messages of a case that are read otherwise."""
    flink = answers()[name]
    encoding, rows = ours(case, registry)
    type_ = pa.null() if encoding is None else arrow_type(encoding.schema)
    is_changelog = encoding is not None and encoding.format.changelog
    found = {}
    for message, row in zip(case.messages, rows, strict=True):
        answer = flink if "error" in flink else flink[case.key(message)]
        text = difference(answer, row, type_, changelog=is_changelog)
        if text:
            found[case.key(message)] = (text, answer, row)
    return found


def test_messages_are_read_as_by_flink(registry: str) -> None:
    """Several hundred messages, apart from the known differences."""
    found = {name: different for name, case in READ.items() if (different := compared(case, name, registry))}
    assert {name: len(different) for name, different in found.items()} == known(READ), pprint.pformat(found)


def test_the_differences_are_documented() -> None:
    """Each of them is in the page for users of Flink."""
    page = DOCS.read_text()
    assert [text for text in DIFFERENCES if text not in page] == []


def test_all_cases_are_recorded() -> None:
    """With the messages that they have now."""
    for name, case in CASES.items():
        recorded = answers()[name]
        assert "error" in recorded or [*recorded] == [case.key(message) for message in case.messages], name
    assert answers().keys() == CASES.keys()
