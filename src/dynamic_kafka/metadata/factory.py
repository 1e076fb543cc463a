"""From options to a metadata service, for the source and for the sink: a built-in service, or a class of the user."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from dynamic_kafka.errors import (
    ConfigurationError,
    ConflictingOptionsError,
    InvalidOptionError,
    UnknownOptionError,
    suggestion,
)
from dynamic_kafka.kafka.config.documents import PREFIX, DocumentRules
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream
from dynamic_kafka.metadata.service import KafkaMetadataService
from dynamic_kafka.metadata.services import (
    FileMetadataService,
    HttpMetadataService,
    InMemoryMetadataService,
    SingleClusterTopicMetadataService,
)
from dynamic_kafka.options import Option, ParsedOptions, integer, name_list, non_blank, text, user_object

__all__ = [
    "DEFAULT_CLUSTER",
    "METADATA_SERVICE",
    "SERVICE_OPTIONS",
    "create_metadata_service",
    "document_rules",
    "one_cluster",
    "service_of",
]

DEFAULT_CLUSTER = "kafka"
"""The default cluster id, without a metadata service."""

METADATA_SERVICE = Option(
    "metadata-service",
    non_blank("single-cluster, file, http, or package.module:Class"),
    doc="The metadata service, which resolves stream ids to clusters and topics: `single-cluster`, `file`, `http`, or a "
    "class of your own as `package.module:Class`. Its own options begin with `metadata-service.`.",
)

_PREFIX = PREFIX
_CLUSTER_ID = Option(
    f"{_PREFIX}cluster-id",
    text("a cluster id"),
    DEFAULT_CLUSTER,
    shown_default=f"{DEFAULT_CLUSTER}; none for `single-cluster`",
    doc="The name of the cluster in the column `cluster` and in the checkpoint; for `single-cluster`, and for queries that "
    "name topics. A query with another name goes on where it stopped: it knows the cluster by Kafka's `cluster.id`.",
)
_PATH = Option(
    f"{_PREFIX}path",
    text("a path"),
    doc="The YAML or JSON file, on the driver's machine, that describes the streams; for `file`.",
)
_URL = Option(
    f"{_PREFIX}url",
    text("a URL"),
    doc="The http or https URL of the YAML or JSON document that describes the streams; for `http`.",
)
_TIMEOUT_MS = Option(
    f"{_PREFIX}timeout-ms",
    integer(at_least=1, expected="a positive number of milliseconds"),
    "10000",
    doc="The longest time to wait for the document; for `http`.",
)
_AUTH_HEADER = Option(
    f"{_PREFIX}auth-header",
    text("a reference"),
    doc="The value of the header `Authorization`, with a reference to the secret such as `Bearer ${env:TOKEN}` or "
    "`${file:/run/token}`; for `http`.",
)
_ALLOWED_PROPERTIES = Option(
    f"{_PREFIX}allowed-properties",
    name_list("names of properties separated by ';'"),
    shown_default="none",
    doc="Properties that the metadata may set besides those of docs/guides/security.md, by name.",
)
_ALLOWED_REFERENCES = Option(
    f"{_PREFIX}allowed-references",
    name_list("patterns such as file:/run/secrets/kafka/* or env:KAFKA_*, separated by ';'"),
    shown_default="none",
    doc="The references (`${file:PATH}`, `${env:NAME}`) and files that the metadata may name, as patterns such as "
    "`file:/run/secrets/kafka/*;env:KAFKA_*`.",
)
_ALLOWED_SERVERS = Option(
    f"{_PREFIX}allowed-servers",
    name_list("patterns of host or host:port, separated by ';'"),
    shown_default="none; a cloud's own brokers for its tokens",
    doc="The brokers of the metadata that may get the login of the query's own options, or a cloud's token, as patterns "
    "such as `*.kafka.example.com`.",
)
_ALLOWED_TOKEN_URLS = Option(
    f"{_PREFIX}allowed-token-urls",
    name_list("patterns such as https://login.example.com/*, separated by ';'"),
    shown_default="none",
    doc="The token endpoints that the metadata may name (`sasl.oauthbearer.token.endpoint.url`), as patterns.",
)
_ALLOWED: Mapping[str, Option[Any]] = {
    "properties": _ALLOWED_PROPERTIES,
    "references": _ALLOWED_REFERENCES,
    "servers": _ALLOWED_SERVERS,
    "token_urls": _ALLOWED_TOKEN_URLS,
}
_BUILT_IN: Mapping[str, tuple[Option[Any], ...]] = {
    "single-cluster": (_CLUSTER_ID,),
    "file": (_PATH,),
    "http": (_URL, _TIMEOUT_MS, _AUTH_HEADER),
}
SERVICE_OPTIONS = (*(declared for own in _BUILT_IN.values() for declared in own), *_ALLOWED.values())
"""The options of the built-in services, and what the metadata may say."""
_METHODS = ("get_all_streams", "describe_streams", "is_cluster_active", "close")


def service_of(
    parsed: ParsedOptions, properties: Mapping[str, str], given: KafkaMetadataService | None
) -> Callable[[], KafkaMetadataService]:
    """Return a picklable function that makes the metadata service.

    Args:
        parsed: The options, of which one names the service.
        properties: The global Kafka properties.
        given: A service that a builder was given; it needs no options.

    Raises:
        ConfigurationError: If no service is named, or its own options are wrong.
    """
    if given is not None:
        return partial(_itself, given)
    name = parsed[METADATA_SERVICE]
    if name is None:
        raise ConfigurationError(
            f"Option '{METADATA_SERVICE.key}' is missing. Streams need a metadata service that describes them: "
            f"{METADATA_SERVICE.expected}"
        )
    make = partial(create_metadata_service, name, parsed.service_options, properties)
    make().close()  # a missing or wrong option is an error now, not in the first batch
    return make


def document_rules(parsed: ParsedOptions, given: KafkaMetadataService | None) -> DocumentRules | None:
    """Return what the metadata may say; None if it is the query's own: a single cluster, or streams in memory.

    What a service of your own says is not its code: it mostly comes from a registry that others fill. So these rules hold
    for it, too.

    Args:
        parsed: The options.
        given: A service that a builder was given.

    Raises:
        InvalidOptionError: If a list is empty.
    """
    if type(given) in (InMemoryMetadataService, SingleClusterTopicMetadataService):
        return None
    if given is None and parsed[METADATA_SERVICE] in (None, "single-cluster"):
        return None
    texts = parsed.service_options
    return DocumentRules(**{name: tuple(o.parse(texts[o.key])) for name, o in _ALLOWED.items() if o.key in texts})


def one_cluster(
    parsed: ParsedOptions, properties: Mapping[str, str], topics: Collection[str], given: Collection[str]
) -> tuple[str, Callable[[], KafkaMetadataService]]:
    """Return a made-up stream of one cluster, for options that name topics instead of streams.

    Args:
        parsed: The options; `metadata-service.cluster-id` names the cluster.
        properties: The properties to reach it.
        topics: Its topics.
        given: The options that name the topics, for errors.

    Returns:
        The name of the cluster, which is also the name of the stream, and a picklable function that makes the service.

    Raises:
        ConfigurationError: If `bootstrap.servers` is missing, or there are options of a metadata service.
    """
    if unknown := [key for key in parsed.service_options if key != _CLUSTER_ID.key]:
        raise ConflictingOptionsError([*given, *unknown], f"there is no metadata service; set '{METADATA_SERVICE.key}'")
    if not properties.get("bootstrap.servers", "").strip(" ,"):
        raise ConfigurationError(
            "Option 'properties.bootstrap.servers' (or 'kafka.bootstrap.servers') is missing; name at least one broker as "
            "host:port"
        )
    name: str = _CLUSTER_ID.of(parsed.service_options)
    stream = KafkaStream(name, {name: ClusterMetadata(frozenset(topics), properties)})
    return name, partial(InMemoryMetadataService, [stream])


def create_metadata_service(
    name: str, options: Mapping[str, str], properties: Mapping[str, str]
) -> KafkaMetadataService:
    """Make the metadata service that the options name.

    Args:
        name: The option `metadata-service`: `single-cluster`, `file`, `http`, or `package.module:Class`. Such a class is
            given one dict of the `metadata-service.*` options without that prefix if it takes an argument, else nothing. The
            options `allowed-*`, which say what its answers may hold, are not among them.
        options: The query's options; only `metadata-service.*` are used.
        properties: The global Kafka properties, with which `single-cluster` reaches its cluster.

    Raises:
        ConfigurationError: If there is no such service, or an option is unknown, missing or wrong.
        MissingDependencyError: If the service needs a library that is not installed.
    """
    rules = {o.key for o in _ALLOWED.values()} if name != "single-cluster" else set()
    given = {
        key[len(_PREFIX) :]: value
        for key, value in options.items()
        if key.lower().startswith(_PREFIX) and key.lower() not in rules
    }
    if name in _BUILT_IN:
        return _built_in(name, {_PREFIX + key.lower(): value for key, value in given.items()}, properties)
    if ":" in name:
        made: KafkaMetadataService = user_object(
            METADATA_SERVICE.key,
            name,
            kind="metadata service",
            methods=_METHODS,
            make=lambda found: found(dict(given)) if _takes_an_argument(found) else found(),
        )
        return made
    raise InvalidOptionError(
        METADATA_SERVICE.key, name, f"{', '.join(_BUILT_IN)} or package.module:Class{suggestion(name, _BUILT_IN)}"
    )


def _built_in(name: str, given: Mapping[str, str], properties: Mapping[str, str]) -> KafkaMetadataService:
    own = [declared.key for declared in _BUILT_IN[name]]
    for key in (key for key in given if key not in own):
        if any(key == declared.key for declared in SERVICE_OPTIONS):
            raise ConflictingOptionsError(
                [METADATA_SERVICE.key, key], f"the service '{name}' takes only {', '.join(own)}"
            )
        raise UnknownOptionError(key, own)

    def required(declared: Option[str]) -> str:
        value = given.get(declared.key, "").strip()
        if not value:
            raise ConfigurationError(
                f"Option '{declared.key}' is missing; option '{METADATA_SERVICE.key}' = '{name}' needs it"
            )
        return value

    match name:
        case "single-cluster":
            return SingleClusterTopicMetadataService(required(_CLUSTER_ID), properties)
        case "file":
            return FileMetadataService(required(_PATH))
        case _:
            timeout = given.get(_TIMEOUT_MS.key, _TIMEOUT_MS.default or "")
            return HttpMetadataService(
                required(_URL),
                timeout_ms=_TIMEOUT_MS.parse(timeout),
                auth_header=_reference(given.get(_AUTH_HEADER.key)),
            )


def _reference(value: str | None) -> str | None:
    # Spark shows options in its UI and event log: a secret must not get that far.
    if value is not None and not re.search(r"\$\{(env|file):", value):
        raise ConfigurationError(
            f"Option '{_AUTH_HEADER.key}' holds its value in plain text; "
            "refer to it, as in 'Bearer ${env:TOKEN}' or '${file:/path/to/header}'"
        )
    return value


def _takes_an_argument(function: Any) -> bool:
    # `*args` alone does not count: every class that inherits from a Protocol seems to take it.
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(parameter.kind in kinds for parameter in inspect.signature(function).parameters.values())


def _itself(service: KafkaMetadataService) -> KafkaMetadataService:
    return service
