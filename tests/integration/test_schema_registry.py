"""`avro-confluent` and the registry's client against a real schema registry: evolution, caching, what goes wrong."""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime as dt
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate
from pyspark.sql import types as spark

from dynamic_kafka.errors import ConfigurationError, RegistryError
from dynamic_kafka.formats import schema_registry, schema_registry_settings
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.avro import confluent as avro_confluent
from dynamic_kafka.formats.avro.schemas import schema_text
from dynamic_kafka.formats.format import ERROR
from dynamic_kafka.formats.schema_registry import RegisteredSchema, Registry
from dynamic_kafka.formats.schema_registry_settings import RegistrySettings
from dynamic_kafka.sql.parser.parse import parse_statement
from dynamic_kafka.sql.parser.statements import CreateTable
from dynamic_kafka.sql.tables.derived import with_registry_columns
from dynamic_kafka.sql.tables.table import table_of
from tests.avro import message, record
from tests.certificates import self_signed
from tests.schema_registry import Proxy, SchemaRegistry, forward

pytestmark = pytest.mark.broker

NAME = "avro-confluent"

ADVICE = "; if producers put schema ids into headers, set 'avro-confluent.schema-id-location' to 'header-or-prefix'"


@pytest.fixture
def subject(request: pytest.FixtureRequest) -> str:
    """A subject of the test's own."""
    return f"{request.node.name}-value"


@pytest.fixture
def settings() -> Iterator[Callable[..., RegistrySettings]]:
    """Settings of options without the format's name; their clients are closed after the test."""
    made: list[RegistrySettings] = []

    def make(url: str, **options: Any) -> RegistrySettings:
        given = {f"{NAME}.{key}": value for key, value in {"url": url, **options}.items()}
        properties = {"retries.wait.ms": "10", **given.pop(f"{NAME}.properties", {})}
        given |= {f"{NAME}.properties.{name}": value for name, value in properties.items()}
        made.append(schema_registry_settings.settings(NAME, given))
        return made[-1]

    yield make
    for cached in (avro_confluent._writer, avro_confluent._plan, avro_confluent._kernel):
        cached.cache_clear()
    for one in made:
        with contextlib.suppress(Exception):
            schema_registry.client(one).close()


def columns(*given: tuple[str, spark.DataType] | tuple[str, spark.DataType, bool]) -> spark.StructType:
    """Columns: name, type, and whether they may be null."""
    return spark.StructType([spark.StructField(*column) for column in given])


def decode(
    where: RegistrySettings, messages: list[bytes | None], schema: spark.StructType, given: str = ""
) -> list[Any]:
    """Rows as tuples, errors as texts, null for null."""
    text = given or schema_text(schema, legacy_timestamps=True)
    array = avro_confluent.batch_decoder(where, text, arrow_type(schema))(pa.array(messages, pa.binary()))
    array.validate(full=True)
    return [row and (row.pop(ERROR) or tuple(row.values())) for row in array.to_pylist()]


def test_writers_of_many_versions_are_read_in_one_batch(
    registry_server: SchemaRegistry, settings: Callable[..., RegistrySettings], subject: str
) -> None:
    """Fields added, removed, moved and promoted, mixed with null, foreign and broken messages; each in its place."""
    where = settings(registry_server.url)
    client = schema_registry.client(where)
    versions = [
        record(("id", "int"), ("name", "string")),
        record(("id", "long"), ("name", "string"), ("score", ["null", "double"], None)),
        record(
            ("extra", {"type": "array", "items": "string"}, []), ("name", ["null", "string"], None), ("id", "long", 0)
        ),
    ]
    ids = [client.register(subject, "AVRO", text) for text in versions]
    assert len(set(ids)) == 3
    schema = columns(("id", spark.LongType(), False), ("name", spark.StringType()), ("score", spark.DoubleType()))
    messages: list[bytes | None] = [
        message(ids[0], versions[0], {"id": 1, "name": "a"}),
        message(ids[1], versions[1], {"id": 2**40, "name": "b", "score": 0.5}),
        None,
        message(ids[2], versions[2], {"extra": ["x", "y"], "name": None, "id": 3}),
        b"\x01" + message(ids[0], versions[0], {"id": 1, "name": "a"})[1:],
        b"\x00\x00",
        message(ids[0], versions[0], {"id": 4, "name": "d"})[:-1],
        message(ids[0], versions[0], {"id": 5, "name": "e"}) + b"!",
        message(ids[0], versions[0], {"id": 6, "name": "f"}),
    ]
    assert decode(where, messages, schema) == [
        (1, "a", None),
        (2**40, "b", 0.5),
        None,
        (3, None, None),
        f"it does not begin with the magic byte 0 of a schema registry's serializer{ADVICE}",
        f"it is too short for the magic byte and a schema id{ADVICE}",
        "it ends within name",
        "bytes are left over behind the record",
        (6, "f", None),
    ]


