"""The tables in docs say what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dynamic_kafka.formats import FORMATS, format_named
from dynamic_kafka.metadata.factory import SERVICE_OPTIONS
from dynamic_kafka.sink.configure import SINK_OPTIONS
from dynamic_kafka.source.configure import SOURCE_OPTIONS
from dynamic_kafka.sql.config import SETTINGS
from dynamic_kafka.sql.options import SQL_OPTIONS

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
