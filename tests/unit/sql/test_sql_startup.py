"""Options about the start and the end of reading that the mode of a table does not use."""

from __future__ import annotations

import pytest

from dynamic_kafka.sql.startup import without_unused

RESET = "properties.auto.offset.reset"
TIME, OFFSETS = "scan.startup.timestamp-millis", "scan.startup.specific-offsets"
UNTIL = "scan.bounded.timestamp-millis"


@pytest.mark.parametrize(
    ("given", "unused"),
    [
        ({"scan.startup.mode": "earliest-offset", RESET: "latest"}, RESET),
        ({"scan.startup.mode": "Latest-Offset", RESET: "earliest"}, RESET),
        ({"scan.startup.mode": "timestamp", TIME: "1", RESET: "earliest"}, RESET),
        ({"scan.startup.mode": "earliest-offset", "kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset"),
        ({"scan.startup.mode": "earliest-offset", TIME: "1"}, TIME),
        ({"scan.startup.mode": "timestamp", TIME: "1", OFFSETS: "partition:0,offset:1"}, OFFSETS),
        ({TIME: "1"}, TIME),
        ({UNTIL: "1"}, UNTIL),
        ({"scan.bounded.mode": "latest-offset", UNTIL: "1"}, UNTIL),
    ],
)
def test_what_the_mode_does_not_use_is_left_out(
    given: dict[str, str], unused: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As Flink does, and a warning names the option and the mode that would use it."""
    assert without_unused(given, "`t`") == {name: text for name, text in given.items() if name != unused}
    assert f"Table `t`: option '{unused}' has no effect" in caplog.text


@pytest.mark.parametrize(
    "given",
    [
        {RESET: "earliest"},
        {"scan.startup.mode": "group-offsets", RESET: "earliest"},
        {"scan.startup.mode": "timestamp", TIME: "1", "scan.bounded.mode": "timestamp", UNTIL: "2"},
        {"scan.startup.mode": "specific-offsets", OFFSETS: "partition:0,offset:1"},
        {"scan.startup.mode": "earliest", RESET: "latest"},
        {"startingOffsets": "earliest", RESET: "latest"},
    ],
)
def test_everything_else_stays(given: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    """Also beside an unknown mode and beside Spark's options, of which the source says what is wrong."""
    assert without_unused(given, "`t`") == given
    assert not caplog.messages
