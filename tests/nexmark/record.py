"""Ask Flink all of Nexmark's queries, once, and keep its answers in `answers.json`: `python -m tests.nexmark.record`.

It needs Maven and a JDK. The queries are streams over a topic of Kafka with an end. The rows are those that are left when
all that Flink takes back is gone. An error is that of the query as it is written.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.flink import Flink

from dynamic_kafka.testing import KafkaBroker
from tests.nexmark.queries import ANSWERS, QUERIES, TABLES, statements, write_events

_ASKED_AS = {
    # Flink looks up no rows in files; a join with all of them has the same rows.
    "q13": (" FOR SYSTEM_TIME AS OF B.p_time", ""),
    # The function is Java of Nexmark.
    "q14": ("count_char(extra, 'c')", "CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', ''))"),
    # DATETIME is a word of Flink 2.
    "q23": ("A.dateTime", "A.`dateTime`"),
}
"""What Flink is asked in the place of a part of a query that is an error to it."""


def main() -> None:
    """Record all answers, with a line for each row."""
    answers = []
    with KafkaBroker() as broker, TemporaryDirectory() as folder, Flink("streaming") as flink:
        write_events(broker, Path(folder))

        def statements_of(text: str) -> list[str]:
            return statements(text, servers=broker.bootstrap_servers, folder=folder)

        for statement in statements_of(TABLES):
            flink("execute", sql=statement)
        for name, text in QUERIES.items():
            *before, insert = statements_of(text)
            for statement in before:
                flink("execute", sql=statement)
            query = insert.partition("\n")[2]
            answer = flink("rows", sql=query)
            if name in _ASKED_AS:
                answer |= flink("rows", sql=query.replace(*_ASKED_AS[name]))
            print(name, answer.get("error"), len(answer.get("rows", [])), flush=True)
            lines = ",\n".join(json.dumps(row) for row in sorted(answer.pop("rows", []), key=str))
            answers.append(f'"{name}": {{"error": {json.dumps(answer.get("error"))}, "rows": [\n{lines}\n]}}')
    ANSWERS.write_text("{\n" + ",\n".join(answers) + "\n}\n")


if __name__ == "__main__":
    main()
