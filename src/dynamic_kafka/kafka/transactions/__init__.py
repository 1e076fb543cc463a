"""Requests about transactions that librdkafka does not offer: list, describe, and end by producer id and epoch.

Called by the sink's committer and by `dynamic-kafka transactions`, on the driver only.
"""
