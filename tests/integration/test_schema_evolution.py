"""The option `schema-evolution` with a real registry and a real broker: what is new, what is not, and what is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from dynamic_kafka import read_arrow
from dynamic_kafka.errors import ConfigurationError, RegistryError, SchemaEvolutionError
from dynamic_kafka.formats import schema_registry, schema_registry_settings
from dynamic_kafka.testing import KafkaBroker, produce
from tests.avro import message, record
from tests.schema_registry import Proxy, SchemaRegistry

pytestmark = pytest.mark.broker

PROTO = 'syntax = "proto3"; message Order {{ int64 id = 1; {} }}'
JSON_ID = {"id": {"type": "integer"}}


class World:
    """A topic with values in a format, and the registry with the subject of the topic.

    Args:
        broker: The broker.
        topic: The topic.
        url: The registry's URL.
        form: The format.
    """

    def __init__(self, broker: KafkaBroker, topic: str, url: str, form: str = "avro-confluent") -> None:
        self.broker, self.topic, self.url, self.form = broker, topic, url, form
        self.subject = f"{topic}-value"
        settings = schema_registry_settings.settings(form, {f"{form}.url": url})
        self.registry = schema_registry.client(settings)
        self.type = "AVRO" if "avro" in form else "PROTOBUF" if "protobuf" in form else "JSON"

    def register(self, schema: str, subject: str | None = None) -> int:
        """Register a version; gives its id."""
        return self.registry.register(subject or self.subject, self.type, schema)

    def send(self, *messages: bytes, **more: Any) -> None:
        """Add values."""
        produce(self.broker.bootstrap_servers, self.topic, [(None, m) for m in messages], **more)

    def reader(self, columns: pa.Schema | None = None, **more: str) -> pa.RecordBatchReader:
        """A query that is planned now, and reads when it is read."""
        options = {"kafka.bootstrap.servers": self.broker.bootstrap_servers, "subscribe": self.topic}
        own = {"url": self.url, "schema-evolution": "fail"} | {k.replace("_", "-"): v for k, v in more.items()}
        options |= {"value.format": self.form} | {f"value.{self.form}.{name}": text for name, text in own.items()}
        return read_arrow(options, ["value"] if columns is None else columns)


def ids(reader: pa.RecordBatchReader) -> list[int]:
    """The ids in the values."""
    return [value["id"] for value in reader.read_all()["value"].to_pylist()]


@pytest.fixture
def world(cluster_a: KafkaBroker, topic: Callable[..., str], registry_server: SchemaRegistry) -> World:
    """A topic of the test's own, with Avro."""
    return World(cluster_a, topic(cluster_a), registry_server.url)


@pytest.mark.parametrize(
    ("form", "old", "new", "messages"),
    [
        (
            "protobuf-confluent",
            PROTO.format(""),
            PROTO.format("string more = 2;"),
            (b"\0\x08\x01", b"\0\x08\x02\x12\x01x"),
        ),
        (
            "json-schema-confluent",
            json.dumps({"type": "object", "properties": JSON_ID}),
            json.dumps({"type": "object", "properties": {**JSON_ID, "more": {"type": "string"}}}),
            (b'{"id": 1}', b'{"id": 2, "more": "x"}'),
        ),
    ],
)
def test_a_new_field_ends_the_query_and_the_next_one_reads_it(
    cluster_a: KafkaBroker,
    topic: Callable[..., str],
    registry_server: SchemaRegistry,
    form: str,
    old: str,
    new: str,
    messages: tuple[bytes, bytes],
) -> None:
    """Also where a message that cannot be read is skipped. `ignore` reads the message without the field."""
    world = World(cluster_a, topic(cluster_a), registry_server.url, form)
    first = world.register(old).to_bytes(4, "big")
    world.send(b"\0" + first + messages[0])
    assert ids(world.reader()) == [1]
    query, ignoring = world.reader(ignore_parse_errors="true"), world.reader(schema_evolution="ignore")
    second = world.register(new)
    world.send(b"\0" + first + messages[0], b"\0" + second.to_bytes(4, "big") + messages[1])
    with pytest.raises(SchemaEvolutionError) as caught:
        ids(query)
    told = caught.value
    assert (told.cluster_id, told.topic, told.partition, told.offset) == ("kafka", world.topic, 0, 2)
    assert (told.subject, told.schema_id, told.fields) == (world.subject, str(second), ("more",))
    assert (
        f"version 2 of the subject '{world.subject}', which has the new fields more; the query was planned with"
        in str(told)
    )
    assert f"Set 'value.{form}.schema-evolution' to 'ignore'" in str(told)
    assert ignoring.read_all()["value"].to_pylist()[2] == {"id": 2}
    found = world.reader().read_all()["value"].to_pylist()
    assert [value["more"] for value in found] == [None, None, "x"]


