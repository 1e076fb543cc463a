"""Requests about transactions that librdkafka does not offer: list, describe, and end by producer id and epoch.

The sink's committer and `dynamic-kafka transactions` call `client.TransactionClient` on the driver. A task that fails does
it on its executor, to abort its transaction.
"""
