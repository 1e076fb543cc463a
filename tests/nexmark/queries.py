"""Nexmark's queries, from `queries.sql`, and the events that the answers are of."""

from __future__ import annotations

from pathlib import Path

from dynamic_kafka.testing import KafkaBroker, produce
from tests.nexmark.events import events

__all__ = ["ANSWERS", "QUERIES", "TABLES", "statements", "write_events"]

ANSWERS = Path(__file__).with_name("answers.json")
"""What Flink answers, by `record.py`: for each query its rows, and its error as it is written."""

_SECTIONS = Path(__file__).with_name("queries.sql").read_text().split("\n-- ")
_TEXTS = {name.partition(":")[0]: text for name, _, text in (section.partition("\n") for section in _SECTIONS)}
TABLES = _TEXTS["tables"]
"""The table of events, and the views of its three kinds."""
QUERIES = {name: text for name, text in _TEXTS.items() if name.startswith("q")}
"""The statements of each query: CREATE TABLE of what it writes, maybe more, and then the INSERT."""
_PARTITIONS = 4


def statements(text: str, *, servers: str, folder: str) -> list[str]:
    """Return the statements of such a text, with the address of Kafka and a folder for files."""
    text = text.replace("${BOOTSTRAP_SERVERS}", servers).replace("${FOLDER}", folder)
    return [statement.strip().removesuffix(";") for statement in text.split(";\n") if statement.strip()]


def write_events(broker: KafkaBroker, folder: Path) -> None:
    """Write one minute of events to the topic, and the file with the other side of the join of q13."""
    broker.create_topic("nexmark", _PARTITIONS)
    messages = [(None, message) for message in events(300, step_ms=200, extra=4)]
    for partition in range(_PARTITIONS):
        produce(broker.bootstrap_servers, "nexmark", messages[partition::_PARTITIONS], partition=partition)
    (folder / "side_input.txt").write_text("".join(f"{key},value {key}\n" for key in range(1100, 1200, 2)))
