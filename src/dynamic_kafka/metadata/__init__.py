"""Streams, their clusters and topics, and the metadata services that map one to the other.

`source`, `sink` and the builders use this package; users and their own services get its names from `dynamic_kafka`.
"""
