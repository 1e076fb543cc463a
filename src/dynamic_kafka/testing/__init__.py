"""Kafka brokers and helpers for tests. For the tests of this package and of code that uses it.

A broker is Apache Kafka in a child process. It needs Java 17 or newer, and Maven once, to fetch the jars. No other part of
the package imports this one.

Examples:
    >>> with KafkaBroker() as broker:  # doctest: +SKIP
    ...     broker.create_topic("orders", partitions=4)
    ...     produce(broker.bootstrap_servers, "orders", [("key", "value")])
"""

from __future__ import annotations

from dynamic_kafka.testing.broker import BrokerError, KafkaBroker
from dynamic_kafka.testing.cluster import KafkaCluster
from dynamic_kafka.testing.helpers import MockCluster, produce, wait_until

__all__ = ["BrokerError", "KafkaBroker", "KafkaCluster", "MockCluster", "produce", "wait_until"]
