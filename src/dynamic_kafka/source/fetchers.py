"""The choice between the two fetchers, for each cluster of a task."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache

import pyarrow as pa

from dynamic_kafka.kafka.clients import ClusterClients, usable_implementation
from dynamic_kafka.native import Implementation
from dynamic_kafka.source.fetching import Decoding, Fetcher

__all__ = ["make_fetcher"]

_log = logging.getLogger(__name__)


def make_fetcher(
    wanted: Implementation,
    clients: ClusterClients,
    properties: Mapping[str, str],
    cluster: str,
    schema: pa.Schema,
    *,
    decoding: Decoding | None = None,
) -> Fetcher:
    """Return the fetcher for a cluster, and log once in a process which one it is.

    Args:
        wanted: The option `reader-implementation`.
        clients: The clients of the cluster.
        properties: The properties that the clients are made of.
        cluster: The name of the cluster.
        schema: The columns of the batches.
        decoding: How the native kernel decodes values, if the column `VALUE_ROW` is wanted.

    Raises:
        DynamicKafkaError: If the native kernel is wanted and not installed, or cannot be used.
    """
    found, words = usable_implementation(wanted, properties, "reader-implementation")
    _tell(cluster, words)
    # A new worker imports only what reads: pyarrow's functions take 40 ms.
    if found == "native":
        from dynamic_kafka.source.native_fetcher import NativeFetcher

        return NativeFetcher(clients, cluster, schema, decoding)
    from dynamic_kafka.source.python_fetcher import PythonFetcher

    return PythonFetcher(clients, cluster, schema)


@cache
def _tell(cluster: str, what: str) -> None:
    _log.info("Cluster '%s' is read by %s", cluster, what)