NESTED = {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "long"}]}
RENAMED = {"type": "record", "name": "Inner", "fields": [{"name": "m", "type": "long", "default": 0}]}
OLD = (("id", "long"), ("inner", NESTED), ("list", {"type": "array", "items": "Inner"}))


@pytest.mark.parametrize(
    ("new", "fields"),
    [
        ((*OLD, ("a", "long"), ("b", NESTED["name"])), ("a", "b", "b.n")),
        (
            (("id", "long"), ("inner", {**NESTED, "fields": [*NESTED["fields"], *RENAMED["fields"]]}), OLD[2]),
            ("inner.m", "list.m"),
        ),
        ((("id", "long"), ("inner", NESTED)), None),  # a field was removed
        ((("id", "int"), *OLD[1:]), None),  # a type that is promoted
        ((*OLD[:2], ("list", {"type": "array", "items": "Inner"}, [])), None),  # a default
        ((*OLD, ("u", ["string", "long"])), ()),  # no column
    ],
)
def test_what_is_new_in_a_version(world: World, new: tuple[Any, ...], fields: tuple[str, ...] | None) -> None:
    """Fields by their paths, in records and arrays; a version without new fields is read."""
    value = {"id": 1, "inner": {"n": 1, "m": 2}, "list": [], "a": 1, "b": {"n": 1}, "u": "x"}
    old, schema = record(*OLD), record(*new)
    # A field that is removed is read as the default of the query's own schema.
    old = old.replace('"name": "list", "type"', '"name": "list", "default": [], "type"')
    world.register(old)
    query = world.reader()
    world.send(message(world.register(schema), schema, value))
    if fields is None:
        assert ids(query) == [1]
        return
    with pytest.raises(SchemaEvolutionError) as caught:
        ids(query)
    assert caught.value.fields == fields
    assert fields or "which cannot become columns (Field 'u' of the schema is a union" in str(caught.value)


def test_what_is_not_compared(world: World) -> None:
    """Earlier versions and schemas that the subject does not have: a new start would not read more of them."""
    versions = [record(("id", "long"), ("gone", "long")), record(("id", "long"))]
    first, second = map(world.register, versions)
    other = record(("id", "long"), ("else", "long"), name="Other")
    elsewhere = world.register(other, f"{world.topic}-Other")
    value = {"id": 1, "gone": 2, "else": 3}
    world.send(
        message(first, versions[0], value), message(second, versions[1], value), message(elsewhere, other, value)
    )
    assert ids(world.reader()) == [1, 1, 1]
    world.send(message(2**30, other, value))
    with pytest.raises(Exception, match=f"schema with id {2**30}.*answered status 404"):
        ids(world.reader())


def test_fields_that_a_user_has_left_out_are_not_new(world: World) -> None:
    """The columns are the user's: new is what the registry did not have when the query was planned."""
    known = record(("id", "long"), ("unwanted", "long"))
    columns = pa.schema([("value", pa.struct([("id", pa.int64())]))])
    value = {"id": 1, "unwanted": 2, "more": 3}
    world.send(message(world.register(known), known, value))
    query, at_first = world.reader(columns), world.reader(columns, schema_version="1")
    assert ids(world.reader(columns)) == [1]
    newer = record(("id", "long"), ("unwanted", "long"), ("more", "long"))
    world.send(message(world.register(newer), newer, value))
    for planned in (query, at_first, world.reader(columns, schema_version="1")):
        with pytest.raises(SchemaEvolutionError, match="has the new fields more; the query was planned with version 1"):
            ids(planned)
    assert ids(world.reader(columns)) == [1, 1]  # the user has seen it


