"""Kafka client properties: Java's names and values become librdkafka's, and secrets stay references.

`kafka.clients` and `kafka.transactions` call `client_config`. The checks of options call the rest, before there is a client.
"""
