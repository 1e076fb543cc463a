"""Confluent's schema registry: schemas by id, and ids of schemas, for the formats that end in `-confluent`.

The client is confluent-kafka's own, with its cache and its retries. This module adds Java's key stores, and errors with
advice. A process keeps a client for each of its settings within the policy of `kafka.pool`.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError, RegistryError
from dynamic_kafka.formats.schema_ids import SchemaId
from dynamic_kafka.formats.schema_registry_settings import (
    AUTO_REGISTER,
    RegistrySettings,
    check_url,
    client_configuration,
    subject_of,
    version_option,
    without_logins,
)
from dynamic_kafka.formats.schema_registry_settings import settings as settings_of
from dynamic_kafka.kafka.config import keystore
from dynamic_kafka.kafka.config.secrets import hidden, hide, resolve
from dynamic_kafka.kafka.pool import ClientPool

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

__all__ = ["RegisteredSchema", "Registry", "client", "planned_schema"]

_SHOWN_CHARS = 500
_MAX_BYTES = 16 * 1024 * 1024
_MOST_REFERENCES = 500
_LARGEST_ID = 2**31 - 1  # ids are ints in Java, and never negative
# How long, and for how many ids, the answer that an id is unknown is cached: damaged messages may contain any id. A replica
# of a registry may learn of a new schema late, so the time is short at first, and doubled with each such answer.
_UNKNOWN_S, _LONGEST_UNKNOWN_S = 0.5, 60.0
_MOST_UNKNOWN = 10_000
# A registry's own codes for a subject, a version and a schema that do not exist. Any other 404 comes from another server or
# a wrong path.
_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA = 40401, 40402, 40403


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema in a registry.

    Args:
        type: `AVRO`, `PROTOBUF` or `JSON`.
        text: The schema itself.
        references: The name, subject and version of each schema that it refers to; see `Registry.references`.
    """

    type: str
    text: str
    references: tuple[tuple[str, str, int], ...] = ()


