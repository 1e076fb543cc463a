"""Versions of Spark: what replaces what one of them lacks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from dynamic_kafka.spark_versions import offset_of

_USE = """
{before}
import pyspark.sql.datasource as datasource
from pyspark_dynamic_kafka import DefaultSource
assert issubclass(DefaultSource, datasource.DataSource) and DefaultSource.name() == "dynamic-kafka"
try:
    DefaultSource({{}})
except ImportError as error:
    print(error)
"""


_OLD = "import pyspark.sql.datasource as d; import pyspark; pyspark.__version__ = '3.5.1'; del d.DataSourceArrowWriter"
_LACKS_A_MODULE = "import sys; sys.modules['dynamic_kafka.spark.datasource'] = None"
_FAILS = """
import sys
class Finder:
    @staticmethod
    def find_spec(name, *_):
        return 1 / 0 if name == 'dynamic_kafka' else None
sys.meta_path.insert(0, Finder)
"""


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (_OLD, "needs Spark 4.0 or newer, and this is Spark 3.5.1: cannot import name"),
        (_LACKS_A_MODULE, "cannot be loaded with Spark 4."),
        (_FAILS, "division by zero"),
    ],
)
def test_the_import_that_spark_makes_raises_nothing(before: str, said: str) -> None:
    """It would hide all data sources in Python. The format says what is wrong when it is used."""
    run = subprocess.run(
        [sys.executable, "-c", _USE.format(before=before)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert said in run.stdout


def test_offsets_are_read_as_each_version_shows_them() -> None:
    """Spark 4.1 shows Python's text of an offset, later versions its JSON."""
    offset = {"version": 1, "streams": {"it's": None}, "done": True, "clusters": {"ü": [1, -2]}}
    for shown in (offset, json.dumps(offset), str(offset)):
        assert offset_of(shown) == offset
    with pytest.raises(ValueError, match="invalid syntax"):
        offset_of("not an offset")
    with pytest.raises(ValueError, match="malformed"):
        offset_of("__import__('os').system('true')")
