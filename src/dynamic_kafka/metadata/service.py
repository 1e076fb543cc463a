"""The metadata service: who knows which topics on which clusters make up a stream (FLIP-246: KafkaMetadataService)."""

from __future__ import annotations

import difflib
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from dynamic_kafka.errors import (
    ConfigurationError,
    ConflictingOptionsError,
    InvalidOptionError,
    UnknownOptionError,
)
from dynamic_kafka.metadata.model import KafkaStream
from dynamic_kafka.options.user_class import user_object

__all__ = ["KafkaMetadataService", "StreamListService", "create_metadata_service"]

_PREFIX = "metadata-service."
_OPTIONS = {
    "single-cluster": ("cluster-id",),
    "file": ("path",),
    "http": ("url", "timeout-ms", "auth-header"),
}
_METHODS = ("get_all_streams", "describe_streams", "is_cluster_active", "close")


@runtime_checkable
class KafkaMetadataService(Protocol):
    """The source of truth for streams. Write your own in plain Python; inheriting from this class is not needed.

    The object is made by the user, or from the option `metadata-service`, and pickled to the reader process that Spark
    runs on the driver's machine for each query: it should open files and connections when first asked, not when made.
    There, one daemon thread makes all calls, one after the other, so that no call needs a lock. Other threads never wait
    for a call, and an answer may take its time; give network calls a time-out, for a call that never returns leaves
    the last answer in force for ever.

    Any exception means that the service failed this time, whatever its type: the last good answer stays in force, and
    `stream-metadata-discovery-failure-threshold` says how many failures in a row are tolerated. An exception's text is
    shown to the user and logged, so it must not hold a secret.

    Example:
        >>> class Registry:
        ...     def get_all_streams(self) -> Collection[KafkaStream]: ...
        ...     def describe_streams(self, stream_ids: Collection[str]) -> Mapping[str, KafkaStream]: ...
        ...     def is_cluster_active(self, cluster_id: str) -> bool: ...
        ...     def close(self) -> None: ...
    """

    def get_all_streams(self) -> Collection[KafkaStream]:
        """All streams there are; called at each refresh of a query that subscribes to a pattern.

        Raises:
            Exception: If the service cannot answer now.
        """

    def describe_streams(self, stream_ids: Collection[str]) -> Mapping[str, KafkaStream]:
        """The streams asked for; called at each refresh of a query that subscribes to stream ids.

        Args:
            stream_ids: The ids.

        Returns:
            Each stream by its id. An id that is left out is a stream that no longer exists, and is no longer read: raise
            if the service merely cannot tell.

        Raises:
            Exception: If the service cannot answer now.
        """

    def is_cluster_active(self, cluster_id: str) -> bool:
        """Whether a cluster is still in use; called now and then for clusters that fail or are leaving.

        Args:
            cluster_id: The cluster; it may be one that no stream names any longer.

        Returns:
            False lets the query drop the cluster without reading on, and ignore its errors meanwhile.

        Raises:
            Exception: If the service cannot answer now; the last answer then stays, and no failure is counted.
        """

    def close(self) -> None:
        """Let go of connections; called once, by the same thread, when the query ends. It may be skipped at a crash."""


class StreamListService(ABC):
    """A service that always has all its streams at hand: a subclass only says how it comes by them.

    A list says which clusters are to be read, and nothing about those it does not name: they count as active, so that one
    that is drained is read until it is quiet.
    """

    @abstractmethod
    def get_all_streams(self) -> Sequence[KafkaStream]:
        """All streams, read anew if need be."""

    def describe_streams(self, stream_ids: Collection[str]) -> dict[str, KafkaStream]:
        """Those of all streams that are asked for."""
        return {stream.stream_id: stream for stream in self.get_all_streams() if stream.stream_id in stream_ids}

    def is_cluster_active(self, cluster_id: str) -> bool:  # noqa: ARG002  # one answer for all
        """Always: a list cannot tell."""
        return True

    def close(self) -> None:  # noqa: B027  # most have nothing to let go of
        """Nothing to let go of."""


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
