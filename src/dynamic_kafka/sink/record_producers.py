"""The choice between the two producers, for each cluster of a task."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache

from dynamic_kafka.kafka.clients import ClusterClients, usable_implementation
from dynamic_kafka.native import Implementation
from dynamic_kafka.sink.producing import RecordProducer

__all__ = ["make_record_producer"]

_log = logging.getLogger(__name__)


def make_record_producer(
    wanted: Implementation, clients: ClusterClients, properties: Mapping[str, str], cluster: str
) -> RecordProducer:
    """Return the producer for a cluster, and log once in a process which one it is.

    Args:
        wanted: The option `writer-implementation`.
        clients: The clients of the cluster.
        properties: The properties that the clients are made of.
        cluster: The name of the cluster.

    Raises:
        DynamicKafkaError: If the native kernel is wanted and not installed, or cannot be used.
        KafkaException: If no client can be made of the properties.
        ConfigurationError: The same.
    """
    found, words = usable_implementation(wanted, properties, "writer-implementation")
    _tell(cluster, words)
    if found == "native":
        from dynamic_kafka.sink.native_producer import NativeProducer

        return NativeProducer(clients)
    from dynamic_kafka.sink.python_producer import PythonProducer

    return PythonProducer(clients)


@cache
def _tell(cluster: str, what: str) -> None:
    _log.info("Cluster '%s' is written by %s", cluster, what)