class Registry:
    """A client of a registry; see `client`.

    All methods but `latest` cache answers: an id's schema and a schema's id never change. Each raises `RegistryError` if the
    registry does not answer, after the library's retries, or refuses. Errors are not cached, so the next call asks again,
    with one exception: an unknown id is remembered for half a second, then for twice as long, up to a minute.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._url = ",".join(without_logins(url) for url in settings.url.split(","))
        self._client: SchemaRegistryClient | None = _connect(settings)
        # By id: until when, for how long, and the error. The oldest first.
        self._unknown: dict[SchemaId, tuple[float, float, str]] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Registry({self._url!r})"

    def schema(self, schema_id: SchemaId) -> RegisteredSchema:
        """Return the schema with this id, or with this GUID, which registries know since Confluent Platform 8.0.

        Raises:
            RegistryError: With `not_found` if the registry does not know the id, or if the id is too large for any registry.
        """
        if isinstance(schema_id, int) and schema_id > _LARGEST_ID:
            raise RegistryError(
                f"Schema id {schema_id} in the message is too large for any registry (the limit is 2^31-1): the message is "
                "damaged or does not have Confluent's format",
                retriable=False,
                not_found=True,
            )
        until, wait_s, said = self._unknown.get(schema_id, (0.0, 0.0, ""))
        if time.monotonic() < until:
            raise RegistryError(said, retriable=False, not_found=True)
        try:
            with self._asking(
                f"for the schema with {'GUID' if isinstance(schema_id, UUID) else 'id'} {schema_id}",
                "the record was written with another registry or without one, or the schema was permanently deleted; check "
                f"'{self._settings.prefix}.url' and the producers of the topic",
            ) as client:
                if isinstance(schema_id, UUID):
                    return _registered(client.get_schema_by_guid(str(schema_id)))
                return _registered(client.get_schema(schema_id))
        except RegistryError as error:
            if error.not_found:
                wait_s = min(max(_UNKNOWN_S, 2 * wait_s), _LONGEST_UNKNOWN_S)
                with self._lock:
                    self._unknown.pop(schema_id, None)
                    if len(self._unknown) >= _MOST_UNKNOWN:
                        del self._unknown[next(iter(self._unknown))]
                    self._unknown[schema_id] = (time.monotonic() + wait_s, wait_s, str(error))
            raise

    def register(
        self, subject: str, schema_type: str, text: str, references: Iterable[tuple[str, str, int]] = ()
    ) -> int:
        """Return the id of a schema under a subject; register it if it does not exist there.

        With `auto.register.schemas` = false, a schema that does not exist is a `RegistryError`.

        Args:
            subject: The subject.
            schema_type: `AVRO`, `PROTOBUF` or `JSON`.
            text: The schema itself.
            references: The name, subject and version of each schema that it refers to.
        """
        schema = _schema(schema_type, text, references)
        if self._settings.auto_register:
            with self._asking(f"to register a schema under the subject '{subject}'", "check the URL") as client:
                return _registered_id(client, subject, schema)
        remedy = f"register it first, or set '{self._settings.prefix}.{AUTO_REGISTER}' to true"
        with self._asking(f"for the id of the table's schema under the subject '{subject}'", remedy) as client:
            found = client.lookup_schema(subject, schema).schema_id
            assert found is not None
            return found

    def version(
        self, subject: str, schema_type: str, text: str, references: Iterable[tuple[str, str, int]] = ()
    ) -> int:
        """Return the version of a schema under a subject where it is registered; the arguments are those of `register`."""
        with self._asking(f"for the version of a schema under the subject '{subject}'", "register it again") as client:
            found = client.lookup_schema(subject, _schema(schema_type, text, references)).version
            assert found is not None
            return found

    def latest(self, subject: str) -> int:
        """Return the latest version of a subject."""
        remedy = f"set '{self._settings.prefix}.subject' to the subject of the topic, or write the columns"
        with self._asking(f"for the latest schema of the subject '{subject}'", remedy) as client:
            # Not `get_latest_version`, which caches for ever what changes with the next version.
            found = client.get_version(subject, "latest").version
            assert found is not None
            return found

    def at_version(self, subject: str, version: int) -> RegisteredSchema:
        """Return the schema that a subject has as a version."""
        with self._asking(f"for version {version} of the subject '{subject}'", "register it again") as client:
            return _registered(client.get_version(subject, version).schema)

    def references(self, schema: RegisteredSchema) -> dict[str, str]:
        """Return all schemas that a schema refers to, also through others: text by name, each after those it needs.

        Args:
            schema: The schema.

        Raises:
            ConfigurationError: If a schema refers to itself, also through others, or refers to more than 500.
        """
        found: dict[str, str] = {}
        self._add_references(schema, (), found)
        return found

    def _add_references(
        self, schema: RegisteredSchema, above: tuple[tuple[str, int], ...], found: dict[str, str]
    ) -> None:
        """Add what a schema refers to, each one once: schemas that share others would be asked for again and again."""
        for name, subject, version in schema.references:
            if (subject, version) in above:
                raise ConfigurationError(
                    f"Version {version} of the subject '{subject}' refers to itself, also through others; register a schema "
                    "that does not"
                )
            if name in found:
                continue
            if len(found) + len(above) >= _MOST_REFERENCES:
                raise ConfigurationError(
                    f"A schema refers to more than {_MOST_REFERENCES} others, the last one of the subject '{subject}'; "
                    "register one with fewer"
                )
            referenced = self.at_version(subject, version)
            self._add_references(referenced, (*above, (subject, version)), found)
            found[name] = referenced.text

    def poll_idle(self) -> bool:
        """See `ClientPool`; there is nothing to poll."""
        return True

    def close(self) -> None:
        """Close the connections and forget all answers. `client` then makes a new client.

        An object that is still in use stays valid: it connects again, with secrets as they are then.
        """
        connected, self._client = self._client, None
        if connected is not None:
            connected.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # its `close` is newer
            with self._lock:
                self._unknown.clear()
            _registries.close(lambda kept: kept is self)

    @contextlib.contextmanager
    def _asking(self, what: str, remedy: str) -> Iterator[SchemaRegistryClient]:
        """Turn the library's errors into ours; `remedy` is for a schema, subject or version that does not exist."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        asked = f"Schema registry {self._url}, asked {what}"
        prefix = self._settings.prefix
        client = self._client = self._client or _connect(self._settings)
        try:
            yield client
        except SchemaRegistryError as error:
            status = error.http_status_code
            said = f"status {status}"
            if status != 401:  # such an answer may quote the login
                said = f"{said}: {without_logins(str(error.error_message))[:_SHOWN_CHARS]}".rstrip(". ")
            if status in {401, 403}:
                self.close()  # the next attempt reads the secret again, which may be rotated
                hint = f"check '{prefix}.basic-auth.*' or '{prefix}.bearer-auth.*', and the user's rights"
            elif error.error_code in {_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA}:
                hint = remedy
            elif status == 404:
                hint = (
                    f"this is not a schema registry; set '{prefix}.url' to the base URL of its API, such as "
                    "http://host:8081, with the path if it has one"
                )
                if "GUID" in what:
                    hint = f"it does not know GUIDs (Confluent's does since 8.0), or {hint}"
            elif status in range(300, 400):
                hint = f"redirects are not followed, because the login must not go elsewhere; set '{prefix}.url' to the end"
            elif status in {409, 422}:
                hint = (
                    "the schema is not compatible with the subject's versions, or not valid; change the columns, "
                    f"set '{prefix}.schema', or change the subject's compatibility"
                )
            else:
                hint = f"check '{prefix}.url' and the registry's log"
            raise RegistryError(
                f"{asked}, answered {said}; {hint}",
                retriable=status >= 500 or status == 429,
                not_found=error.error_code == _NO_SCHEMA,
            ) from None
        except Exception as error:  # noqa: BLE001  (of httpx or httpx2, whichever the library uses; or for an answer that is not JSON)
            if isinstance(error, (AssertionError, TypeError, KeyError)):
                raise RegistryError(
                    f"{asked}, answered with something that a schema registry does not answer; check '{prefix}.url'",
                    retriable=False,
                ) from None
            # The error of a token server may quote its answer, which may contain a secret.
            shown = (
                "" if type(error).__name__ == "OAuthTokenError" else f": {without_logins(str(error))}"[:_SHOWN_CHARS]
            )
            raise RegistryError(
                f"{asked}, did not answer ({type(error).__name__}{shown}); check '{prefix}.url', and that the registry "
                "can be reached from the driver and every executor",
                retriable=True,
            ) from None


