"""The ways in to watermark alignment, and who holds the others back for how long, without a cluster.

`tests/property/test_alignment.py` tests the rules themselves.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

from dynamic_kafka.builders.watermarks import WatermarkStrategy
from dynamic_kafka.errors import ClusterUnavailableError, ConfigurationError, InvalidOptionError
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.source.document.offsets import ClusterOffsets, Document, decode, encode
from dynamic_kafka.source.driver import aligner as aligner_module
from dynamic_kafka.source.driver.aligner import Aligner
from dynamic_kafka.source.rules import alignment as alignment_module
from dynamic_kafka.source.rules.alignment import Backlog, Newest, TimeAnswer, TimeRequest
from dynamic_kafka.source.rules.model import ClusterView
from dynamic_kafka.source.settings import SourceSettings
from dynamic_kafka.spark.datasource import DynamicKafkaStreamReader
from dynamic_kafka.sql.tables.definition import Watermark

GIVEN = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
ALIGNED = {"scan.watermark.alignment.group": "g", "scan.watermark.alignment.max-drift": "10 s"}
TP = KafkaTopicPartition("t", 0)


def settings(**options: str) -> SourceSettings:
    """Checked settings."""
    return configure_source({**GIVEN, **options})


# --- the ways in ----------------------------------------------------------------------------------------------------------


def test_alignment_needs_a_group_and_a_drift() -> None:
    """As in Flink; the error names the missing one. Without both there is no alignment."""
    assert settings().alignment_group is None
    assert settings(**ALIGNED).alignment_max_drift_ms == 10_000
    with pytest.raises(ConfigurationError, match=r"'scan\.watermark\.alignment\.max-drift' is missing"):
        settings(**{"scan.watermark.alignment.group": "g"})
    with pytest.raises(ConfigurationError, match=r"'scan\.watermark\.alignment\.group' is missing"):
        settings(**{"scan.watermark.alignment.max-drift": "1 s"})
    with pytest.raises(ConfigurationError, match=r"'scan\.watermark\.alignment\.group' is missing"):
        settings(**{"scan.watermark.alignment.update-interval": "1 s"})


@pytest.mark.parametrize("key", ["scan.watermark.alignment.max-drift", "scan.watermark.idle-timeout"])
def test_a_drift_or_timeout_of_zero_is_refused(key: str) -> None:
    """With a drift of 0 hardly anything could be read, and an idle timeout of 0 means never in Flink."""
    with pytest.raises(InvalidOptionError):
        settings(**{**ALIGNED, key: "0"})


def test_an_aligned_source_always_has_a_limit_so_that_once_is_known() -> None:
    """Spark asks for all that is available only with Trigger.Once then, and such a run must not wait."""
    reader = DynamicKafkaStreamReader(settings(), StructType([StructField("value", BinaryType())]))
    assert isinstance(reader.getDefaultReadLimit(), ReadAllAvailable)
    reader = DynamicKafkaStreamReader(settings(**ALIGNED), StructType([StructField("value", BinaryType())]))
    assert not isinstance(reader.getDefaultReadLimit(), ReadAllAvailable)


def test_a_strategy_becomes_options() -> None:
    """PyFlink's names set Flink's options, with durations as objects or text."""
    strategy = (
        WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=20))
        .with_timestamp_assigner("at")
        .with_watermark_alignment("g", "20 s", timedelta(milliseconds=500))
        .with_idleness("1 min")
    )
    assert strategy.options == {
        "scan.watermark.alignment.group": "g",
        "scan.watermark.alignment.max-drift": "20000",
        "scan.watermark.alignment.update-interval": "500",
        "scan.watermark.idle-timeout": "60000",
    }
    applied: list[Any] = []
    rows: Any = SimpleNamespace(columns=["at"], withWatermark=lambda *args: applied.append(args))
    strategy.applied(rows)
    assert applied == [("at", "20000 milliseconds")]
    assert WatermarkStrategy.no_watermarks().applied(rows) is rows


def test_a_strategy_that_cannot_be_meant_is_refused() -> None:
    """A function for each record, a column that is not there, a duration that is none."""
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    with pytest.raises(ConfigurationError, match="takes the name of a column"):
        strategy.with_timestamp_assigner(lambda *_: 0)  # type: ignore[arg-type]
    rows: Any = SimpleNamespace(columns=["value"])
    with pytest.raises(ConfigurationError, match="no column 'timestamp' for the watermark"):
        strategy.applied(rows)
    with pytest.raises(ConfigurationError, match="idle_timeout is 'soon'"):
        strategy.with_idleness("soon")


def test_a_drift_of_more_than_the_delay_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """It is allowed: event time may be another column than the record's timestamp."""
    with caplog.at_level(logging.WARNING):
        WatermarkStrategy.for_bounded_out_of_orderness("5 s").with_watermark_alignment("g", "5 s")
        assert not caplog.records
        WatermarkStrategy.for_bounded_out_of_orderness("5 s").with_watermark_alignment("g", "6 s")
    assert "6000 ms is more than the watermark's delay of 5000 ms" in caplog.text