def test_a_schema_that_does_not_fit_the_columns_fails_the_query(
    registry_server: SchemaRegistry, settings: Callable[..., RegistrySettings], subject: str
) -> None:
    """That is no message's fault: all of a topic would be skipped. A message of another format is one."""
    where = settings(registry_server.url)
    client = schema_registry.client(where)
    good, wrong, other = (
        record(("id", "int")),
        record(("id", "string")),
        'syntax = "proto3"; message M { int32 id = 1; }',
    )
    good_id, wrong_id = client.register(subject, "AVRO", good), client.register(subject, "AVRO", wrong)
    proto_id = client.register(f"{subject}-p", "PROTOBUF", other)
    schema = columns(("id", spark.LongType()))
    messages: list[bytes | None] = [message(good_id, good, {"id": 1}), b"\x00" + proto_id.to_bytes(4, "big")]
    assert decode(where, messages, schema) == [(1,), f"its schema {proto_id} is not an Avro schema, but PROTOBUF"]
    messages.append(message(wrong_id, wrong, {"id": "x"}))
    with pytest.raises(
        ConfigurationError,
        match=f"Schema with id {wrong_id} does not fit the columns: id is written as string and is long here. Change",
    ):
        decode(where, messages, schema)


def test_times_and_decimals_of_other_writers_are_converted(
    registry_server: SchemaRegistry, settings: Callable[..., RegistrySettings], subject: str
) -> None:
    """By the unit and the scale in the writer's schema."""
    where = settings(registry_server.url)
    text = record(
        ("us", {"type": "long", "logicalType": "timestamp-micros"}),
        ("local", {"type": "long", "logicalType": "local-timestamp-millis"}),
        ("amount", {"type": "fixed", "name": "A", "size": 4, "logicalType": "decimal", "precision": 8, "scale": 1}),
    )
    schema_id = schema_registry.client(where).register(subject, "AVRO", text)
    schema = columns(
        ("us", spark.TimestampType()), ("local", spark.TimestampNTZType()), ("amount", spark.DecimalType(10, 2))
    )
    body = b"\x00" + schema_id.to_bytes(4, "big") + b"\x02" + b"\xd0\x0f" + (-15).to_bytes(4, "big", signed=True)
    ((us, local, amount),) = decode(where, [body], schema)
    assert us == dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)
    assert local == dt.datetime(1970, 1, 1, 0, 0, 1)  # noqa: DTZ001
    assert str(amount) == "-1.50"


