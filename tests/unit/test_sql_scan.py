"""Who decodes the values of a table: Spark, or the native kernel where they are read."""

from __future__ import annotations

import json

import pytest
from tests.unit.test_sql_sink_rows import OPTIONS, session
from tests.unit.test_sql_table import table

from dynamic_kafka.sql import scan
from dynamic_kafka.sql.scan import _value_row


@pytest.mark.parametrize(
    ("options", "conf", "decoded"),
    [
        ({}, {}, True),
        ({"format.on-error": "skip"}, {}, True),
        ({"format.on-error": "dead-letter", "format.dead-letter.topic": "d"}, {}, False),
        ({}, {"timeParserPolicy": " Legacy"}, False),
        ({}, {"timeParserPolicy": "corrected"}, True),
    ],
)
def test_the_kernel_decodes_what_it_is_allowed_to(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], conf: dict[str, str], *, decoded: bool
) -> None:
    """Not where the dead letter of a key needs the value's bytes, nor where Spark reads dates in another way."""
    monkeypatch.setattr(scan, "can_decode", lambda _: True)
    found = _value_row(session(**conf), table(OPTIONS | options, "id BIGINT, name STRING"))
    assert (found is not None) == decoded
    if found is not None:
        assert [field["name"] for field in json.loads(found.metadata["spec"])["schema"]["fields"]] == ["id", "name"]
