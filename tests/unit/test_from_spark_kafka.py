"""docs/guides/from-spark-kafka.md says of each option of Spark's connector what becomes of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sink.configure import configure_sink
from dynamic_kafka.source.configure import configure_source

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "from-spark-kafka.md").read_text()
TIMES, OFFSETS = '{"t": {"0": 1000}}', '{"t": {"0": 5}}'
# Every option of Spark 4.3's guides to the source and the sink, with a right value.
SOURCE = {
    "kafka.bootstrap.servers": "b:1",
    "subscribe": "t",
    "subscribePattern": "t.*",
    "assign": '{"t": [0]}',
    "startingOffsets": OFFSETS,
    "endingOffsets": OFFSETS,
    "startingTimestamp": "1000",
    "endingTimestamp": "1000",
    "startingOffsetsByTimestamp": TIMES,
    "endingOffsetsByTimestamp": TIMES,
    "startingOffsetsByTimestampStrategy": "latest",
    "failOnDataLoss": "false",
    "kafkaConsumer.pollTimeoutMs": "1000",
    "fetchOffset.numRetries": "3",
    "fetchOffset.retryIntervalMs": "10",
    "maxOffsetsPerTrigger": "10",
    "minOffsetsPerTrigger": "10",
    "maxTriggerDelay": "15m",
    "minPartitions": "3",
    "maxRecordsPerPartition": "10",
    "groupIdPrefix": "p",
    "kafka.group.id": "g",
    "includeHeaders": "true",
    "kafka.isolation.level": "read_committed",
    "kafka.security.protocol": "PLAINTEXT",
    "kafka.auto.offset.reset": "earliest",
    "kafka.key.deserializer": "X",
    "kafka.value.deserializer": "X",
    "kafka.enable.auto.commit": "true",
    "kafka.interceptor.classes": "X",
}
SINK = {
    "kafka.bootstrap.servers": "b:1",
    "topic": "t",
    "includeHeaders": "true",
    "kafka.acks": "all",
    "kafka.compression.type": "zstd",
    "kafka.enable.idempotence": "true",
    "kafka.key.serializer": "X",
    "kafka.value.serializer": "X",
    "kafka.interceptor.classes": "X",
}


def said(heading: str) -> dict[str, bool]:
    """Whether each option of a table is accepted."""
    table = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", table, re.MULTILINE)
    return {option: here != "refused" for names, here in rows for option in re.findall(r"`([\w.]+)`", names)}


def is_accepted(configure: Callable[[dict[str, str]], object], base: dict[str, str], option: str, value: str) -> bool:
    """Whether an option can be given beside what a query needs."""
    given = {name: text for name, text in base.items() if name == "kafka.bootstrap.servers" or option not in _TOPICS}
    try:
        configure({**given, option: value})
    except ConfigurationError:
        return False
    return True


_TOPICS = ("subscribe", "subscribePattern", "assign")


@pytest.mark.parametrize("heading", ["Options of the source", "Options of the sink"])
def test_the_page_says_what_becomes_of_each_option(heading: str) -> None:
    """No option is missing, and none is said to work that is refused, or the other way round."""
    if heading == "Options of the source":
        options, base, configure = SOURCE, {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}, configure_source
    else:
        options, base, configure = SINK, {"kafka.bootstrap.servers": "b:1", "topic": "t"}, configure_sink  # type: ignore[assignment]
    found = {option: is_accepted(configure, base, option, value) for option, value in options.items()}
    assert said(heading) == found
