"""`changelog.delta`: what a real Debezium wrote, into real Delta tables, on a release of Spark that has them."""

from __future__ import annotations

import json

import pytest
from examples.debezium.follow import KEYS
from examples.debezium.main import Rows, follow, same

from dynamic_kafka.testing import KafkaBroker, produce
from tests.spark.tables import DEBEZIUM

pytestmark = [
    pytest.mark.network,
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.timeout(900),  # it may have to make an environment
]


def test_delta_tables_have_the_databases_rows(cluster_a: KafkaBroker) -> None:
    """After half of the changes, a restart from the checkpoint, and the other half."""
    kind = "with-schema"
    expected: Rows = json.loads((DEBEZIUM / "rows.json").read_text(encoding="utf-8"))
    recorded = [json.loads(line) for line in (DEBEZIUM / f"{kind}.json").read_text(encoding="utf-8").splitlines()]
    streams = {
        topic: [(m["key"], m["value"]) for m in recorded if m["topic"].endswith(f".public.{table}")]
        for table in KEYS
        for topic in [f"{kind}.public.{table}"]
    }

    def write(part: slice) -> None:
        for topic, messages in streams.items():
            produce(cluster_a.bootstrap_servers, topic, messages[part])

    for topic in streams:
        cluster_a.create_topic(topic)
    write(slice(8))

    def story() -> Rows:
        write(slice(8, None))
        return expected

    assert same(*follow(cluster_a.bootstrap_servers, kind, story, with_schema=True))
