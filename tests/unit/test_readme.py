"""The README says what the code says."""

from __future__ import annotations

from pathlib import Path

from dynamic_kafka.options import OPTIONS, markdown_table

README = (Path(__file__).parent.parent.parent / "README.md").read_text()


def test_the_option_table_is_made_from_the_option_table() -> None:
    """`scripts/readme_options.py` was run after the last change of an option."""
    assert markdown_table() in README


def test_every_option_says_what_it_expects_and_means() -> None:
    """A new option comes with its words."""
    for option in OPTIONS:
        assert option.expected, option.key
        assert option.doc.endswith("."), option.key
