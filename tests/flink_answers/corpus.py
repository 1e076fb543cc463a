"""Queries such as people write for Flink over Kafka, with their tables: from `corpus.sql` and `corpus_tables.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["CORPUS", "TABLES", "kafka_table", "values", "views"]

_HERE = Path(__file__).parent
TABLES: dict[str, Any] = json.loads((_HERE / "corpus_tables.json").read_text())
"""The tables: their columns with Flink's types, their rows, and maybe a column of event time and a key."""
_VIEWS, _, _QUERIES = (_HERE / "corpus.sql").read_text().partition("-- queries\n")
CORPUS = {
    name.strip(): text.strip().removesuffix(";")
    for part in f"\n{_QUERIES}".split("\n-- ")[1:]
    for name, _, text in [part.partition("\n")]
}
"""The queries, by what they are."""


def views() -> list[str]:
    """Return the statements that make views of the tables."""
    return [text.strip() for text in _VIEWS.split(";\n") if text.strip()]


def values(name: str) -> str:
    """Return the statement that makes a table of rows that do not change, for Flink."""
    table = TABLES[name]
    rows = ", ".join(
        f"({', '.join(_literal(value, type_) for value, type_ in zip(row, table['columns'].values(), strict=True))})"
        for row in table["rows"]
    )
    columns = ", ".join(f"`{column}`" for column in table["columns"])
    casts = ", ".join(f"CAST(`{column}` AS {type_}) AS `{column}`" for column, type_ in table["columns"].items())
    computed = "".join(f", {text} AS `{column}`" for column, text in table.get("computed", {}).items())
    return f"CREATE TEMPORARY VIEW `{name}` AS SELECT {casts}{computed} FROM (VALUES {rows}) AS t({columns})"


def kafka_table(name: str) -> str:
    """Return the statement that makes a table of Kafka."""
    table = TABLES[name]
    columns = [f"`{column}` {type_}" for column, type_ in table["columns"].items()]
    columns += [f"`{column}` AS {text}" for column, text in table.get("computed", {}).items()]
    if "time" in table:
        columns.append(f"WATERMARK FOR `{table['time']}` AS `{table['time']}` - INTERVAL '5' SECOND")
    options = {"topic": name, "properties.bootstrap.servers": "localhost:9"}
    if "key" in table:
        columns.append(f"PRIMARY KEY ({table['key']}) NOT ENFORCED")
        options |= {"connector": "upsert-kafka", "key.format": "json", "value.format": "json"}
    else:
        options |= {"connector": "kafka", "scan.startup.mode": "earliest-offset", "format": "json"}
    listed = ", ".join(f"'{option}' = '{value}'" for option, value in options.items())
    return f"CREATE TABLE `{name}` ({', '.join(columns)}) WITH ({listed})"


def _literal(value: Any, type_: str) -> str:
    if value is None:
        return f"CAST(NULL AS {type_ or 'STRING'})"
    if type_.startswith("TIMESTAMP"):
        return f"TIMESTAMP '{value}'"
    if isinstance(value, list):
        inner = type_.removeprefix("ARRAY<").removesuffix(">")
        if type_.startswith("ROW"):
            return f"ROW({', '.join(_literal(item, '') for item in value)})"
        return f"ARRAY[{', '.join(_literal(item, inner) for item in value)}]"
    if isinstance(value, dict):
        return f"MAP[{', '.join(_literal(part, '') for pair in value.items() for part in pair)}]"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).upper()
