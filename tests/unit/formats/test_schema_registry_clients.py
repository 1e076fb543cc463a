"""Clients of a schema registry are kept as other clients are."""

from __future__ import annotations

import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference
from tests.web import WebServer

from dynamic_kafka.errors import ConfigurationError, RegistryError
from dynamic_kafka.formats import schema_registry
from dynamic_kafka.formats.schema_registry_settings import RegistrySettings


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    """No client is kept before or after a test."""
    schema_registry._registries.close()
    yield
    schema_registry._registries.close()


def settings(**properties: str) -> RegistrySettings:
    """Where no registry is."""
    given = tuple(sorted({"max.retries": "0", **properties}.items()))
    return RegistrySettings("avro-confluent", "http://127.0.0.1:1", given, auto_register=True)


def test_one_for_each_settings() -> None:
    """Any number of users have it at once."""
    client = schema_registry.client(settings())
    assert schema_registry.client(settings()) is client
    assert schema_registry.client(settings(**{"retries.wait.ms": "10"})) is not client
    assert len(schema_registry._registries) == 2


def test_a_changed_secret_makes_another_client(tmp_path: Path) -> None:
    """References are looked up each time."""
    secret = tmp_path / "login"
    secret.write_text("me:old")
    where = settings(**{"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": f"${{file:{secret}}}"})
    client = schema_registry.client(where)
    assert schema_registry.client(where) is client
    secret.write_text("me:new")
    assert schema_registry.client(where) is not client


@pytest.mark.parametrize("name", ["ssl.truststore.location", "ssl.keystore.location", "ssl.ca.location"])
def test_an_error_shows_the_reference_of_a_wrong_value(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be that of a secret, in the wrong place."""
    monkeypatch.setenv("DK_SECRET", "hunter2-SECRET")
    with pytest.raises(ConfigurationError) as caught:
        schema_registry.client(settings(**{name: "${env:DK_SECRET}"})).schema(1)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_it_is_not_kept_for_ever() -> None:
    """A client that is not used is closed; whoever still has it can use it on."""
    client = schema_registry.client(settings())
    schema_registry._registries.close()
    assert client._client is None
    assert schema_registry.client(settings()) is not client
    for _ in range(2):
        with pytest.raises(RegistryError, match="did not answer"):
            client.schema(1)
    assert client._client is not None
    client.close()


def serving(status: int, headers: dict[str, str], body: bytes) -> WebServer:
    """A server with one answer."""
    return WebServer(lambda _: (status, headers, body))


def ask(url: str) -> str:
    """The error for a schema of the registry at an address."""
    login = {"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": "me:s3cret"}
    given = tuple(sorted({"max.retries": "0", **login}.items()))
    client = schema_registry.client(RegistrySettings("avro-confluent", url, given, auto_register=True))
    with pytest.raises(RegistryError) as caught:
        client.schema(1)
    client.close()
    return str(caught.value)


def test_a_redirect_is_never_followed() -> None:
    """The login would go to another host."""
    with serving(200, {}, b"{}") as elsewhere, serving(302, {"Location": elsewhere.url}, b"") as registry:
        message = ask(registry.url)
    assert "status 302" in message
    assert "redirects are not followed, because the login must not go elsewhere" in message
    assert elsewhere.requests == []


def test_an_answer_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it says so in advance or not; a worker's memory is not for a registry to fill."""
    monkeypatch.setattr(schema_registry, "_MAX_BYTES", 1024 * 1024)
    body = b'{"schema": "' + b" " * 1024 * 1024 + b'"}'
    for headers in ({}, {"Content-Length": ""}):
        with serving(200, headers, body) as registry:
            assert "the answer is larger than 1 MiB" in ask(registry.url)


def test_a_guid_is_asked_for_at_its_own_path() -> None:
    """A registry before Confluent's 8.0 does not have that path, which says nothing about the message."""
    guid = uuid.UUID(int=1)
    body = b'{"schemaType": "JSON", "schema": "{}", "guid": "00000000-0000-0000-0000-000000000001"}'
    with serving(200, {}, body) as registry:
        client = schema_registry.client(RegistrySettings("avro-confluent", registry.url, (), auto_register=True))
        assert client.schema(guid) == client.schema(guid) == schema_registry.RegisteredSchema("JSON", "{}")
    paths = [request.path.partition("?")[0] for request in registry.requests]
    assert paths == ["/schemas/guids/00000000-0000-0000-0000-000000000001"]
    for code, unknown in ((404, False), (40403, True)):
        with serving(404, {}, f'{{"error_code": {code}, "message": "no"}}'.encode()) as registry:
            client = schema_registry.client(RegistrySettings("avro-confluent", registry.url, (), auto_register=True))
            with pytest.raises(RegistryError, match="asked for the schema with GUID 0000") as caught:
                client.schema(guid)
        assert caught.value.not_found == unknown
        assert ("it does not know GUIDs (Confluent's does since 8.0)" in str(caught.value)) != unknown


def registry_of(
    monkeypatch: pytest.MonkeyPatch, references: Callable[[str], list[str]]
) -> tuple[schema_registry.Registry, list[str]]:
    """A registry in which each subject refers to others, and the subjects that it is asked for."""
    asked: list[str] = []

    class Client:
        def get_version(self, subject: str, _version: int) -> SimpleNamespace:
            asked.append(subject)
            return SimpleNamespace(schema=Schema("{}", "AVRO", [SchemaReference(n, n, 1) for n in references(subject)]))

    @contextmanager
    def asking(*_words: str) -> Iterator[Client]:
        yield Client()

    registry = schema_registry.client(settings())
    monkeypatch.setattr(registry, "_asking", asking)
    return registry, asked


def test_schemas_that_refer_to_each_other_end_with_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that others fill must not have a query ask for ever."""
    registry, asked = registry_of(monkeypatch, lambda subject: ["b" if subject == "a" else "a"])
    with pytest.raises(ConfigurationError, match="subject 'a' refers to itself"):
        registry.references(schema_registry.RegisteredSchema("AVRO", "{}", (("a", "a", 1),)))
    assert asked == ["a", "b"]


def test_schemas_that_share_others_ask_for_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two schemas in each of 40 layers, which refer to both of the next one: by paths they would be 2**40."""
    layers = {f"{side}{i}": [f"a{i + 1}", f"b{i + 1}"] if i < 39 else [] for i in range(40) for side in "ab"}
    registry, asked = registry_of(monkeypatch, layers.__getitem__)
    top = schema_registry.RegisteredSchema("AVRO", "{}", (("a0", "a0", 1), ("b0", "b0", 1)))
    names = list(registry.references(top))
    assert sorted(asked) == sorted(names) == sorted(layers)
    assert all(names.index(other) < names.index(name) for name, others in layers.items() for other in others)


@pytest.mark.parametrize("width", [1, 2000])
def test_a_schema_that_refers_to_any_number_of_others_is_refused(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """In a row or side by side; the words are not those of Python's own limit."""
    registry, asked = registry_of(monkeypatch, lambda subject: [f"{int(subject) + 1}"] if width == 1 else [])
    top = schema_registry.RegisteredSchema("AVRO", "{}", tuple((str(i), str(i), 1) for i in range(width)))
    with pytest.raises(ConfigurationError, match="refers to more than 500 others"):
        registry.references(top)
    assert len(asked) == 500
