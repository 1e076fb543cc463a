"""The Spark session of `dynamic-kafka sql`, and Ctrl-C while a call to it runs."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError

if TYPE_CHECKING:
    from dynamic_kafka.sql.environment import TableEnvironment

__all__ = ["GROUP", "calls_to_spark", "start_environment"]

GROUP = "dynamic-kafka sql"
"""The job group that Ctrl-C cancels; a running INSERT has another one."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_NO_LOG = Path(__file__).with_name("log4j2.properties")
_LOOK_S = 0.2
_CANCEL_S = 5.0


def start_environment(master: str, settings: Sequence[str], *, debug: bool) -> TableEnvironment:
    """Start Spark.

    Args:
        master: Spark's master.
        settings: Settings of Spark, as KEY=VALUE.
        debug: Whether logs are shown.

    Raises:
        ConfigurationError: If a setting has no value.
        MissingDependencyError: If there is no pyspark.
    """
    if not debug:
        warnings.filterwarnings("ignore", module="pyspark")  # about its own libraries
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingDependencyError("pyspark", "spark", "to run SQL") from None
    from dynamic_kafka.sql.environment import TableEnvironment

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("dynamic-kafka sql").master(master)
    values = {
        "spark.ui.showConsoleProgress": "false",
        # When a foreachBatch query is stopped, Spark matches a recursive pattern against pages of Python's trace.
        _JAVA_OPTIONS: "-Xss8m" if debug else f'-Xss8m "-Dlog4j2.configurationFile={_NO_LOG}"',
    }
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigurationError(f"--conf {key} has no value; give it as KEY=VALUE")
        values[key] = value
    # Spark logs pages of Java traces for an error; its reason is shown here.
    if debug or str(_NO_LOG) not in values[_JAVA_OPTIONS]:
        values.setdefault("spark.log.level", "INFO" if debug else "OFF")
    for key, value in values.items():
        builder = builder.config(key, value)
    if not debug:
        from pyspark.logger import PySparkLogger

        PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        PySparkLogger.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
        logging.getLogger().addFilter(
            lambda record: "KeyboardInterrupt while sending command" not in record.getMessage()
        )
    session = builder.getOrCreate()
    if not debug:
        session.sparkContext.setLogLevel("OFF")
    if not debug and (server := getattr(session.sparkContext, "_accumulatorServer", None)) is not None:
        # Spark's JVM may cut this connection while it stops; the server's thread would print a traceback.
        server.handle_error = lambda *_: None
    atexit.register(session.stop)  # otherwise Spark's connections break at the end, one with a traceback
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's handler would also cancel the jobs of INSERTs
    session.sparkContext.setJobGroup(GROUP, "dynamic-kafka sql", interruptOnCancel=True)
    return TableEnvironment(session)


@contextmanager
def calls_to_spark() -> Iterator[list[int]]:
    """Let Ctrl-C cancel Spark's job, and raise KeyboardInterrupt at the end; a second Ctrl-C raises it at once.

    Raised within a call to Spark, it would break py4j's connection, which logs pages of traces. Yields the signals so far.
    """
    pressed: list[int] = []
    left = threading.Event()
    cancelling = threading.Thread(target=_cancel, args=(left,), daemon=True)

    def handle(number: int, _: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)
        cancelling.start()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield pressed
    except Exception:
        if not pressed:  # otherwise it is the error of the cancelled job
            raise
    finally:
        signal.signal(signal.SIGINT, before)
        left.set()
        if pressed:
            cancelling.join(_CANCEL_S)  # not while its call to Spark is running
    if pressed:
        raise KeyboardInterrupt


def _cancel(left: threading.Event) -> None:
    """Cancel jobs again and again: a statement may be about to start one."""
    from pyspark import SparkContext

    while not left.is_set():
        with suppress(Exception):  # the session may have stopped
            SparkContext.getOrCreate().cancelJobGroup(GROUP)
        left.wait(_LOOK_S)
