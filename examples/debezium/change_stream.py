"""The changes of a small shop's database, written to Kafka by real Debezium.

The story has every kind of change: rows from before the start (the snapshot), inserts, updates, deletes, rows that are
inserted again, a key that changes, transactions over several tables, nulls, quotes and other alphabets, and a column that
is added while the stream runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from examples.debezium.connect import Connect
from examples.debezium.postgres import Postgres

from dynamic_kafka.testing import KafkaBroker, wait_until

__all__ = ["STEPS", "run_change_stream"]

_DEADLINE_S = 120

_BEFORE = """
CREATE TABLE customers (
  id integer PRIMARY KEY, name text NOT NULL, email text, balance numeric(10, 2), vip boolean, joined timestamptz
);
CREATE TABLE orders (
  region text, number bigint, customer integer, amount double precision, note text, PRIMARY KEY (region, number)
);
-- Without this, updates and deletions have only the key of the old row.
ALTER TABLE customers REPLICA IDENTITY FULL;
ALTER TABLE orders REPLICA IDENTITY FULL;
INSERT INTO customers VALUES
  (1, 'Ada', 'ada@example.org', 10.50, true, '2024-01-01 08:00:00+00'),
  (2, 'Grace', NULL, 0.00, false, '2024-02-29 23:59:59.123456+00'),
  (3, 'Edsger', 'edsger@example.org', -3.25, NULL, NULL);
INSERT INTO orders VALUES ('eu', 1, 1, 12.5, 'first'), ('us', 1, 2, 0.1, NULL);
"""

_STORY: tuple[tuple[str, str], ...] = (
    (
        "inserts",
        """
INSERT INTO customers VALUES
  (4, 'Barbara "Barb" Liskov', 'b\\l@example.org', 99999999.99, true, '1999-12-31 23:59:59.999-08');
INSERT INTO customers VALUES (5, '山田 太郎 ☕', NULL, NULL, NULL, NULL);
INSERT INTO orders VALUES ('eu', 2, 4, 1e-9, E'two\\nlines'), ('us', 2, 5, 1234567890.5, '');
""",
    ),
    (
        "updates",
        """
UPDATE customers SET balance = balance + 1 WHERE id <= 2;
UPDATE customers SET email = NULL, vip = NULL WHERE id = 1;
UPDATE customers SET email = 'grace@example.org' WHERE id = 2;
UPDATE orders SET note = NULL, amount = amount * 2 WHERE region = 'eu';
""",
    ),
    (
        "deletes, and a row that is inserted again",
        """
DELETE FROM customers WHERE id = 3;
INSERT INTO customers VALUES (3, 'Edsger again', NULL, 7.00, false, '2025-06-01 12:00:00+02');
DELETE FROM orders WHERE region = 'us' AND number = 1;
""",
    ),
    (
        "keys that change",
        """
UPDATE customers SET id = 50, name = 'moved' WHERE id = 5;
UPDATE orders SET number = 20 WHERE region = 'us' AND number = 2;
""",
    ),
    (
        "a transaction, and one that is rolled back",
        """
BEGIN;
INSERT INTO customers VALUES (6, 'Tony', NULL, 1, true, NULL);
INSERT INTO orders VALUES ('eu', 3, 6, 3, 'to be replaced');
UPDATE orders SET note = 'replaced' WHERE region = 'eu' AND number = 3;
DELETE FROM orders WHERE region = 'eu' AND number = 1;
COMMIT;
BEGIN;
DELETE FROM customers;
ROLLBACK;
""",
    ),
    (
        "a new column",
        """
ALTER TABLE customers ADD COLUMN city text; -- a default would fill the existing rows without a change event
INSERT INTO customers VALUES (7, 'Frances', NULL, 5, false, NULL, 'Peru');
UPDATE customers SET city = 'London' WHERE id = 1;
DELETE FROM customers WHERE id = 2;
""",
    ),
)

# Decimals as text, as Debezium is configured to write them.
_TABLES = {
    "customers": "SELECT id, name, email, balance::text AS balance, vip, joined, city FROM customers ORDER BY id",
    "orders": "SELECT region, number, customer, amount, note FROM orders ORDER BY region, number",
}

STEPS = len(_STORY) + 3
"""The number of steps that `run_change_stream` reports."""


def run_change_stream(
    broker: KafkaBroker, topic_prefix: str, *, with_schema: bool, on_step: Callable[[str], None] = lambda _: None
) -> dict[str, list[dict[str, Any]]]:
    """Fill the topics `<topic_prefix>.public.customers` and `….orders` with real Debezium on a real PostgreSQL.

    Debezium also writes messages that are not rows: heartbeats into `__debezium-heartbeat.<topic_prefix>`, and a logical
    message into `<topic_prefix>.message`.

    Args:
        broker: The broker to write to.
        topic_prefix: The first part of the topics' names. Use a new one for each call.
        with_schema: If True, the messages contain their schema.
        on_step: A function that gets the name of each step, for the user.

    Returns:
        The rows of each table (`customers`, `orders`) at the end, in order of their keys (`id`; `region` and `number`).
        Decimals are text, times are ISO 8601 text with an offset, all other values are as in JSON.

    Raises:
        RuntimeError: If PostgreSQL, Maven or Java is missing, or a server fails.
        TimeoutError: If Debezium does not keep up within 2 minutes.
    """
    on_step("starting PostgreSQL")
    with Postgres() as database:
        database.execute(_BEFORE)
        on_step("starting Debezium, which takes its snapshot")
        with Connect(broker, database, topic_prefix, with_schema=with_schema) as connect:

            def wait(query: str, what: str) -> None:
                def holds() -> bool:
                    connect.check()
                    return database.execute(query) == "t"

                wait_until(holds, _DEADLINE_S, what)

            wait("SELECT count(*) > 0 FROM pg_stat_replication WHERE state = 'streaming'", "Debezium to follow")
            for step, statements in _STORY:
                on_step(step)
                database.execute(statements)
            on_step("Debezium catches up")
            end = database.execute("SELECT pg_logical_emit_message(true, 'story', 'the end')")
            wait(f"SELECT bool_or(confirmed_flush_lsn >= '{end}') FROM pg_replication_slots", "Debezium to catch up")
        return {table: _rows(database, query) for table, query in _TABLES.items()}


def _rows(database: Postgres, query: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in database.execute(f"SELECT row_to_json(t) FROM ({query}) t").splitlines()]