def test_ids_in_headers_are_compared(world: World) -> None:
    """As those before messages."""
    old, new = record(("id", "long")), record(("id", "long"), ("more", "long"))
    world.register(old)
    query = world.reader(schema_id_location="header-or-prefix")
    sent = message(world.register(new), new, {"id": 1, "more": 2})
    world.send(sent[5:], headers=[("__value_schema_id", sent[:5])])
    with pytest.raises(SchemaEvolutionError, match="has the new fields more"):
        ids(query)


def test_changes_are_compared_by_their_rows(
    cluster_a: KafkaBroker, topic: Callable[..., str], registry_server: SchemaRegistry
) -> None:
    """Debezium adds fields to `source` with its versions; they are no columns."""
    world = World(cluster_a, topic(cluster_a), registry_server.url, "debezium-avro-confluent")

    def envelope(row: str, *source: tuple[str, Any, Any]) -> str:
        return record(
            ("before", ["null", json.loads(row)], None),
            ("after", ["null", "Order"], None),
            ("source", json.loads(record(("table", "string"), *source, name="Source"))),
            ("op", "string"),
            name="Envelope",
        )

    old, new = record(("id", "long")), record(("id", "long"), ("more", "long"))
    schemas = [envelope(old), envelope(old, ("ts_us", "long", 0)), envelope(new)]
    change = {"before": None, "after": {"id": 1, "more": 2}, "source": {"table": "t", "ts_us": 3}, "op": "c"}
    first, second = (world.register(schema) for schema in schemas[:2])
    query = world.reader(schema_version="1")
    world.send(message(first, schemas[0], change), message(second, schemas[1], change))
    assert len(query.read_all()) == 2
    query = world.reader()
    world.send(message(world.register(schemas[2]), schemas[2], change))
    with pytest.raises(SchemaEvolutionError) as caught:
        query.read_all()
    assert caught.value.fields == ("more",)


@pytest.mark.parametrize(
    ("more", "error", "text"),
    [
        ((), ConfigurationError, "does not fit the columns: id is written as string and is long here"),
        ((("more", "long"),), SchemaEvolutionError, "has the new fields more"),
    ],
)
def test_a_changed_type_ends_the_query(
    world: World, more: tuple[tuple[str, str], ...], error: type[Exception], text: str
) -> None:
    """If it cannot be read as the column, whatever the option is; a new field besides is told."""
    new = record(("id", "string"), *more)
    world.register(record(("id", "long")))
    query = world.reader()
    world.send(message(world.register(new), new, {"id": "x", "more": 1}))
    with pytest.raises(error, match=text):
        ids(query)


def test_a_registry_that_is_down_fails_the_query(world: World) -> None:
    """At the start, and at a schema that is not known yet: what is not known is not taken for old."""
    old, new = record(("id", "long")), record(("id", "long"), ("more", "long"))
    first = world.register(old)
    fast = {"properties.max.retries": "0"}
    with Proxy(world.url) as proxy:
        world.url = proxy.url
        query = world.reader(**fast)
        world.send(message(first, old, {"id": 1}))
        proxy.failures = [500] * 9
        with pytest.raises(RegistryError, match="answered status 500"):
            ids(query)
        with pytest.raises(RegistryError, match="asked for the latest schema"):
            world.reader(pa.schema([("value", pa.struct([("id", pa.int64())]))]), **fast)
        proxy.failures = []
        world.send(message(world.register(new), new, {"id": 1, "more": 2}))
        with pytest.raises(SchemaEvolutionError):
            ids(world.reader(schema_version="1", **fast))