_registries = ClientPool[Registry]()


def client(settings: RegistrySettings) -> Registry:
    """Return this process's client for these settings; it sends nothing to the registry yet.

    Raises:
        ConfigurationError: If a reference to a secret cannot be looked up, or a key store cannot be read.
        MissingDependencyError: If confluent-kafka is installed without its schema registry client.
    """
    key = settings, frozenset(_resolved(settings).items())  # a changed secret makes a new client
    return _registries.share(key, lambda: Registry(settings))


def planned_schema(name: str, type_: str, options: Mapping[str, Any]) -> RegisteredSchema:
    """Return the schema in a registry that has a table's columns: that of the version in the options, or the latest one.

    Args:
        name: The format's name.
        type_: The schema's type: `AVRO`, `PROTOBUF` or `JSON`.
        options: The format's options.

    Raises:
        ConfigurationError: If there is no subject, or its schema has another type.
        RegistryError: If the registry does not answer, or does not have the subject.
    """
    registry, subject = client(settings_of(name, options)), subject_of(name, options)
    version = version_option(name).of(options) or registry.latest(subject)
    found = registry.at_version(subject, version)
    if found.type != type_:
        raise ConfigurationError(
            f"Version {version} of the subject '{subject}' is of type {found.type}, not {type_}. Read it with a format for "
            "that type"
        )
    return found


