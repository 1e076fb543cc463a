"""Record the messages of real Debezium, as fixtures for the tests of the changelog formats.

Run it with `python -m examples.debezium.record` in the project's folder. It needs Java 17, Maven (once), and PostgreSQL.
It writes `schemaless.json` and `with-schema.json`, one message a line, and the final rows of the database, `rows.json`,
into `tests/fixtures/debezium`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from operator import itemgetter
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from examples.debezium.change_stream import STEPS, run_change_stream
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from dynamic_kafka.testing import KafkaBroker

_FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures" / "debezium"
_KINDS = {"schemaless": False, "with-schema": True}
_PREFIX = "shop"
_TIMEOUT_S = 15.0


def main() -> int:
    """Record all fixtures. Return 0 if they are written."""
    parser = argparse.ArgumentParser(description="Record the messages of real Debezium on a real PostgreSQL.")
    parser.add_argument("--output", type=Path, default=_FIXTURES, help="the folder to write to (default: the tests')")
    folder: Path = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)

    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[step]}"))
    try:
        with Progress(*columns, console=console) as progress:
            tasks = {kind: progress.add_task(kind, total=STEPS + 1, start=False, step="") for kind in _KINDS}
            recorded: dict[str, list[str]] = {}
            for kind, task in tasks.items():
                recorded[kind], rows = _record(kind, progress, task)
                recorded["rows"] = [json.dumps(rows, ensure_ascii=False, indent=2) + "\n"]  # the same for all kinds
    except Exception as error:  # noqa: BLE001  # one line for the user
        console.print(
            f"The recording failed, no file was written: {error}", style="bold red", markup=False, highlight=False
        )
        return 1
    table = Table("fixture", "bytes")
    for kind, lines in recorded.items():
        path = folder / f"{kind}.json"
        path.write_text("".join(lines), encoding="utf-8")
        table.add_row(str(path), f"{path.stat().st_size:,}")
    console.print(table)
    return 0


def _record(kind: str, progress: Progress, task: TaskID) -> tuple[list[str], dict[str, Any]]:
    """Run the story once. Return a line of JSON for each message, and the final rows of the database."""
    progress.start_task(task)
    progress.update(task, step="starting Kafka")
    with KafkaBroker() as broker:
        rows = run_change_stream(
            broker, _PREFIX, with_schema=_KINDS[kind], on_step=lambda step: progress.update(task, advance=1, step=step)
        )
        messages = sorted(_messages(broker), key=itemgetter("topic", "partition", "offset"))
    progress.update(task, advance=1, step=f"{len(messages)} messages")
    return [json.dumps(message, ensure_ascii=False) + "\n" for message in messages], rows


def _messages(broker: KafkaBroker) -> Iterator[dict[str, Any]]:
    """Yield all messages of Debezium, but only the first heartbeat."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "recorder", "log_level": 3})
    with closing(consumer):
        for topic, description in consumer.list_topics(timeout=_TIMEOUT_S).topics.items():
            for partition in (p for p in description.partitions if _PREFIX in topic):
                first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)
                if topic.startswith("__debezium-heartbeat"):
                    end = min(end, first + 1)
                consumer.assign([TopicPartition(topic, partition, first)])
                for _ in range(first, end):
                    message = consumer.poll(_TIMEOUT_S)
                    if message is None or message.error():
                        raise RuntimeError(
                            f"Partition {partition} of topic '{topic}' cannot be read back. Run the recording again."
                        )
                    yield {
                        "topic": topic,
                        "partition": partition,
                        "offset": message.offset(),
                        "timestamp": message.timestamp()[1],
                        "key": _text(message.key()),
                        "value": _text(message.value()),
                    }


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


if __name__ == "__main__":
    sys.exit(main())
