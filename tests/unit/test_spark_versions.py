"""Versions of Spark: what replaces what one of them lacks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from dynamic_kafka.spark_versions import offset_of

_ON_AN_OLD_VERSION = """
import pyspark.sql.datasource as datasource
del datasource.DataSourceArrowWriter
from pyspark_dynamic_kafka import DefaultSource
assert issubclass(DefaultSource, datasource.DataSource) and DefaultSource.name() == "dynamic-kafka"
try:
    DefaultSource({})
except ImportError as error:
    print(error)
"""


def test_the_import_that_spark_makes_raises_nothing_on_an_old_version() -> None:
    """It would hide all data sources in Python. The format says which version it needs when it is used."""
    run = subprocess.run([sys.executable, "-c", _ON_AN_OLD_VERSION], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "needs Spark 4.0 or newer, and this is Spark 4." in run.stdout


def test_offsets_are_read_as_each_version_shows_them() -> None:
    """Spark 4.1 shows Python's text of an offset, later versions its JSON."""
    offset = {"version": 1, "streams": {"it's": None}, "done": True, "clusters": {"ü": [1, -2]}}
    for shown in (offset, json.dumps(offset), str(offset)):
        assert offset_of(shown) == offset
    with pytest.raises(ValueError, match="invalid syntax"):
        offset_of("not an offset")
    with pytest.raises(ValueError, match="malformed"):
        offset_of("__import__('os').system('true')")