def _resolved(settings: RegistrySettings) -> dict[str, str]:
    """Return the properties and the URL, with secrets in clear."""
    return resolve({**dict(settings.properties), "url": settings.url})


def _connect(settings: RegistrySettings) -> SchemaRegistryClient:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError:
        raise MissingDependencyError(
            "confluent-kafka[schemaregistry]", settings.prefix.partition("-")[0], f"for the format {settings.prefix}"
        ) from None

    clear = _resolved(settings)
    url = clear.pop("url")
    check_url(url, settings.prefix, settings.url)
    configuration = client_configuration(clear, settings.prefix)
    # The library takes certificates and keys only as files, and reads them immediately.
    try:
        with tempfile.TemporaryDirectory(prefix="registry-") as folder:  # readable by this user only
            with hidden(dict(settings.properties)):
                stores = _stores_as_files(clear, Path(folder))
            return _limited(SchemaRegistryClient({**configuration, **stores, "url": url}))
    except ConfigurationError:
        raise
    except (ValueError, TypeError, OSError) as error:  # OSError: for missing and damaged certificates, and a full disk
        said = without_logins(hide(str(error), dict(settings.properties)))
        raise ConfigurationError(f"Format {settings.prefix}: the registry's client refused this: {said}") from None


def _limited(client: SchemaRegistryClient) -> SchemaRegistryClient:
    """Have the client refuse answers of any size: the library would take all of it into memory."""

    def limit(response: Any) -> None:
        whole = response.iter_bytes

        def limited(chunk_size: int | None = None) -> Iterator[bytes]:
            left = _MAX_BYTES
            for chunk in whole(chunk_size):
                left -= len(chunk)
                if left < 0:
                    raise ValueError(f"the answer is larger than {_MAX_BYTES // 2**20} MiB")
                yield chunk

        response.iter_bytes = limited

    client._rest_client.session.event_hooks = {"response": [limit]}
    return client


def _registered_id(client: SchemaRegistryClient, subject: str, schema: Schema) -> int:
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        return int(client.register_schema(subject, schema))
    except SchemaRegistryError as error:
        if error.http_status_code != 409:
            raise
        # All tasks of a new query register the same schema at once, and Apicurio refuses all but one of them if the subject
        # is new.
        with contextlib.suppress(SchemaRegistryError):
            if (found := client.lookup_schema(subject, schema).schema_id) is not None:
                return found
        raise


def _stores_as_files(properties: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Write key stores as PEM files to the folder; return the properties that point to them."""
    found: dict[str, str] = {}

    def file(name: str, pem: str) -> str:
        path = folder / name
        path.write_text(pem, encoding="ascii")
        return str(path)

    if location := properties.get("ssl.truststore.location"):
        pem = keystore.truststore_pem(location, properties.get("ssl.truststore.password"))
        found["ssl.ca.location"] = file("ca.pem", pem)
    if location := properties.get("ssl.keystore.location"):
        chain, key = keystore.keystore_pem(
            location, properties.get("ssl.keystore.password"), properties.get("ssl.key.password")
        )
        found["ssl.certificate.location"] = file("chain.pem", chain)
        found["ssl.key.location"] = file("key.pem", key)
    return found


def _schema(schema_type: str, text: str, references: Iterable[tuple[str, str, int]]) -> Schema:
    from confluent_kafka.schema_registry import Schema, SchemaReference

    return Schema(text, schema_type, [SchemaReference(*reference) for reference in references])


def _registered(schema: Schema) -> RegisteredSchema:
    references: list[SchemaReference] = schema.references or []
    assert schema.schema_str is not None
    return RegisteredSchema(
        schema.schema_type or "AVRO",
        schema.schema_str,
        tuple((str(r.name), str(r.subject), int(r.version or 0)) for r in references),
    )
