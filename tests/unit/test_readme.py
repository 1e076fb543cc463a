"""The README says what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamic_kafka.options import OPTIONS, SINK_OPTIONS, ConfigOption, markdown_table

README = (Path(__file__).parent.parent.parent / "README.md").read_text()


@pytest.mark.parametrize("table", [OPTIONS, SINK_OPTIONS], ids=["source", "sink"])
def test_the_option_tables_are_made_from_the_option_tables(table: tuple[ConfigOption, ...]) -> None:
    """`scripts/readme_options.py` was run after the last change of an option."""
    assert markdown_table(table) in README


def test_every_option_says_what_it_expects_and_means() -> None:
    """A new option comes with its words."""
    for option in (*OPTIONS, *SINK_OPTIONS):
        assert option.expected, option.key
        assert option.doc.endswith("."), option.key