def test_what_is_written_is_read_by_confluents_own_deserializer(
    registry_server: SchemaRegistry, settings: Callable[..., RegistrySettings], subject: str
) -> None:
    """Header, id and body; the schema is under the subject, once."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    where = settings(registry_server.url)
    schema = columns(("id", spark.LongType(), False), ("name", spark.StringType()))
    text = schema_text(schema, legacy_timestamps=True)
    rows = pa.array([{"id": 1, "name": "x"}, None, {"id": 2, "name": None}], arrow_type(schema))
    messages = avro_confluent.batch_encoder(where, subject, text, schema)(rows).messages.to_pylist()
    assert messages[1] is None
    with SchemaRegistryClient({"url": registry_server.url}) as client:
        read = AvroDeserializer(client)
        assert [read(m, None) for m in (messages[0], messages[2])] == [{"id": 1, "name": "x"}, {"id": 2, "name": None}]
        assert client.get_versions(subject) == [1]
    assert decode(where, messages, schema) == [(1, "x"), None, (2, None)]


def test_nothing_is_registered_for_null_rows_alone(
    registry_server: SchemaRegistry, settings: Callable[..., RegistrySettings], subject: str
) -> None:
    """Deletions need no schema."""
    where = settings(registry_server.url)
    schema = columns(("id", spark.LongType()))
    rows = pa.nulls(3, arrow_type(schema))
    text = schema_text(schema, legacy_timestamps=True)
    assert avro_confluent.batch_encoder(where, subject, text, schema)(rows).messages.to_pylist() == [None] * 3
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{registry_server.url}/subjects/{subject}/versions")


def test_each_schema_is_asked_for_once(proxy: Proxy, settings: Callable[..., RegistrySettings], subject: str) -> None:
    """By each process: reading by id, and writing by subject, over many batches."""
    where = settings(proxy.url)
    schema = columns(("id", spark.LongType()))
    text = schema_text(schema, legacy_timestamps=True)
    rows = pa.array([{"id": n} for n in range(10)], arrow_type(schema))
    for _ in range(5):
        messages = avro_confluent.batch_encoder(where, subject, text, schema)(rows).messages.to_pylist()
    assert len(proxy.calls) == 1
    schema_registry.client(where).close()  # as another process
    for cached in (avro_confluent._writer, avro_confluent._plan, avro_confluent._kernel):
        cached.cache_clear()
    for _ in range(5):
        assert decode(where, messages, schema) == [(n,) for n in range(10)]
    assert len(proxy.calls) == 2
    assert proxy.calls[0].startswith(f"POST /subjects/{urllib.parse.quote(subject, safe='')}/versions")
    assert proxy.calls[1].startswith("GET /schemas/ids/")


def test_many_may_register_the_same_new_schema_at_once(
    registry_server: SchemaRegistry, settings: Callable[..., RegistrySettings], subject: str
) -> None:
    """As the tasks of a new query do; all get the same id."""
    clients = [
        schema_registry.client(settings(registry_server.url, properties={"max.retries": str(n)})) for n in range(8)
    ]
    together = threading.Barrier(len(clients))

    def register(client: Registry, version: int) -> int:
        together.wait()
        return client.register(f"{subject}-{version}", "AVRO", record((f"f{version}", "int")))

    with concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
        for version in range(10):
            assert len(set(pool.map(register, clients, [version] * len(clients)))) == 1


def test_a_table_without_columns_has_those_of_the_latest_schema(
    registry_server: SchemaRegistry, settings: Callable[..., RegistrySettings], subject: str
) -> None:
    """Of Avro, JSON Schema and Protobuf; the subject is that of the topic. A subject that does not exist says so."""
    topic = subject.removesuffix("-value")
    client = schema_registry.client(settings(registry_server.url))
    client.register(f"{topic}-value", "AVRO", record(("id", "long"), ("name", ["null", "string"])))
    client.register(f"{topic}-json-value", "JSON", '{"type": "object", "properties": {"id": {"type": "integer"}}}')
    client.register(f"{topic}-proto-value", "PROTOBUF", 'syntax = "proto3"; message M { repeated int32 a = 1; }')

    def columns(name: str, format_: str) -> list[str]:
        options = f"'topic' = '{name}', 'format' = '{format_}', '{format_}.url' = '{registry_server.url}'"
        kafka = "'connector' = 'kafka', 'properties.bootstrap.servers' = 'k:1', 'properties.group.id' = 'g'"
        statement = parse_statement(f"CREATE TABLE t WITH ({kafka}, {options})")
        assert isinstance(statement, CreateTable)
        table = table_of(with_registry_columns(statement.definition))
        return table.definition.ddl().splitlines()[1 : 1 + len(table.definition.columns)]

    assert columns(topic, "avro-confluent") == ["  `id` BIGINT NOT NULL,", "  `name` STRING"]
    assert columns(f"{topic}-json", "json-schema-confluent") == ["  `id` BIGINT"]
    assert columns(f"{topic}-proto", "protobuf-confluent") == ["  `a` ARRAY<INT>"]
    with pytest.raises(RegistryError, match=r"latest schema of the subject 'no-topic-value', answered status 404"):
        columns("no-topic", "avro-confluent")
    with pytest.raises(ConfigurationError, match="is of type JSON, not AVRO"):
        columns(f"{topic}-json", "avro-confluent")
    client.register(f"{topic}-json-value", "JSON", '{"type": "object", "properties": {"more": {"type": "integer"}}}')
    assert columns(f"{topic}-json", "json-schema-confluent") == ["  `more` BIGINT"]


def test_a_writer_with_new_fields_is_told_once(
    registry_server: SchemaRegistry,
    settings: Callable[..., RegistrySettings],
    subject: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By the table that has the registry's schema. One with columns of its own may leave fields out."""
    where = settings(registry_server.url)
    old, new = record(("id", "long")), record(("id", "long"), ("more", "string"))
    schema_id = schema_registry.client(where).register(subject, "AVRO", new)
    messages: list[bytes | None] = [message(schema_id, new, {"id": 1, "more": "x"})]
    schema = columns(("id", spark.LongType()))
    for _ in range(2):
        assert decode(where, messages, schema, old) == [(1,)]
        assert decode(where, messages, schema) == [(1,)]
    (told,) = caplog.records
    assert told.getMessage().startswith(
        f"Schema with id {schema_id} has fields that the table's schema does not have; they are not read: more."
    )


