"""A schema registry in this process, for tests of formats."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import pytest

from dynamic_kafka.errors import RegistryError
from dynamic_kafka.formats import schema_registry
from dynamic_kafka.formats.schema_ids import SchemaId
from dynamic_kafka.formats.schema_registry import RegisteredSchema
from dynamic_kafka.formats.schema_registry_settings import RegistrySettings

__all__ = ["Registries", "registry"]

Registries = Callable[[str, Mapping[SchemaId, RegisteredSchema]], RegistrySettings]
"""Takes a format's name and schemas by id or GUID, and returns the settings of a registry with them."""

_numbers = itertools.count()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registries:
    """Put registries with given schemas in the place of all others. The latest schema of every subject is the last one."""
    known: dict[str, Mapping[SchemaId, RegisteredSchema]] = {}

    class Client:
        def __init__(self, settings: RegistrySettings) -> None:
            self.schemas = known[settings.url]

        def schema(self, schema_id: SchemaId) -> RegisteredSchema:
            if schema_id not in self.schemas:
                raise RegistryError(f"{schema_id} is unknown", retriable=False, not_found=True)
            return self.schemas[schema_id]

        def latest(self, subject: str) -> int:
            assert subject
            return len(self.schemas)

        def at_version(self, subject: str, version: int) -> RegisteredSchema:
            assert subject
            return list(self.schemas.values())[version - 1]

        def references(self, schema: RegisteredSchema) -> dict[str, str]:
            assert not schema.references
            return {}

    monkeypatch.setattr(schema_registry, "client", Client)

    def settings(name: str, schemas: Mapping[SchemaId, RegisteredSchema]) -> RegistrySettings:
        url = f"http://registry-{next(_numbers)}:8081"  # schemas are cached by the settings
        known[url] = schemas
        return RegistrySettings(name, url, (), auto_register=True)

    return settings
