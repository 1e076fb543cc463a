"""Connections to Kafka clusters: client properties, clients and the pool that keeps them, and requests about transactions.

The source, the sink and the metadata services make no client of their own: they call `clients`, `pool` and `cluster`.

The same arguments occur in many signatures. A cluster (or `cluster_id`) is named as in the metadata. `properties` are those
to reach it, in Java's or librdkafka's names, with secrets as they were given, mostly as references. `timeout_ms` is the
longest time that one call may take.
"""
