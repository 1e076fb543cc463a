"""Clients of a schema registry are kept as other clients are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dynamic_kafka.errors import RegistryError
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
