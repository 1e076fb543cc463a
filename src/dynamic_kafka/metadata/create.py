"""From the option `metadata-service` to the service: one of ours, or a class of the user's."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Mapping
from typing import Any

from dynamic_kafka.errors import (
    ConfigurationError,
    ConflictingOptionsError,
    InvalidOptionError,
    UnknownOptionError,
)
from dynamic_kafka.metadata.service import KafkaMetadataService
from dynamic_kafka.options.user_class import user_object

__all__ = ["create_metadata_service"]

_PREFIX = "metadata-service."
_OPTIONS = {
    "single-cluster": ("cluster-id",),
    "file": ("path",),
    "http": ("url", "timeout-ms", "auth-header"),
}
_METHODS = ("get_all_streams", "describe_streams", "is_cluster_active", "close")


def create_metadata_service(
    name: str, options: Mapping[str, str], properties: Mapping[str, str]
) -> KafkaMetadataService:
    """Make the metadata service that the options name.

    Args:
        name: The option `metadata-service`: `single-cluster`, `file`, `http`, or `package.module:Class`. Such a class is
            given one dict of the `metadata-service.*` options without that prefix if it takes an argument, else nothing.
        options: The query's options; only `metadata-service.*` are looked at.
        properties: The global Kafka properties, with which `single-cluster` reaches its cluster.

    Raises:
        ConfigurationError: If there is no such service, or an option is unknown, missing or wrong.
        MissingDependencyError: If the service needs a library that is not installed.
    """
    given = {key[len(_PREFIX) :]: value for key, value in options.items() if key.lower().startswith(_PREFIX)}
    if name in _OPTIONS:
        return _built_in(name, given, properties)
    if ":" in name:
        return _user_class(name, given)
    near = difflib.get_close_matches(name, _OPTIONS, n=1)
    raise InvalidOptionError(
        "metadata-service",
        name,
        f"{', '.join(_OPTIONS)} or package.module:Class{f' (did you mean {near[0]!r}?)' if near else ''}",
    )


def _built_in(name: str, given: Mapping[str, str], properties: Mapping[str, str]) -> KafkaMetadataService:
    values = {key.lower(): value for key, value in given.items()}
    own = [_PREFIX + key for key in _OPTIONS[name]]
    for key in values.keys() - set(_OPTIONS[name]):
        if any(key in keys for keys in _OPTIONS.values()):
            raise ConflictingOptionsError(
                ["metadata-service", _PREFIX + key], f"the service '{name}' takes only {', '.join(own)}"
            )
        raise UnknownOptionError(_PREFIX + key, own)

    def required(key: str) -> str:
        if not values.get(key, "").strip():
            raise ConfigurationError(
                f"Option '{_PREFIX}{key}' is missing; option 'metadata-service' = '{name}' needs it"
            )
        return values[key].strip()

    match name:
        case "single-cluster":
            from dynamic_kafka.metadata.single_cluster import SingleClusterTopicMetadataService

            return SingleClusterTopicMetadataService(required("cluster-id"), properties)
        case "file":
            from dynamic_kafka.metadata.file import FileMetadataService

            return FileMetadataService(required("path"))
        case _:
            from dynamic_kafka.metadata.http import HttpMetadataService

            return HttpMetadataService(
                required("url"),
                timeout_ms=_timeout_ms(values.get("timeout-ms", "10000")),
                auth_header=_reference(values.get("auth-header")),
            )


def _timeout_ms(text: str) -> int:
    if not text.strip().isdecimal() or int(text) == 0:
        raise InvalidOptionError(f"{_PREFIX}timeout-ms", text, "a positive number of milliseconds")
    return int(text)


def _reference(value: str | None) -> str | None:
    # Spark shows options in its UI and event log: a secret must not get that far.
    if value is not None and not re.search(r"\$\{(env|file):", value):
        raise ConfigurationError(
            f"Option '{_PREFIX}auth-header' holds its value in plain text; "
            "refer to it, as in 'Bearer ${env:TOKEN}' or '${file:/path/to/header}'"
        )
    return value


def _user_class(name: str, given: Mapping[str, str]) -> KafkaMetadataService:
    made: KafkaMetadataService = user_object(
        "metadata-service",
        name,
        kind="metadata service",
        methods=_METHODS,
        make=lambda found: found(dict(given)) if _takes_an_argument(found) else found(),
    )
    return made


def _takes_an_argument(function: Any) -> bool:
    # `*args` alone does not count: every class that inherits from a Protocol seems to take it.
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(parameter.kind in kinds for parameter in inspect.signature(function).parameters.values())
