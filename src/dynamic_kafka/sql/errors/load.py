"""Catalogs and formats of tables that Spark cannot load, in words that name what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import __version__
from pyspark.errors import PySparkException

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sql.errors.script import java_message, reason_of

__all__ = ["loading"]

# The second before Spark 4.2, without a name.
_MISSING = re.compile(r"\[(?:CANNOT_LOAD_CATALOG|DATA_SOURCE_NOT_FOUND)\b|^Cannot find catalog plugin class")
_DOES_NOT_FIT = re.compile(
    r"\bjava\.lang\.(?:IncompatibleClassChange|NoClassDefFound|NoSuchMethod|NoSuchField|AbstractMethod|Verify|"
    r"UnsupportedClassVersion)Error\b"
)
_NO_CATALOG = re.compile(r"\[REQUIRES_SINGLE_PART_NAMESPACE\].* (?P<name>(?P<catalog>`(?:[^`]|``)*`)\.`.*`)")


@contextmanager
def loading() -> Iterator[None]:
    """Turn Spark's error for a catalog or a format that it cannot load into one that says what to do.

    Raises:
        ConfigurationError: If the session has no such catalog, or a JAR is missing or is for another release of Spark.
    """
    try:
        yield
    except Exception as error:
        problem = _problem(error)
        if problem is None:
            raise
        raise ConfigurationError(problem) from error


def _problem(error: Exception) -> str | None:
    text = java_message(error) or (str(error) if isinstance(error, PySparkException) else "")
    if _DOES_NOT_FIT.search(text):
        reason = text.partition("\n")[0].partition(" (")[0]
        return (
            f"A JAR of this session is for another release of Spark than {__version__}: {reason}. Start Spark with one for "
            "this release (spark.jars.packages)"
        )
    if _MISSING.search(text):
        reason = reason_of(error).rstrip(".")
        return f"{reason}. Start Spark with its JAR, one for Spark {__version__} (spark.jars.packages)"
    if unknown := _NO_CATALOG.search(text):
        setting = f"spark.sql.catalog.{unknown['catalog'][1:-1]}"
        return (
            f"Table {unknown['name']} does not exist: the session has no catalog {unknown['catalog']}. Set '{setting}' and "
            "its options, or CREATE TABLE under this name"
        )
    return None
