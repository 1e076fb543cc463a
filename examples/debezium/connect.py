"""Real Debezium: Kafka Connect as a child process, with the connector for PostgreSQL, writing to a real broker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from examples.debezium.postgres import Postgres

from dynamic_kafka.testing import KafkaBroker
from dynamic_kafka.testing.configuration import HOST, free_ports
from dynamic_kafka.testing.jars import find_java

__all__ = ["DEBEZIUM_VERSION", "Connect"]

DEBEZIUM_VERSION = "3.0.8.Final"

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
_JARS = _CACHE / "pyspark-dynamic-kafka" / f"debezium-{DEBEZIUM_VERSION}"
_NAME = "changes"
_FETCH_TIMEOUT_S = 900
_STOP_TIMEOUT_S = 60
_LOG = """\
log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%d %p %c{1} %m%n
"""


class Connect:
    """A standalone worker with one connector, for the length of a `with` block. At its end all read changes are written.

    Its records are those of any Debezium deployment with the JSON converter: the row's key as JSON, the envelope as JSON,
    and a tombstone after each deletion, in a topic `<topic prefix>.<schema>.<table>` with two partitions.

    Args:
        broker: The broker to write to.
        database: The database to follow: the tables of its schema `public`.
        topic_prefix: The first part of all topics' names.
        with_schema: If True, each message contains its schema, as by default in Connect.
    """

    def __init__(self, broker: KafkaBroker, database: Postgres, topic_prefix: str, *, with_schema: bool) -> None:
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._port = next(free_ports())
        schemas = str(with_schema).lower()
        self._worker = {
            "bootstrap.servers": broker.bootstrap_servers,
            "listeners": f"http://{HOST}:{self._port}",
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": "500",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": schemas,
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": schemas,
        }
        self._connector = {
            "name": _NAME,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "database.hostname": database.host,
            "database.port": str(database.port),
            "database.user": "postgres",
            "database.password": "",
            "database.dbname": database.database,
            "topic.prefix": topic_prefix,
            "schema.include.list": "public",
            "plugin.name": "pgoutput",
            "publication.autocreate.mode": "filtered",
            "decimal.handling.mode": "string",  # by default decimals are the Base64 text of their bytes
            "heartbeat.interval.ms": "1000",
            "topic.creation.default.partitions": "2",
            "topic.creation.default.replication.factor": "1",
        }

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="debezium-connect-"))
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def check(self) -> None:
        """Check the worker and the connector.

        Raises:
            RuntimeError: If the worker has ended, or the connector has failed. The error has its log or its trace.
        """
        assert self._process is not None
        if self._process.poll() is not None:
            log = (self._folder / "connect.log").read_text(errors="replace")
            raise RuntimeError(f"Kafka Connect ended. The end of its log:\n{log[-4000:]}")
        for part in self._states():
            if part["state"] == "FAILED":
                raise RuntimeError(f"Debezium failed: {part['trace']}")

    def _states(self) -> list[dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._port}/connectors/{_NAME}/status", timeout=10) as answer:
                status = json.load(answer)
        except OSError:  # Connect does not answer yet, or does not know the connector yet
            return []
        return [status["connector"], *status["tasks"]]

    def _start(self) -> None:
        files = self._folder
        (files / "log4j.properties").write_text(_LOG)
        self._worker["offset.storage.file.filename"] = str(files / "offsets")
        _write(files / "worker.properties", self._worker)
        _write(files / "connector.properties", self._connector)
        command = [find_java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"-Dlog4j.configuration=file:{files / 'log4j.properties'}", "-cp", _class_path()]
        command += ["org.apache.kafka.connect.cli.ConnectStandalone"]
        command += [str(files / "worker.properties"), str(files / "connector.properties")]
        with (files / "connect.log").open("wb") as log:
            self._process = subprocess.Popen(command, cwd=files, stdout=log, stderr=log)


def _write(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))


def _class_path() -> str:
    """Return Debezium's class path. Maven fetches the jars (36 MB) once into a cache folder."""
    if not _JARS.is_dir():
        maven = shutil.which("mvn")
        if maven is None:
            raise RuntimeError(
                "mvn (Maven) is needed to fetch Debezium. Install it with 'apt-get install maven' (Debian)."
            )
        _JARS.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_JARS.parent) as scratch:
            fetched = Path(scratch, "jars")
            command = [maven, "-q", "-B", "-f", str(Path(__file__).with_name("pom.xml"))]
            command += ["dependency:copy-dependencies", f"-DoutputDirectory={fetched}", "-DincludeScope=runtime"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"Maven could not fetch Debezium {DEBEZIUM_VERSION}:\n{done.stdout[-4000:]}")
            fetched.rename(_JARS)  # atomic within a file system, so a folder of this name is complete
    return f"{_JARS}/*"
