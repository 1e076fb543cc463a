"""The sink's option table: every name, every value that is wrong, and what is no option of a sink."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dynamic_kafka.errors import InvalidOptionError
from dynamic_kafka.options import Option, parse_options
from dynamic_kafka.sink.configure import SINK_OPTIONS

# A right value for each option, as text, and what it is read as.
RIGHT: dict[str, tuple[str, Any]] = {
    "register.producer.metrics": ("false", False),
    "metrics.port": ("9090", 9090),
    "metrics.host": ("0.0.0.0", "0.0.0.0"),
    "metrics.otlp-endpoint": ("http://localhost:4318/v1/metrics", "http://localhost:4318/v1/metrics"),
    "metrics.query": ("nightly", "nightly"),
    "metrics.max-partitions": ("50", 50),
    "topic": ("a; b", ("a", "b")),
    "topic-pattern": ("a.*", re.compile("a.*")),
    "stream-ids": (" s ", "s"),
    "metadata-service": ("file", "file"),
    "sink.delivery-guarantee": ("EXACTLY_ONCE", "exactly-once"),
    "sink.partitioner": ("a.b:C", "a.b:C"),
    "sink.parallelism": ("4", 4),
    "sink.transactional-id-prefix": ("my-job", "my-job"),
    "checkpointLocation": ("/tmp/c", "/tmp/c"),
    "sink.transaction-naming-strategy": ("INCREMENTING", "incrementing"),
    "txnAppId": ("app", "app"),
    "txnVersion": ("0", 0),
    "__txnConsecutive": ("true", True),
    "sink.name": ("left", "left"),
    "sink.commit-log.topic": ("log", "log"),
    "sink.commit-log.cluster": ("East", "East"),
    "sink.commit-log.replication-factor": ("3", 3),
    "sink.lost-transactions": ("Continue:41", ("continue", 41)),
    "sink.dead-letter.topic": ("bad-rows", "bad-rows"),
    "sink.lost-clusters": ("East; aBc-1", ("East", "aBc-1")),
    "sink.accept-gaps": ("41", 41),
    "sink.skip-batch": ("0", 0),
}

WRONG: dict[str, tuple[str, ...]] = {
    "register.producer.metrics": ("", "yes"),
    "metrics.port": ("", "-1", "any"),
    "metrics.host": ("", " "),
    "metrics.otlp-endpoint": ("", "localhost:4318"),
    "metrics.query": ("", " "),
    "metrics.max-partitions": ("0", "all"),
    "topic": ("", " ", "a,,b", "a;", "a b", "x" * 250, "..", "ä"),
    "topic-pattern": ("", "(", "*"),
    "stream-ids": ("", "s;r", "s,r", "s;"),
    "metadata-service": ("",),
    "sink.delivery-guarantee": ("", "exactly", "at least once", "2", "twice"),
    "sink.partitioner": ("", " "),
    "sink.parallelism": ("", "0", "-1", "1.5", "many"),
    "sink.transactional-id-prefix": ("", " ", "x" * 32_000, "ä" * 16_000),
    "checkpointLocation": ("",),
    "sink.transaction-naming-strategy": ("", "random"),
    "txnAppId": ("", " "),
    "txnVersion": ("", "-1", "1.5", "latest"),
    "__txnConsecutive": ("", "1"),
    "sink.name": ("", "a/b"),
    "sink.commit-log.topic": ("", "a b", ".", "x" * 250),
    "sink.commit-log.cluster": ("",),
    "sink.commit-log.replication-factor": ("0", "-1", ""),
    "sink.lost-transactions": ("", "ignore", "continue", "continue:", "rewrite:-1", "fail:41", "true"),
    "sink.dead-letter.topic": ("", "a b", "..", "x" * 250),
    "sink.lost-clusters": ("", "a;"),
    "sink.accept-gaps": ("", "true", "-1"),
    "sink.skip-batch": ("", "true", "-1"),
}


def parsed(options: dict[str, str]) -> dict[str, Any]:
    """The values of a sink's options."""
    return dict(parse_options(options, SINK_OPTIONS).values)


def test_each_option_has_a_wrong_value() -> None:
    """In the table above, which tests/unit/test_option_tables.py uses with that of the right ones."""
    assert RIGHT.keys() == WRONG.keys()


def test_what_spark_hands_over_is_no_option() -> None:
    """`start(path)`, `queryName`; the checkpoint's location is one."""
    given = {"path": "x", "queryname": "q", "outputmode": "append", "checkpointlocation": "/c"}
    assert parsed(given) == {"checkpointLocation": "/c"}


@given(st.sampled_from(SINK_OPTIONS), st.text())
def test_any_text_is_a_value_or_an_error_of_ours(option: Option[Any], text: str) -> None:
    """Whatever an option is given."""
    with contextlib.suppress(InvalidOptionError):
        assert parsed({option.key: text}).keys() == {option.key}