@pytest.mark.parametrize(
    ("delay", "delay_ms"),
    [("0 SECOND", 0), ("1 DAY 2 HOUR", 93_600_000), ("1.5 SECOND", 1_500), ("2 WEEK", 1_209_600_000)],
)
def test_the_delay_of_a_table_in_milliseconds(delay: str, delay_ms: float) -> None:
    """In all units in which a watermark is kept."""
    assert Watermark("ts", "", delay).delay_ms == delay_ms


def test_the_frontier_is_in_the_document_if_there_is_one() -> None:
    """A document without it has no such key."""
    assert "frontier" not in encode(Document())
    text = encode(Document(frontier_ms=1_700_000_000_123))
    assert text["frontier"] == 1_700_000_000_123
    assert decode(text).frontier_ms == 1_700_000_000_123


# --- who holds the others back --------------------------------------------------------------------------------------------


class Monitor:
    """A cluster monitor that answers at once, or not at all: with the newest time, and the offset of a bound."""

    def __init__(self) -> None:
        self.failing_for_s: float | None = None
        self.error: Exception | None = None
        self.answers = True
        self.newest_ms = 0
        self.first_later: int | None = None
        self.silent_partitions: set[KafkaTopicPartition] = set()
        self.asked: list[TimeRequest] = []
        self._found: list[tuple[TimeRequest, TimeAnswer]] = []

    def request_times(self, request: TimeRequest) -> int:
        """Answer."""
        self.asked.append(request)
        if self.answers:
            newest = {tp: Newest(end, self.newest_ms) for tp, (end, _) in request.newest.items()}
            offsets = {tp: self.first_later for tp in request.ends if tp not in self.silent_partitions}
            self._found.append((request, TimeAnswer(offsets, newest)))
        return len(self.asked)

    def wait(self, _ticket: int, _deadline: float) -> bool:
        """Return whether it answers."""
        return self.answers

    def take_times(self) -> list[tuple[TimeRequest, TimeAnswer]]:
        """Return the answers."""
        found, self._found = self._found, []
        return found


class World:
    """Two clusters with a partition each, `fast` and `slow`, and the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: str) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(alignment_module, "OLDEST_MS", 1)
        monkeypatch.setattr(aligner_module, "time", SimpleNamespace(monotonic=lambda: self.now, time=lambda: 2_000.0))
        self.monitors = {"fast": Monitor(), "slow": Monitor()}
        self.positions = {"fast": 0, "slow": 0}
        self.ends = {"fast": 10, "slow": 10}
        self.views = {"fast", "slow"}
        self.kafka_ids: dict[str, str] = {}
        self.stops: dict[str, int] = {}
        view: Any = SimpleNamespace(monitors=self.monitors)
        self.aligner = Aligner(settings(**{**ALIGNED, **options}), view)
        self.previous: Document | None = None

    def admit(self, *, at_once: bool = False) -> Backlog:
        """One call of the enumerator; what was admitted is read."""
        document = Document(
            clusters={
                name: ClusterOffsets(
                    kafka_id=self.kafka_ids.get(name, name),
                    discovered=True,
                    topics={"t": "id"},
                    ranges={TP: (at, at)},
                    stops={TP: self.stops[name]} if name in self.stops else {},
                )
                for name, at in self.positions.items()
            }
        )
        views = {name: ClusterView(name, {"t": "id"}, {"t": 1}, {TP: self.ends[name]}) for name in self.views}
        backlog = {
            name: {TP: self.ends[name] - at}
            for name, at in self.positions.items()
            if self.ends[name] > at and name in views
        }
        found = self.aligner.admit(self.previous, document, views, backlog, lambda _: 0.0, at_once=at_once)
        for name, tps in found.items():
            self.positions[name] += tps[TP]
        if found:
            self.previous = document
        return found


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """The slow cluster's newest record is of second 100, and the fast one begins at second 1000."""
    made = World(monkeypatch)
    made.monitors["slow"].newest_ms = 100_000
    made.monitors["fast"].newest_ms = 1_009_000
    made.monitors["fast"].first_later = 0
    return made


def test_a_partition_without_an_answer_does_not_make_its_cluster_mute(world: World) -> None:
    """The others of the cluster are read up to the bound, and only it holds them until the idle timeout."""
    other = KafkaTopicPartition("t", 1)
    world.admit()
    request = TimeRequest("slow", 5, {TP: 10, other: 10}, {}, 10_000)
    alignment = world.aligner._alignment
    world.monitors["slow"].silent_partitions = {other}
    assert world.aligner._ask([request], world.now, at_once=False) == {("slow", other)}
    assert alignment.unanswered(request) == {other}
    world.monitors["slow"].answers = False
    assert world.aligner._ask([request._replace(bound_ms=6)], world.now, at_once=False) == {"slow"}