def test_references_are_followed(
    registry_server: SchemaRegistry, settings: Callable[..., RegistrySettings], subject: str
) -> None:
    """Also through others, each after those it needs."""
    where = settings(registry_server.url)
    client = schema_registry.client(where)
    inner = '{"type":"record","name":"ns.Inner","fields":[{"name":"x","type":"int"}]}'
    middle = '{"type":"record","name":"ns.Middle","fields":[{"name":"i","type":"ns.Inner"}]}'
    outer = (
        '{"type":"record","name":"ns.Outer","fields":[{"name":"m","type":"ns.Middle"},{"name":"i","type":"ns.Inner"}]}'
    )
    client.register(f"{subject}-inner", "AVRO", inner)
    client.register(f"{subject}-middle", "AVRO", middle, [("ns.Inner", f"{subject}-inner", 1)])
    references = [("ns.Middle", f"{subject}-middle", 1), ("ns.Inner", f"{subject}-inner", 1)]
    schema_id = client.register(subject, "AVRO", outer, references)
    client.close()
    found = schema_registry.client(where).schema(schema_id)
    assert found == RegisteredSchema("AVRO", outer, tuple(references))
    assert schema_registry.client(where).references(found) == {"ns.Inner": inner, "ns.Middle": middle}
    nested = spark.StructType([spark.StructField("x", spark.IntegerType())])
    schema = columns(("i", nested), ("m", spark.StructType([spark.StructField("i", nested)])))
    body = b"\x00" + schema_id.to_bytes(4, "big") + b"\x02\x04"
    assert decode(where, [body], schema) == [({"x": 2}, {"i": {"x": 1}})]


def test_an_incompatible_schema_is_refused_with_a_remedy(
    registry_server: SchemaRegistry, settings: Callable[..., RegistrySettings], subject: str
) -> None:
    """The registry's own words are in it."""
    client = schema_registry.client(settings(registry_server.url))
    client.register(subject, "AVRO", record(("id", "int")))
    forward(
        f"{registry_server.url}/config/{urllib.parse.quote(subject, safe='')}", "PUT", b'{"compatibility": "BACKWARD"}'
    )
    with pytest.raises(RegistryError, match="is not compatible with the subject's versions") as caught:
        client.register(subject, "AVRO", record(("id", "string")))
    assert f"under the subject '{subject}'" in str(caught.value)
    assert not caught.value.retriable
    assert client.register(subject, "AVRO", record(("id", "long"))) > 0


def test_without_auto_registration_a_schema_must_be_there(
    registry_server: SchemaRegistry, settings: Callable[..., RegistrySettings], subject: str
) -> None:
    """`auto.register.schemas` as an option, or as a property."""
    known, unknown = record(("id", "int")), record(("id", "long"))
    schema_id = schema_registry.client(settings(registry_server.url)).register(subject, "AVRO", known)
    for where in (
        settings(registry_server.url, **{"auto.register.schemas": False}),
        settings(registry_server.url, properties={"auto.register.schemas": "false"}),
    ):
        assert schema_registry.client(where).register(subject, "AVRO", known) == schema_id
        with pytest.raises(RegistryError, match=r"register it first, or set 'avro-confluent\.auto\.register\.schemas'"):
            schema_registry.client(where).register(subject, "AVRO", unknown)


