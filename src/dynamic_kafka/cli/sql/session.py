"""The Spark session of `dynamic-kafka sql`, and Ctrl-C while a call to it runs."""

from __future__ import annotations

import atexit
import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError, MissingDependencyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dynamic_kafka.sql.environment import TableEnvironment

__all__ = ["GROUP", "calls_to_spark", "connected_session", "errors_of_java", "start_environment"]

GROUP = "dynamic-kafka sql"
"""The job group that Ctrl-C cancels; a running INSERT has another one."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_NO_LOG = Path(__file__).with_name("log4j2.properties")
_PARTITIONS = "spark.sql.shuffle.partitions"
_LOOK_S = 0.2
_CANCEL_S = 5.0
_CONNECT_S = 20.0
_ABOUT_ITSELF = re.compile(
    rb"WARNING: Using incubator modules|Setting default log level|To adjust logging level|Using Spark's default log4j"
)
"""What Spark's Java process says about itself when it starts."""


def start_environment(
    master: str | None, remote: str | None, settings: Sequence[str], *, debug: bool
) -> TableEnvironment:
    """Start Spark (`local[*]` without a master), or connect to a server of Spark Connect. Settings are KEY=VALUE.

    Raises:
        ConfigurationError: If a setting has no value, or the server does not answer.
        DynamicKafkaError: If Java does not start.
        MissingDependencyError: If there is no pyspark, or not what it needs for Spark Connect.
    """
    if not debug:
        warnings.filterwarnings("ignore", module="pyspark")  # about its own libraries
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingDependencyError("pyspark", "spark", "to run SQL") from None
    from dynamic_kafka.sql.environment import TableEnvironment

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    ours = {
        "spark.ui.showConsoleProgress": "false",
        # When a foreachBatch query is stopped, Spark matches a recursive pattern against pages of Python's trace.
        _JAVA_OPTIONS: "-Xss8m" if debug else f'-Xss8m "-Dlog4j2.configurationFile={_NO_LOG}"',
    }
    # A server has its own Java and its own log.
    values = ours if remote is None or remote.startswith("local") else {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigurationError(f"--conf {key} has no value; give it as KEY=VALUE")
        values[key] = value
    # Spark logs pages of Java traces for an error; its reason is shown here.
    if values is ours and (debug or str(_NO_LOG) not in values[_JAVA_OPTIONS]):
        values.setdefault("spark.log.level", "INFO" if debug else "OFF")
    builder = SparkSession.builder.config(map={**values})
    if not debug:
        from pyspark.logger import PySparkLogger

        PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        PySparkLogger.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
        # Ctrl-C between two statements, or an end of Java, may interrupt a call of py4j. It raises an error, and also logs
        # that by the root logger and by its own.
        logging.getLogger().addFilter(lambda record: "while sending command" not in record.getMessage())
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
    if remote is not None:
        return TableEnvironment(_connected(builder.remote(remote), remote))
    builder = builder.appName("dynamic-kafka sql").master(master or "local[*]")
    try:
        if not debug:
            _start_context({"spark.app.name": "dynamic-kafka sql", "spark.master": master or "local[*]", **values})
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise DynamicKafkaError(
            "Spark's Java process did not start. Its output is above. Run 'dynamic-kafka doctor' to check Java"
        ) from error
    context = session.sparkContext
    if str(context.master).startswith("local") and not context.getConf().contains(_PARTITIONS):
        # Spark's default is 200 tasks for each aggregation and join of a micro-batch. A user's --conf is in getConf.
        session.conf.set(_PARTITIONS, str(context.defaultParallelism))
    if not debug:
        session.sparkContext.setLogLevel("OFF")
    if not debug and (server := getattr(session.sparkContext, "_accumulatorServer", None)) is not None:
        # Spark's JVM may cut this connection while it stops; the server's thread would print a traceback.
        server.handle_error = lambda *_: None
    atexit.register(_stop, session)  # otherwise Spark's connections break at the end, one with a traceback
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's handler would also cancel the jobs of INSERTs
    session.sparkContext.setJobGroup(GROUP, "dynamic-kafka sql", interruptOnCancel=True)
    return TableEnvironment(session)


def _start_context(settings: Mapping[str, str]) -> None:
    """Start Spark's Java process and its context, which the session of this process then uses.

    The settings contain its master and the application's name.

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


def _connected(builder: SparkSession.Builder, remote: str) -> SparkSession:
    """Return a session of Spark Connect. Its calls have a tag, so that Ctrl-C can interrupt them."""
    from pyspark.errors import PySparkException

    try:
        if remote.startswith("sc://"):
            _check_answers(remote)
        session = builder.getOrCreate()
        session.addTag(GROUP)
    except ImportError as error:
        raise MissingDependencyError(
            "grpcio", "spark", f"for Spark Connect ({error}): pip install 'pyspark[connect]'"
        ) from None
    except PySparkException as error:
        raise ConfigurationError(f"Spark Connect at {remote}: {str(error).partition(chr(10))[0]}") from error
    atexit.register(_stop, session)
    return session


def _stop(session: SparkSession) -> None:
    with suppress(Exception):  # Java, or the server, may have ended
        session.stop()


@contextmanager
def errors_of_java() -> Iterator[None]:
    """Let one error say that Spark's Java process has ended, in the place of those of all calls to it.

    Raises:
        DynamicKafkaError: If there is an error, and it has ended.
    """
    try:
        yield
    except Exception as error:
        from dynamic_kafka.spark.stop_finished import java_has_ended

        if isinstance(error, DynamicKafkaError) or not java_has_ended():
            raise
        raise DynamicKafkaError(
            "Spark's Java process has ended: it was killed, or out of memory (--conf spark.driver.memory=4g gives it more). "
            "Start again; INSERTs go on from their checkpoints"
        ) from error


def _check_answers(remote: str) -> None:
    """Raise if there is no server: PySpark would try again for minutes, without a word."""
    import grpc  # type: ignore[import-untyped]
    from pyspark.sql.connect.client import DefaultChannelBuilder

    channel = DefaultChannelBuilder(remote).toChannel()
    try:
        grpc.channel_ready_future(channel).result(timeout=_CONNECT_S)
    except grpc.FutureTimeoutError:
        raise ConfigurationError(
            f"No server of Spark Connect has answered at {remote} within {_CONNECT_S:.0f} s. Start it (sbin/"
            "start-connect-server.sh), or give its address with --remote or SPARK_REMOTE"
        ) from None
    finally:
        channel.close()


@contextmanager
def calls_to_spark() -> Iterator[list[int]]:
    """Let Ctrl-C cancel Spark's job, and raise KeyboardInterrupt at the end; a second Ctrl-C raises it at once.

    Raised within a call to Spark, it would break py4j's connection, which logs pages of traces. Yields the signals so far.
    """
    pressed: list[int] = []
    left = threading.Event()
    cancelling = threading.Thread(target=_cancel, args=(connected_session(), left), daemon=True)

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


def connected_session() -> SparkSession | None:
    """Return the session of this thread if it is one of Spark Connect."""
    from pyspark.sql import SparkSession

    from dynamic_kafka.sql.session.connect import is_connect

    session = SparkSession.getActiveSession()
    return session if session is not None and is_connect(session) else None


def _cancel(connected: SparkSession | None, left: threading.Event) -> None:
    """Cancel jobs again and again: a statement may be about to start one."""
    from pyspark import SparkContext

    while not left.is_set():
        with suppress(Exception):  # the session may have stopped
            if connected is None:
                SparkContext.getOrCreate().cancelJobGroup(GROUP)
            else:
                connected.interruptTag(GROUP)
        left.wait(_LOOK_S)