def test_a_partition_that_was_read_to_its_end_holds_the_others_for_the_idle_timeout(world: World) -> None:
    """Its next record may be as old as its last one. After a minute without a record it is idle."""
    assert world.admit() == {"slow": {TP: 10}}
    assert world.admit() == {}
    assert world.aligner.reason == (
        "Cluster 'fast' waits for cluster 'slow', which is 15 minutes behind. It was read to its end, and may bring more"
    )
    assert world.aligner.reason_of("fast")
    assert not world.aligner.reason_of("slow")
    assert world.aligner.status()["heldPartitions"] == 1
    assert world.aligner.status()["watermarkLag"] == 2_000_000 - 100_000
    assert world.aligner.rests()
    world.now += 59
    assert not world.aligner.rests()
    assert world.admit() == {}
    world.now += 2
    world.monitors["fast"].first_later = None
    assert world.admit() == {"fast": {TP: 10}}
    assert world.aligner.reason == ""


def test_a_run_of_available_now_waits_for_nobody(world: World) -> None:
    """The slow partition is read to the end that the run has, so the fast one is next."""
    assert world.admit(at_once=True) == {"slow": {TP: 10}}
    world.monitors["fast"].first_later = None
    assert world.admit(at_once=True) == {"fast": {TP: 10}}


def test_a_cluster_without_an_answer_holds_for_the_idle_timeout_and_that_is_told_once(world: World) -> None:
    """Then the others go on without it. When it is back, it holds them again."""
    world.admit()
    world.views.discard("slow")
    world.monitors["slow"].failing_for_s = 1.0
    assert world.admit() == {}
    assert "of which not all times are known" in world.aligner.reason
    world.monitors["slow"].failing_for_s = 61.0
    world.monitors["fast"].first_later = None
    assert world.admit() == {"fast": {TP: 10}}
    world.admit()
    (told,) = world.aligner.take_events()
    assert told.text.startswith("Cluster 'slow' does not answer for 1 minute (scan.watermark.idle-timeout)")
    world.views.add("slow")
    world.monitors["slow"].failing_for_s = None
    world.ends["slow"] += 1
    assert world.admit() == {"slow": {TP: 1}}
    assert [event.text for event in world.aligner.take_events()] == [
        "Cluster 'slow' answers again, and the others wait for it again"
    ]


def test_a_cluster_that_does_not_tell_its_times_is_not_waited_for_twice(world: World) -> None:
    """The frontier stays meanwhile; once the answer is there, all goes on."""
    world.monitors["slow"].answers = False
    assert world.admit() == {}
    asked = len(world.monitors["slow"].asked)
    assert world.admit() == {}
    assert len(world.monitors["slow"].asked) == asked  # it is still being asked
    world.now += 61
    world.monitors["fast"].first_later = None
    assert world.admit() == {"fast": {TP: 10}}
    assert "Cluster 'slow' does not answer" in world.aligner.take_events()[0].text


def test_a_run_of_available_now_fails_without_the_times(world: World) -> None:
    """With `cluster-failure-mode` `fail`, as for the offsets to start at."""
    world.monitors["slow"].answers = False
    with pytest.raises(ClusterUnavailableError, match="Cluster 'slow' did not return the times of its records"):
        world.admit(at_once=True)


def test_after_a_restart_what_the_last_batch_has_read_holds_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document says what was read last, and up to which time all is read."""
    world.admit()
    assert world.previous is not None
    assert world.previous.frontier_ms == 100_000
    world.previous.clusters["slow"].ranges[TP] = (0, 10)
    again = World(monkeypatch)
    again.previous, again.positions, again.monitors = world.previous, world.positions, world.monitors
    again.aligner = Aligner(settings(**ALIGNED), SimpleNamespace(monitors=again.monitors))  # type: ignore[arg-type]
    assert again.admit() == {}
    again.now += 61
    world.monitors["fast"].first_later = None
    assert again.admit() == {"fast": {TP: 10}}


def test_a_cluster_with_a_new_name_still_holds_the_others(world: World) -> None:
    """What was read lately is known by Kafka's cluster.id."""
    world.admit()
    world.monitors["renamed"] = world.monitors.pop("slow")
    world.positions["renamed"] = world.positions.pop("slow")
    world.ends["renamed"] = world.ends.pop("slow")
    world.views = {"fast", "renamed"}
    world.kafka_ids = {"renamed": "slow"}
    assert world.admit() == {}
    assert "waits for cluster 'renamed'" in world.aligner.reason


def test_nobody_waits_for_more_behind_a_stopping_offset(world: World) -> None:
    """A partition that was read to its stop is finished."""
    world.stops = {"slow": 10}
    world.admit()
    world.monitors["fast"].first_later = None
    assert world.admit() == {"fast": {TP: 10}}


def test_a_topic_that_was_made_again_has_other_times(world: World) -> None:
    """What was known of the old one is forgotten, and the frontier stays."""
    world.admit()
    before = len(world.monitors["slow"].asked)
    world.aligner._logs["slow"] = "slow", {"t": "old"}
    world.positions["slow"] = 0
    world.admit()
    assert len(world.monitors["slow"].asked) > before
    assert world.previous is not None
    assert world.previous.frontier_ms == 100_000
