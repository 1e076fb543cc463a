"""Connections to Kafka clusters: client properties, clients and the pool that keeps them, and requests about transactions.

The source, the sink and the metadata services make no client of their own: they call `clients`, `pool` and `cluster`.
"""
