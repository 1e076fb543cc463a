"""A program with secrets in every place runs, fails and is looked at; then everything that it left behind is searched.

Searched are its checkpoints, Spark's event log, plans, logs at debug level, errors, the progress of queries, temporary and
local folders, and all records of its transaction log.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from dynamic_kafka.testing import KafkaBroker, produce
from dynamic_kafka.testing.configuration import plain_login_module
from tests.brokers import to_the_end
from tests.schema_registry import SchemaRegistry
from tests.web import WebServer

pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

SECRETS = {
    name: f"S3cr3t.{name}.{'qW7'[:2]}x9"
    for name in (
        "in-a-file",
        "in-the-environment",
        "in-the-document",
        "in-an-option",
        "in-ddl",
        "of-the-http-service",
        "of-the-registry",
        "of-a-store",
        "wrong",
        "misspelt",
        "of-a-command",
    )
}
STORES = Path(__file__).parents[1] / "stores"


@pytest.fixture(scope="module", name="logins")
def _logins() -> Iterator[KafkaBroker]:
    """A cluster where each secret is a password of a user with the secret's name."""
    with KafkaBroker(sasl_plain=dict(SECRETS)) as broker:
        yield broker


@pytest.fixture(scope="module", name="left")
def _left(logins: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with all that the program left behind; its inputs are elsewhere."""
    given, left = tmp_path_factory.mktemp("given"), tmp_path_factory.mktemp("left")
    for name in ("events", "tmp", "local", "home", "checkpoints"):
        (left / name).mkdir()
    with ExitStack() as stack:
        plain = stack.enter_context(KafkaBroker())
        registry = stack.enter_context(SchemaRegistry())
        for broker in (logins, plain):
            broker.create_topic("orders", partitions=2)
            produce(broker.internal_address, "orders", [("k", "v")] * 10)
        logins.create_topic("copy")
        logins.create_topic("table")
        document, login = _document(logins, plain, given).encode(), f"Bearer {SECRETS['of-the-http-service']}"
        server = stack.enter_context(
            WebServer(lambda r: (200, {}, document) if r.headers.get("authorization") == login else (401, {}, b"no"))
        )
        job = _job(logins, plain, registry, given, f"{server.url}/streams.yaml")
        (given / "job.json").write_text(json.dumps(job))
        environment = {
            **os.environ,
            "TOKEN": SECRETS["of-the-http-service"],
            "PASSWORD": SECRETS["in-the-environment"],
            "TMPDIR": str(left / "tmp"),
            "SPARK_LOCAL_DIRS": str(left / "local"),
            "HOME": str(left / "home"),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
        }
        with (left / "output.log").open("wb") as output:
            ended = subprocess.run(
                [sys.executable, "-m", "tests.spark.secrets_driver", str(given / "job.json")],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=left,
                env=environment,
                timeout=500,
                check=False,
            )
        _dump_internal_topics(logins, left / "log-records")
    shown = (left / "output.log").read_text(errors="replace")
    assert ended.returncode == 0, shown[-6000:]
    for part in ("_streams", "_sql", "_failures", "_tools"):
        assert f"--- {part} done" in shown
    return left


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_is_left_behind(left: Path, name: str) -> None:
    """Neither as it is nor in another spelling, in no file at all."""
    spellings = _spellings(SECRETS[name])
    found = []
    for path in sorted(left.rglob("*")):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            for spelling in spellings:
                at = content.find(spelling)
                if at >= 0:
                    context = content[max(0, at - 200) : at + 60].decode(errors="replace")
                    found.append(f"{path.relative_to(left)}: {context}")
    assert not found, "\n\n".join(found[:5])


def test_what_is_searched_holds_what_it_should(left: Path) -> None:
    """There are checkpoints, an event log, errors and records of the transaction log, or the search proves nothing."""
    shown = (left / "output.log").read_text(errors="replace")
    assert (left / "log-records").read_bytes()
    assert list(left.glob("events/*/*")) or list(left.glob("events/*"))
    assert list(left.glob("checkpoints/*/offsets/0"))
    assert "refuses the login" in shown
    assert re.search(r"dynamic-kafka", shown)
    assert "DEBUG:dynamic_kafka" in shown
    assert "dynamic_kafka_source_current_offset{" in shown
    assert '"cluster": "logins-in-a-file"' in shown
    assert "no positions" not in shown


def _job(logins: KafkaBroker, plain: KafkaBroker, registry: SchemaRegistry, given: Path, url: str) -> dict[str, object]:
    """What the program does."""
    document, secret_file = given / "streams.yaml", given / "secret"
    document.write_text(_document(logins, plain, given))
    servers = logins.bootstrap_servers

    def login(user: str, password: str | None = None) -> dict[str, str]:
        given_password = SECRETS[user] if password is None else password
        return {
            "kafka.bootstrap.servers": servers,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": plain_login_module({"username": user, "password": given_password}),
        }

    sink = login("in-an-option") | {
        "topic": "copy",
        "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": "copies",
    }
    quick = {"kafka.default.api.timeout.ms": "8000"}
    common = {
        "startingOffsets": "earliest",
        "metadata-service.allowed-references": f"env:PASSWORD;file:{document.parent}/*",
    }
    by_file = {"metadata-service": "file", "metadata-service.path": str(document), **common}
    by_http = {"metadata-service": "http", "metadata-service.url": url, **common}
    token = {"metadata-service.auth-header": "Bearer ${env:TOKEN}"}
    table = f"""CREATE TABLE t (a BIGINT, b STRING) WITH (
      'connector' = 'kafka', 'topic' = 'table', 'properties.bootstrap.servers' = '{servers}',
      'properties.security.protocol' = 'SASL_PLAINTEXT', 'properties.sasl.mechanism' = 'PLAIN',
      'properties.sasl.jaas.config' = '{plain_login_module({"username": "in-ddl", "password": SECRETS["in-ddl"]})}',
      'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'format' = 'avro-confluent',
      'avro-confluent.url' = '{registry.url}', 'avro-confluent.basic-auth.credentials-source' = 'USER_INFO',
      'avro-confluent.basic-auth.user-info' = 'me:{SECRETS["of-the-registry"]}')"""
    keystore = {"kafka.security.protocol": "SSL", "kafka.bootstrap.servers": servers} | {
        "kafka.ssl.keystore.location": str(STORES / "client.jks"),
        "kafka.ssl.keystore.password": SECRETS["of-a-store"],
    }
    script = given / "script.sql"
    script.write_text(f"{table.replace('TABLE t', 'TABLE u')};\nSHOW CREATE TABLE u;\nSELECT no_such_column FROM u;\n")
    connection = ["--bootstrap-servers", servers, "--property", "security.protocol=SASL_PLAINTEXT"]
    connection += ["--property", "sasl.mechanism=PLAIN", "--property", "sasl.username=of-a-command"]
    right = [*connection, "--property", f"sasl.password={SECRETS['of-a-command']}"]
    wrong = [*connection, "--property", f"sasl.password={SECRETS['wrong']}", "--timeout", "5"]
    return {
        "sources": [
            by_file | {"stream-ids": "orders", "metrics.port": "0"},
            by_file | {"stream-ids": "more"},
            by_http | token | {"stream-ids": "others"},
        ],
        "sink": sink,
        "statements": [
            table,
            "SHOW CREATE TABLE t",
            "DESCRIBE t",
            "SET 'execution.runtime-mode' = 'batch'",
            "INSERT INTO t VALUES (1L, 'x'), (2L, 'y')",
            "SELECT * FROM t",
            "EXPLAIN SELECT * FROM t WHERE a > 1",
        ],
        "query": "SELECT * FROM t",
        "failures": [
            ("read", login("in-an-option", SECRETS["wrong"]) | quick | {"subscribe": "orders"}),
            ("stream", login("in-an-option", SECRETS["wrong"]) | quick | {"subscribe": "orders"}),
            ("write", login("in-an-option", SECRETS["wrong"]) | quick | {"topic": "copy"}),
            ("write", login("in-an-option", SECRETS["wrong"]) | quick | sink | login("in-an-option", SECRETS["wrong"])),
            ("read", keystore | {"subscribe": "orders"}),
            ("read", login("in-an-option") | {"subscribe": "orders", "kafka.sasl.passwrd": SECRETS["misspelt"]}),
            ("read", login("in-an-option") | {"subscribe": "orders", "pasword": SECRETS["misspelt"]}),
            ("read", login("in-an-option") | {"subscribe": "no-such-topic"}),
            (
                "read",
                by_http | {"stream-ids": "others", "metadata-service.auth-header": f"Bearer {SECRETS['misspelt']}"},
            ),
            ("read", by_http | {"stream-ids": "others"}),
            ("read", by_file | {"stream-ids": "others", "metadata-service.path": str(secret_file)}),
        ],
        "wrong statements": [table.replace("avro-confluent.url", "avro-confluent.ulr").replace("in-ddl", "wrong")],
        "commands": [
            ["transactions", "list", "--all", *right],
            ["transactions", "list", "--all", "--debug", *right],
            ["transactions", "list", "--all", *wrong],
            ["transactions", "list", "--all", "--debug", *wrong],
            ["transactions", "list", "--all", f"--sasl.password={SECRETS['misspelt']}", *right],
            ["sql", "--file", str(script)],
            ["doctor", *right, "--topic", "orders"],
            ["doctor", *wrong, "--debug"],
            [
                "doctor",
                *_as_options(login("of-a-command") | {"subscribe": "orders", "kafka.pasword": SECRETS["misspelt"]}),
            ],
            ["offsets", "show", "checkpoints/more-file", "--output", "json"],
            ["offsets", "export", "checkpoints/more-file"],
            ["lag", "checkpoints/more-file", *_as_options(by_file | {"stream-ids": "more"})],
            ["lag", "checkpoints/more-file", "--debug"],
            ["streams", *_as_options(by_file)],
            ["streams", *_as_options(by_http | token), "--output", "json"],
            ["streams", "validate", str(document)],
            ["tail", *right, "--topic", "orders", "--from", "earliest", "-n", "2", "--wait", "5"],
            ["tail", *wrong, "--topic", "orders", "--debug"],
        ],
    }


def _as_options(options: dict[str, str]) -> list[str]:
    return [word for key, value in options.items() for word in ("-o", f"{key}={value}")]


def _document(logins: KafkaBroker, plain: KafkaBroker, given: Path) -> str:
    """A stream over clusters that are one: the same login by a reference to a file, to the environment, and in the text."""
    secret_file = given / "secret"
    secret_file.write_text(f"{SECRETS['in-a-file']}\n")
    passwords = {
        "in-a-file": f"${{file:{secret_file}}}",
        "in-the-environment": "${env:PASSWORD}",
        "in-the-document": SECRETS["in-the-document"],
    }
    streams = []
    for stream, users in (("orders", ["in-a-file"]), ("others", ["in-the-environment"]), ("more", ["in-the-document"])):
        secured = [
            {
                "clusterId": f"logins-{user}",
                "bootstrapServers": logins.bootstrap_servers,
                "topics": ["orders"],
                "properties": {
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "PLAIN",
                    "sasl.jaas.config": plain_login_module({"username": user, "password": passwords[user]}),
                },
            }
            for user in users
        ]
        open_to_all = {"clusterId": "plain", "bootstrapServers": plain.bootstrap_servers, "topics": ["orders"]}
        streams.append({"streamId": stream, "clusterMetadataList": [*secured, open_to_all]})
    return json.dumps(streams)


def _dump_internal_topics(broker: KafkaBroker, to: Path) -> None:
    """Write all records of the commit logs, as bytes."""
    servers = broker.internal_address
    found = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=20).topics
    parts = [TopicPartition(topic, 0, 0) for topic in found if topic.startswith("__dynamic-kafka")]
    assert parts
    with to.open("wb") as output:
        for message in to_the_end(servers, parts, **{"isolation.level": "read_uncommitted"}):
            output.write((message.key() or b"") + b"\n" + (message.value() or b"") + b"\n")


def _spellings(secret: str) -> set[bytes]:
    """The secret as text, in UTF-16, in a URL, in hexadecimal, and within base64 wherever it begins."""
    raw = secret.encode()
    spellings = {raw, secret.encode("utf-16-le"), secret.encode("utf-16-be"), raw.hex().encode()}
    spellings.add(urllib.parse.quote(secret, safe="").encode())
    for before in range(3):
        encoded = base64.b64encode(b"x" * before + raw)
        spellings.add(encoded[4 if before else 0 : len(encoded) - 4])  # what does not depend on its neighbours
    return spellings
