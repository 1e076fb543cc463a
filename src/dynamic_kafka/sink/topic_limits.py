"""What a topic takes: its `max.message.bytes`, asked of the cluster and remembered in this process."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from dynamic_kafka.kafka.clients import ClusterClients

__all__ = ["topic_limits"]

_log = logging.getLogger(__name__)

_KEY = "max.message.bytes"
_AGE_S = 60.0
_ASK_S = 5.0

_known: dict[tuple[str, str, str], tuple[int | None, float]] = {}


def topic_limits(
    clients: ClusterClients, cluster: str, properties: Mapping[str, str], topics: Sequence[str]
) -> list[int | None]:
    """Return the largest size of a batch of records for each topic; None where it is not known.

    It is not known if the producer compresses, because the limit is for what remains then. Nor is it if the cluster does not
    answer within five seconds, or this principal may not see the topic's settings. Answers are remembered for a minute.
    """
    if any(
        properties.get(name, "none").strip().lower() != "none" for name in ("compression.type", "compression.codec")
    ):
        return [None] * len(topics)
    keys = {topic: (cluster, properties.get("bootstrap.servers", ""), topic) for topic in topics}
    now = time.monotonic()
    missing = [topic for topic, key in keys.items() if key not in _known or now - _known[key][1] > _AGE_S]
    if missing:
        for topic, limit in zip(missing, _ask(clients, missing), strict=True):
            _known[keys[topic]] = limit, now
    return [_known[keys[topic]][0] for topic in topics]


def _ask(clients: ClusterClients, topics: Sequence[str]) -> list[int | None]:
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    found: list[int | None] = []
    try:
        asked = clients.admin.describe_configs(resources, request_timeout=_ASK_S)
    except KafkaException as error:
        _log.info("The largest messages of topics are not known: %s", error)
        return [None] * len(topics)
    for topic, resource in zip(topics, resources, strict=True):
        try:
            entry = clients.result(asked[resource]).get(_KEY)
        except KafkaException as error:
            _log.info("The largest message of topic '%s' is not known: %s", topic, error)
            entry = None
        found.append(None if entry is None or entry.value is None else int(entry.value))
    return found
