"""Kafka client properties: Java's names and values become librdkafka's, and secrets stay references.

Called by `kafka.clients` and `kafka.transactions`, and by whoever checks properties before a client exists.
"""