def test_an_unknown_id_is_the_fault_of_its_message(
    proxy: Proxy, settings: Callable[..., RegistrySettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged message names any schema. It is asked for less and less often, and not at all if no id can be so large."""
    clock = [time.monotonic()]
    monkeypatch.setattr(schema_registry, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    where = settings(proxy.url)
    messages: list[bytes | None] = [b"\x00" + number.to_bytes(4, "big") for number in (99999, 2**31, 2**32 - 1)]
    for _ in range(3):
        rows = decode(where, messages, columns(("id", spark.LongType())))
        assert "asked for the schema with id 99999, answered status 404" in rows[0]
        assert rows[1:] == [
            f"Schema id {number} in the message is too large for any registry (the limit is 2^31-1): the message is damaged "
            "or does not have Confluent's format"
            for number in (2**31, 2**32 - 1)
        ]
    assert len(proxy.calls) == 1
    for passed_s, asked in ((0.4, 1), (0.1, 2), (0.9, 2), (0.1, 3), (2.1, 4), (59, 5), (7.9, 5), (0.2, 6)):
        clock[0] += passed_s
        decode(where, messages, columns(("id", spark.LongType())))
        assert len(proxy.calls) == asked


def test_only_so_many_unknown_ids_are_kept(
    proxy: Proxy, settings: Callable[..., RegistrySettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest goes first."""
    monkeypatch.setattr(schema_registry, "_MOST_UNKNOWN", 2)
    client = schema_registry.client(settings(proxy.url))
    for number in (90001, 90002, 90003, 90003, 90002, 90001):
        with pytest.raises(RegistryError) as caught:
            client.schema(number)
        assert caught.value.not_found
    assert [int(request.rpartition("/")[2]) for request in proxy.calls] == [90001, 90002, 90003, 90001]


@pytest.mark.parametrize("path", ["/wrong", "/../../nothing"])
def test_a_wrong_path_is_no_messages_fault(
    registry_server: SchemaRegistry, settings: Callable[..., RegistrySettings], path: str
) -> None:
    """Else all of a topic would be skipped; the URL is told."""
    where = settings(registry_server.url.replace("http://", "http://me:hunter2@") + path)
    said = r"registry http://\*\*\*@127.*status 404.*; this is not a schema registry"
    with pytest.raises(RegistryError, match=said) as caught:
        decode(where, [b"\x00\x00\x00\x00\x01"], columns(("id", spark.LongType())))
    assert not caught.value.not_found
    assert "hunter2" not in str(caught.value)


def test_a_proxys_404_is_no_messages_fault(proxy: Proxy, settings: Callable[..., RegistrySettings]) -> None:
    """It is no JSON; the next call asks again."""
    client = schema_registry.client(settings(proxy.url))
    proxy.failures = [404] * 2
    for _ in range(2):
        with pytest.raises(RegistryError, match="this is not a schema registry") as caught:
            client.schema(1)
        assert not caught.value.not_found
    assert len(proxy.calls) == 2


def test_a_registry_that_is_down_is_told_soon_and_retriable(settings: Callable[..., RegistrySettings]) -> None:
    """After the library's retries; the URL is shown without its login."""
    where = settings("http://me:hunter2@127.0.0.1:1", properties={"max.retries": "2"})
    begin = time.monotonic()
    with pytest.raises(RegistryError, match=r"http://\*\*\*@127\.0\.0\.1:1, asked for the schema with id 1") as caught:
        schema_registry.client(where).schema(1)
    assert time.monotonic() - begin < 10
    assert caught.value.retriable
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(schema_registry.client(where))


def test_passing_failures_are_retried_and_lasting_ones_told(
    proxy: Proxy, settings: Callable[..., RegistrySettings], subject: str
) -> None:
    """503 three times is survived; four times is an error, and the next call asks again."""
    client = schema_registry.client(settings(proxy.url))
    proxy.failures = [503] * 3
    schema_id = client.register(subject, "AVRO", record(("id", "int")))
    client.close()
    client = schema_registry.client(settings(proxy.url))
    proxy.failures = [503] * 4
    with pytest.raises(RegistryError, match="answered status 503") as caught:
        client.schema(schema_id)
    assert caught.value.retriable
    assert client.schema(schema_id).type == "AVRO"


@pytest.mark.parametrize(
    ("options", "authorization"),
    [
        (
            {"basic-auth.credentials-source": "USER_INFO", "basic-auth.user-info": "${env:REGISTRY_LOGIN}"},
            "Basic bWU6YTpi",
        ),
        ({"basic-auth.user-info": "me:a:b"}, "Basic bWU6YTpi"),
        (
            {"bearer-auth.credentials-source": "STATIC_TOKEN", "bearer-auth.token": "${env:REGISTRY_TOKEN}"},
            "Bearer tok",
        ),
        ({"bearer-auth.token": "tok"}, "Bearer tok"),
    ],
)
def test_logins_are_sent(
    proxy: Proxy,
    settings: Callable[..., RegistrySettings],
    monkeypatch: pytest.MonkeyPatch,
    subject: str,
    options: dict[str, str],
    authorization: str,
) -> None:
    """By password or token, given or referred to."""
    monkeypatch.setenv("REGISTRY_LOGIN", "me:a:b")
    monkeypatch.setenv("REGISTRY_TOKEN", "tok")
    proxy.authorization = authorization
    assert schema_registry.client(settings(proxy.url, **options)).register("login", "AVRO", record(("id", "int"))) > 0


def test_a_wrong_login_is_told_and_a_rotated_one_counts(
    proxy: Proxy, settings: Callable[..., RegistrySettings], tmp_path: Path, subject: str
) -> None:
    """Without the secret, and with the options to look at; the file is read again for the next try."""
    secret = tmp_path / "login"
    secret.write_text("me:hunter2")
    proxy.authorization = "Basic bWU6bmV3"
    where = settings(proxy.url, **{"basic-auth.user-info": f"${{file:{secret}}}"})
    with pytest.raises(RegistryError, match=r"status 401; check 'avro-confluent\.basic-auth\.\*'") as caught:
        schema_registry.client(where).register(subject, "AVRO", record(("id", "int")))
    assert "hunter2" not in str(caught.value)
    secret.write_text("me:new")
    assert schema_registry.client(where).register(subject, "AVRO", record(("id", "int"))) > 0


def test_tls_with_a_trust_store_and_a_client_certificate(
    proxy: Proxy, settings: Callable[..., RegistrySettings], tmp_path: Path, subject: str
) -> None:
    """Java's stores by Flink's options; without the trust store nothing is said to the server."""
    certificate, key, _ = self_signed()
    pair, chain, store = tmp_path / "pair.pem", tmp_path / "chain.pem", tmp_path / "store.p12"
    pair.write_bytes(key + certificate)
    chain.write_bytes(certificate)
    private, public = load_pem_private_key(key, None), load_pem_x509_certificate(certificate)
    assert isinstance(private, EllipticCurvePrivateKey)
    password = BestAvailableEncryption(b"changeit")
    store.write_bytes(serialize_key_and_certificates(b"me", private, public, None, password))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    context.load_verify_locations(chain)
    context.verify_mode = ssl.CERT_REQUIRED
    proxy.secure(context)
    url = proxy.url
    options = {
        "ssl.truststore.location": str(chain),
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": "changeit",
    }
    assert schema_registry.client(settings(url, **options)).register(subject, "AVRO", record(("id", "int"))) > 0
    with pytest.raises(RegistryError, match="CERTIFICATE_VERIFY_FAILED"):
        schema_registry.client(settings(url, properties={"max.retries": "0"})).schema(1)
    given = {"ssl.truststore.location": str(chain), "properties": {"max.retries": "0"}}
    with pytest.raises(RegistryError, match="did not answer"):
        schema_registry.client(settings(url, **given)).schema(1)


def test_a_client_is_one_for_equal_settings(
    registry_server: SchemaRegistry, settings: Callable[..., RegistrySettings]
) -> None:
    """Until it is closed."""
    first = schema_registry.client(settings(registry_server.url))
    assert isinstance(first, Registry)
    assert schema_registry.client(settings(registry_server.url)) is first
    first.close()
    assert schema_registry.client(settings(registry_server.url)) is not first
