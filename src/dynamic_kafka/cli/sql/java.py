"""The Java process of Spark, without what it says about itself when it starts."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Mapping

__all__ = ["start_context"]

_ABOUT_ITSELF = re.compile(
    rb"WARNING: Using incubator modules|Setting default log level|To adjust logging level|Using Spark's default log4j"
)


def start_context(settings: Mapping[str, str]) -> None:
    """Start Spark's Java process and its context, which the session of this process then uses.

    Args:
        settings: Settings of Spark, with its master and the name of the application.

    Raises:
        pyspark.errors.PySparkRuntimeError: If Java does not start; it has said why on standard error.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().setAll([*settings.items()])
    reading, writing = os.pipe()
    threading.Thread(target=_pass_on, args=(reading,), daemon=True).start()
    try:
        gateway = launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]
    finally:
        os.close(writing)
    SparkContext(conf=conf, gateway=gateway)


def _pass_on(reading: int) -> None:
    """Write what Java writes, line by line, but for a few words at its start."""
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if not _ABOUT_ITSELF.match(line):
                sys.stderr.write(line.decode(errors="replace"))
                sys.stderr.flush()
