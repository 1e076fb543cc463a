"""The tables of options: every name, every value that is wrong, and what the tables in docs say of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.sink import test_sink_options as sink
from tests.unit.source import test_options as source

from dynamic_kafka.errors import InvalidOptionError, UnknownOptionError
from dynamic_kafka.formats import FORMATS, format_named
from dynamic_kafka.metadata.factory import SERVICE_OPTIONS
from dynamic_kafka.options import Option, markdown_table, parse_options
from dynamic_kafka.sink.configure import SINK_OPTIONS
from dynamic_kafka.source.configure import SOURCE_OPTIONS
from dynamic_kafka.sql.session.config import SETTINGS
from dynamic_kafka.sql.tables.options import SQL_OPTIONS

ROOT = Path(__file__).parent.parent.parent


def test_the_option_tables_are_made_from_the_option_tables() -> None:
    """`scripts/option_tables.py` was run after the last change of an option."""
    done = subprocess.run([sys.executable, ROOT / "scripts" / "option_tables.py", "--check"], check=False)
    assert done.returncode == 0


def test_every_option_says_what_it_expects_and_means() -> None:
    """A new option comes with its words."""
    of_formats = [option for name in FORMATS for option in format_named(name).options]
    for option in (*SOURCE_OPTIONS, *SERVICE_OPTIONS, *SINK_OPTIONS, *SQL_OPTIONS, *SETTINGS.values(), *of_formats):
        assert option.expected, option.key
        assert option.doc.endswith("."), option.key


Table = tuple[Option[Any], ...]
TABLES: list[tuple[Table, dict[str, tuple[str, Any]], dict[str, tuple[str, ...]]]] = [
    (SOURCE_OPTIONS, source.RIGHT, source.WRONG),
    (SINK_OPTIONS, sink.RIGHT, sink.WRONG),
]
EACH = [pytest.param(table, option, id=option.key) for table, *_ in TABLES for option in table]


@pytest.mark.parametrize(("table", "right"), [(table, right) for table, right, _ in TABLES], ids=["source", "sink"])
def test_a_table_has_each_name_once(table: Table, right: dict[str, tuple[str, Any]]) -> None:
    """Also without regard to case, and between names and aliases."""
    names = [name.lower() for option in table for name in (option.key, *option.aliases)]
    assert len(set(names)) == len(names)
    assert {option.key for option in table} == right.keys(), "a right value for each option is tested"


@pytest.mark.parametrize(("table", "option"), EACH)
def test_every_name_in_every_case_is_one_option(table: Table, option: Option[Any]) -> None:
    """Spark hands names over in lower case; users mix them."""
    text, value = next(right for options, right, _ in TABLES if options is table)[option.key]
    for name in (option.key, *option.aliases):
        for spelled in (name, name.lower(), name.upper()):
            parsed = parse_options({spelled: text}, table)
            assert parsed.values == {option.key: value}
            assert parsed.given(option) == [name], "errors name it as the table spells it"


@pytest.mark.parametrize(
    ("table", "key", "text"),
    [(table, key, text) for table, _, wrong in TABLES for key, texts in wrong.items() for text in texts],
    ids=lambda found: found if isinstance(found, str) and len(found) < 50 else "",
)
def test_wrong_values_say_option_value_and_what_is_right(table: Table, key: str, text: str) -> None:
    """All three, in the first line."""
    option = next(o for o in table if o.key == key)
    for name in (key, *option.aliases):
        with pytest.raises(InvalidOptionError) as caught:
            parse_options({name.lower(): text}, table)
        assert str(caught.value) == f"Option '{name}' has the value {text!r}; expected {option.expected}"


@pytest.mark.parametrize(("table", "option"), EACH)
def test_every_option_is_in_the_table_of_the_documentation(table: Table, option: Option[Any]) -> None:
    """With its aliases. Those that begin with two underscores are the package's own."""
    if option.key.startswith("__"):
        assert option.key not in markdown_table(table)
        return
    row = next(line for line in markdown_table(table).splitlines() if f"`{option.key}`" in line.split("|")[1])
    assert row.count("|") == 4
    assert all(f"`{alias}`" in row for alias in option.aliases)


@pytest.mark.parametrize(
    ("table", "option", "suggestion"),
    [
        (SOURCE_OPTIONS, "subscrib", "subscribe"),
        (SOURCE_OPTIONS, "startingOffset", "startingOffsets"),
        (SOURCE_OPTIONS, "MAXOFFSETPERTRIGGER", "maxOffsetsPerTrigger"),
        (SOURCE_OPTIONS, "failOnDataloos", "failOnDataLoss"),
        (SOURCE_OPTIONS, "stream-id", "stream-ids"),
        (SOURCE_OPTIONS, "scan.startup.modus", "scan.startup.mode"),
        (SOURCE_OPTIONS, "kafkaConsumer.pollTimeout", "kafkaConsumer.pollTimeoutMs"),
        (SINK_OPTIONS, "sink.delivery-garantee", "sink.delivery-guarantee"),
        (SINK_OPTIONS, "txnApp", "txnAppId"),
        (SINK_OPTIONS, "topic-patern", "topic-pattern"),
        (SINK_OPTIONS, "topik", "topic"),
        (SINK_OPTIONS, "sink.partitoner", "sink.partitioner"),
        (SINK_OPTIONS, "sink.transaction-id-prefix", "sink.transactional-id-prefix"),
    ],
)
def test_typos_are_answered_with_the_nearest_name(table: Table, option: str, suggestion: str) -> None:
    """An unknown option is an error, never ignored."""
    with pytest.raises(UnknownOptionError, match=f"'{option}'; did you mean '{suggestion}'"):
        parse_options({option: "x"}, table)
