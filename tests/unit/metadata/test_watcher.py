"""The watcher, with a scripted service: what it does after each kind of answer."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import pytest

import dynamic_kafka.metadata.watcher as watcher_module
from dynamic_kafka.errors import ConfigurationError, MetadataServiceError
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream
from dynamic_kafka.metadata.subscriber import StreamPatternSubscriber, StreamSetSubscriber
from dynamic_kafka.metadata.watcher import MetadataWatcher

Answer = Sequence[KafkaStream] | Exception


def stream(*topics: str) -> list[KafkaStream]:
    """The answer with the one stream `s`, of these topics on one cluster."""
    return [KafkaStream("s", {"c": ClusterMetadata(frozenset(topics), {"bootstrap.servers": "h:9092"})})]


A, B, EMPTY, DOWN = stream("a"), stream("a", "b"), list[KafkaStream](), ConnectionError("registry is down")


class ScriptedService:
    """Gives one answer after the other, and the last one for ever; remembers who called."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.calls = 0
        self.callers = set[str]()
        self.active: dict[str, bool] = {}
        self.closed = 0
        self.gate = threading.Event()
        self.gate.set()

    def describe_streams(self, stream_ids: Collection[str]) -> dict[str, KafkaStream]:
        """The next answer; waits at the gate."""
        self.calls += 1
        self.callers.add(threading.current_thread().name)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        assert self.gate.wait(10)
        if isinstance(answer, Exception):
            raise answer
        return {s.stream_id: s for s in answer if not stream_ids or s.stream_id in stream_ids}

    def get_all_streams(self) -> list[KafkaStream]:
        """The next answer."""
        return list(self.describe_streams([]).values())

    def is_cluster_active(self, cluster_id: str) -> bool:
        """As told; an unknown cluster raises."""
        self.callers.add(threading.current_thread().name)
        return self.active[cluster_id]

    def close(self) -> None:
        """Count."""
        self.closed += 1
        self.callers.add(threading.current_thread().name)


def accept(_properties: Mapping[str, str]) -> None:
    """Find all properties right."""


Make = Callable[..., MetadataWatcher]


@pytest.fixture(autouse=True)
def fast_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for seconds."""
    monkeypatch.setattr(watcher_module, "_BACKOFF_S", (0.002, 0.008))
    monkeypatch.setattr(watcher_module, "_ACTIVE_INTERVAL_S", 0.005)


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes watchers (not started), and closes them."""
    made: list[MetadataWatcher] = []

    def make(
        service: ScriptedService,
        interval_ms: int = 2,
        failure_threshold: int = 1,
        check: Callable[[Mapping[str, str]], None] = accept,
    ) -> MetadataWatcher:
        made.append(
            MetadataWatcher(
                service,
                StreamSetSubscriber(["s"]),
                interval_ms=interval_ms,
                failure_threshold=failure_threshold,
                check=check,
            )
        )
        return made[-1]

    yield make
    for watcher in made:
        watcher.close()
        assert not watcher._thread.is_alive()


def eventually(condition: Callable[[], object]) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.001)


def topics(watcher: MetadataWatcher) -> dict[str, set[str]]:
    """What the watcher says is to be read."""
    snapshot = watcher.snapshot()
    assert snapshot is not None
    return {cluster_id: set(cluster.topics) for cluster_id, cluster in snapshot.clusters.items()}


def failed(watcher: MetadataWatcher) -> MetadataServiceError:
    """Wait for the final failure."""
    eventually(lambda: watcher.failure() is not None)
    error = watcher.failure()
    assert error is not None
    return error


# --- failure threshold ------------------------------------------------------------------------------------------------


def test_failure_threshold_tolerates_one_then_fails(make: Make) -> None:
    """The default threshold of 1: after an answer, the second failure in a row is final; the snapshot stays."""
    service = ScriptedService(A, DOWN)
    watcher = make(service)
    watcher.start()
    message = str(failed(watcher))
    assert service.calls == 3
    assert message == (
        "The metadata service failed 2 times in a row, more than stream-metadata-discovery-failure-threshold=1 "
        "tolerates; the last failure: Metadata service ScriptedService failed: ConnectionError: registry is down"
    )
    assert topics(watcher) == {"c": {"a"}}
    with pytest.raises(MetadataServiceError, match="2 times in a row"):
        watcher.wait_first(0)


@pytest.mark.parametrize("threshold", [0, 5])
def test_failure_threshold_counts_failures_tolerated(make: Make, threshold: int) -> None:
    """Threshold 5 tolerates five and fails at the sixth; threshold 0 tolerates none."""
    service = ScriptedService(A, DOWN)
    watcher = make(service, failure_threshold=threshold)
    watcher.start()
    failed(watcher)
    assert watcher.status()["consecutive_failures"] == threshold + 1


def test_when_failures_end_the_query(make: Make) -> None:
    """It is told with the first failure, and the time of failing is noted once."""
    watcher = make(ScriptedService(A, DOWN), interval_ms=60_000, failure_threshold=5)
    watcher.start()
    eventually(lambda: watcher.status()["changes"] == 1)
    watcher.request_refresh()
    eventually(lambda: watcher.status()["consecutive_failures"] == 1)
    status = watcher.status()
    assert status["tolerated_failures"] == 5
    assert status["ends_ms"] is not None
    assert abs(status["ends_ms"] - time.time() * 1000 - 5 * 60_000) < 30_000
    assert watcher.events()[-1]["level"] == "warning"


def test_failure_threshold_success_resets(make: Make) -> None:
    """Single failures between answers never add up."""
    service = ScriptedService(A, DOWN, A, DOWN, B, DOWN, A)
    watcher = make(service)
    watcher.start()
    eventually(lambda: service.calls > 8)
    status = watcher.status()
    assert watcher.failure() is None
    assert (status["failures"], status["consecutive_failures"]) == (3, 0)
    assert (status["tolerated_failures"], status["ends_ms"]) == (1, None)
    told = [(change["level"], change["text"]) for change in watcher.events() if "service" in change["text"]]
    down = "the service fails: Metadata service ScriptedService failed: ConnectionError: registry is down"
    assert told == [("warning", down), ("info", "the service answers again")] * 3
    assert status["last_error"] == "Metadata service ScriptedService failed: ConnectionError: registry is down"


def test_failure_threshold_counts_an_invalid_answer_as_one_failure(make: Make) -> None:
    """An answer that cannot be united counts like silence, and the last good one stays in force meanwhile."""
    invalid = [KafkaStream("s", {"c": ClusterMetadata(frozenset({"t"}), {})})]
    watcher = make(ScriptedService(A, invalid))
    watcher.start()
    assert "lacks the property 'bootstrap.servers'" in str(failed(watcher))
    assert topics(watcher) == {"c": {"a"}}


def test_failure_threshold_counts_an_answer_of_any_wrong_type(make: Make) -> None:
    """A bug in a user's service is a failure with its type, not a dead thread."""
    watcher = make(ScriptedService(A, [None]))  # type: ignore[list-item]
    watcher.start()
    assert "AttributeError: 'NoneType' object has no attribute" in str(failed(watcher))


def test_a_wrong_cluster_is_one_failure_that_names_it(make: Make) -> None:
    """Each new or changed entry is checked, an unchanged one is not: its files may be missing for a moment."""
    checked: list[str] = []

    def check(properties: Mapping[str, str]) -> None:
        checked.append(properties["bootstrap.servers"])
        if properties["bootstrap.servers"] == "wrong:1":
            raise ConfigurationError("Unknown Kafka property 'x'")

    wrong = [KafkaStream("s", {"c": ClusterMetadata(frozenset("a"), {"bootstrap.servers": "wrong:1"})})]
    service = ScriptedService(A, B, wrong, B)
    watcher = make(service, check=check)
    watcher.start()
    eventually(lambda: service.calls > 5)
    assert watcher.status()["last_error"] == "Cluster 'c': Unknown Kafka property 'x'"
    assert watcher.status()["failures"] == 1
    assert topics(watcher) == {"c": {"a", "b"}}
    assert checked == ["h:9092", "wrong:1"]


def test_first_start_with_failing_service_fails_at_once(make: Make) -> None:
    """The threshold is not applied: a query that cannot start says so, with the service's own reason."""
    service = ScriptedService(DOWN)
    watcher = make(service, failure_threshold=5)
    watcher.start()
    with pytest.raises(MetadataServiceError, match="registry is down") as caught:
        watcher.wait_first(10)
    assert caught.value is watcher.failure()
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert service.calls == 1


@pytest.mark.parametrize("interval_ms", [-1, 0, 2])
def test_resume_with_failing_service_retries_with_backoff(make: Make, interval_ms: int) -> None:
    """Also when the interval is -1: no failure is final before the first answer, however many there are."""
    service = ScriptedService(*[DOWN] * 6, A)
    watcher = make(service, interval_ms=interval_ms, failure_threshold=0)
    watcher.start(resuming=True, had_topics=True)
    assert watcher.wait_first(10) is not None
    status = watcher.status()
    assert (status["failures"], status["refreshes"] >= 1) == (6, True)
    assert watcher.failure() is None


def test_resume_applies_the_threshold_from_the_first_answer_on(make: Make) -> None:
    """The failures before it are forgotten."""
    service = ScriptedService(DOWN, DOWN, DOWN, A, DOWN)
    watcher = make(service)
    watcher.start(resuming=True)
    assert "failed 2 times in a row" in str(failed(watcher))
    assert service.calls == 6


def test_resume_backoff_doubles_up_to_its_limit(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """1, 2, 4 and so on up to 60 s (here a five-hundredth and less), as the log tells."""
    service = ScriptedService(*[DOWN] * 5, A)
    watcher = make(service, interval_ms=-1)
    watcher.start(resuming=True)
    watcher.wait_first(10)
    delays = [record.getMessage().partition("next attempt in ")[2].partition(" s")[0] for record in caplog.records]
    assert delays[:5] == ["0.002", "0.004", "0.008", "0.008", "0.008"]


def test_resume_goes_on_without_waiting(make: Make) -> None:
    """While the service is down, nobody waits: there is no snapshot, and no failure."""
    watcher = make(ScriptedService(DOWN))
    watcher.start(resuming=True)
    assert watcher.wait_first(0) is None
    eventually(lambda: watcher.status()["failures"] > 2)
    assert (watcher.snapshot(), watcher.failure(), watcher.status()["changes"]) == (None, None, 0)


# --- discovery interval -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interval_ms", [-1, 0])
def test_discovery_interval_of_zero_or_less_is_one_fetch_that_succeeded(make: Make, interval_ms: int) -> None:
    """Without a positive interval the service is asked once."""
    service = ScriptedService(A, B)
    watcher = make(service, interval_ms=interval_ms)
    watcher.start()
    assert watcher.wait_first(10) is not None
    assert watcher._next_fetch == float("inf")
    assert (service.calls, topics(watcher)) == (1, {"c": {"a"}})


def test_discovery_interval_follows_changes(make: Make) -> None:
    """With an interval, each changed answer is a new snapshot; an unchanged one is not."""
    service = ScriptedService(A, A, A, B)
    watcher = make(service)
    watcher.start()
    eventually(lambda: watcher.status()["changes"] == 2)
    assert topics(watcher) == {"c": {"a", "b"}}
    eventually(lambda: service.calls > 7)
    assert watcher.status()["changes"] == 2
    status = watcher.status()
    assert [change["text"] for change in watcher.events()] == [
        "cluster 'c' added",
        "stream 's' added",
        "stream 's', cluster 'c': added a",
        "stream 's', cluster 'c': added b",
    ]
    assert status["last_success_ms"] is not None
    assert abs(status["last_success_ms"] - time.time() * 1000) < 60_000


def test_changed_properties_are_a_new_snapshot(make: Make) -> None:
    """New credentials alone count as a change (Flink ignores them)."""
    rotated = [KafkaStream("s", {"c": ClusterMetadata(frozenset("a"), {"bootstrap.servers": "h:9092", "x": "2"})})]
    watcher = make(ScriptedService(A, rotated))
    watcher.start()
    eventually(lambda: watcher.status()["changes"] == 2)
    assert watcher.events()[-1]["text"] == "cluster 'c' changed: property 'x'"


def test_status_keeps_the_last_twenty_changes(make: Make) -> None:
    """Old changes are dropped."""
    watcher = make(ScriptedService(*[stream(f"t{i}") for i in range(30)]))
    watcher.start()
    eventually(lambda: watcher.status()["changes"] == 30)
    changes = watcher.events()
    assert (len(changes), changes[-1]["text"]) == (20, "stream 's', cluster 'c': added t29")


# --- empty answers ----------------------------------------------------------------------------------------------------


def test_empty_answer_is_believed_only_after_asking_again_at_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Removal of everything takes two equal answers, and is a warning with the difference."""
    service = ScriptedService(A, EMPTY)
    watcher = make(service)
    watcher.start()
    eventually(lambda: watcher.status()["changes"] == 2)
    assert topics(watcher) == {}

    def told() -> str:
        return "\n".join(r.getMessage() for r in caplog.records if r.levelno == logging.WARNING)

    eventually(lambda: "Metadata changed: cluster 'c' removed; stream 's' removed" in told())
    assert "without any topic; asking again" in told()
    eventually(lambda: watcher.status()["refreshes"] > 3)
    assert service.calls >= watcher.status()["refreshes"] + 1, "only the answer that removed everything is asked again"


@pytest.mark.parametrize("empty", [EMPTY, stream()])
def test_empty_answer_in_passing_changes_nothing(make: Make, empty: list[KafkaStream]) -> None:
    """If asking again gives the streams, they were never gone; a stream without topics is as empty as no stream."""
    service = ScriptedService(A, empty, A)
    watcher = make(service)
    watcher.start()
    eventually(lambda: service.calls > 4)
    assert (watcher.status()["changes"], topics(watcher)) == (1, {"c": {"a"}})


def test_empty_answer_followed_by_a_failure_is_one_failure(make: Make) -> None:
    """Nothing is removed on an unconfirmed answer."""
    service = ScriptedService(A, EMPTY, DOWN, A)
    watcher = make(service)
    watcher.start()
    eventually(lambda: watcher.status()["refreshes"] > 1)
    assert (watcher.status()["changes"], watcher.status()["failures"]) == (1, 1)


def test_empty_answer_on_resume_is_confirmed_if_the_checkpoint_has_clusters(make: Make) -> None:
    """The first answer of a run is compared with what the checkpoint knows."""
    service = ScriptedService(EMPTY, A)
    watcher = make(service, interval_ms=-1)
    watcher.start(resuming=True, had_topics=True)
    watcher.wait_first(10)
    assert (service.calls, topics(watcher)) == (2, {"c": {"a"}})


def test_empty_answer_on_first_start_is_an_answer(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """There is nothing to lose: streams may come later; the unknown ones are named."""
    service = ScriptedService(EMPTY)
    watcher = make(service, interval_ms=-1)
    watcher.start()
    snapshot = watcher.wait_first(10)
    assert snapshot is not None
    assert snapshot.is_empty
    assert (service.calls, watcher.status()["changes"]) == (1, 1)
    eventually(lambda: "does not know the streams s" in caplog.text)


def test_pattern_without_a_match_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The log names the pattern."""
    watcher = MetadataWatcher(
        ScriptedService(A), StreamPatternSubscriber("zzz"), interval_ms=-1, failure_threshold=1, check=accept
    )
    watcher.start()
    watcher.wait_first(10)
    watcher.close()
    assert "does not describe any stream that matches 'zzz'; check 'stream-pattern'" in caplog.text


# --- is_cluster_active ------------------------------------------------------------------------------------------------


def test_is_cluster_active_is_answered_from_a_cache(make: Make) -> None:
    """Tracked clusters are asked about again and again by the thread; others are taken for active."""
    service = ScriptedService(A)
    service.active = {"c": True, "d": False}
    watcher = make(service, interval_ms=-1)
    watcher.start()
    assert watcher.is_cluster_active("d") is True
    watcher.track(["c", "d", "unknown"])
    eventually(lambda: watcher._active == {"c": True, "d": False})
    assert watcher.is_cluster_active("d") is False
    assert watcher.is_cluster_active("c") is True
    assert watcher.is_cluster_active("unknown") is True
    service.active["c"] = False
    eventually(lambda: watcher.is_cluster_active("c") is False)
    watcher.track(["c"])
    assert watcher.is_cluster_active("d") is True
    assert watcher.failure() is None
    assert watcher.status()["failures"] == 0


# --- requests, threads and the end ------------------------------------------------------------------------------------


def test_request_refresh_asks_once_more(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when discovery is off; requests that come together are one."""
    monkeypatch.setattr(watcher_module, "_BACKOFF_S", (0.3, 0.3))  # both requests come well before the next attempt
    service = ScriptedService(A, B)
    watcher = make(service, interval_ms=-1)
    watcher.start()
    watcher.wait_first(10)
    watcher.request_refresh()
    watcher.request_refresh()
    eventually(lambda: watcher.status()["changes"] == 2)
    assert (service.calls, watcher._next_fetch) == (2, float("inf"))


def test_request_refresh_that_fails_with_discovery_off_is_not_final(make: Make) -> None:
    """Who wanted one answer has it; the failure is shown, and the next request asks again."""
    service = ScriptedService(A, DOWN, DOWN, B)
    watcher = make(service, interval_ms=-1)
    watcher.start()
    watcher.wait_first(10)
    for failures in (1, 2):
        watcher.request_refresh()
        eventually(lambda n=failures: watcher.status()["failures"] == n)  # type: ignore[misc]
    assert watcher.failure() is None
    watcher.request_refresh()
    eventually(lambda: watcher.status()["changes"] == 2)
    assert service.calls == 4


def test_request_refresh_during_a_fetch_asks_again_after_it(make: Make) -> None:
    """The answer under way may be older than the reason for the request."""
    service = ScriptedService(A, B)
    service.gate.clear()
    watcher = make(service, interval_ms=-1)
    watcher.start()
    eventually(lambda: service.calls == 1)
    assert watcher.status()["asking_since_ms"] is not None
    watcher.request_refresh()
    service.gate.set()
    eventually(lambda: watcher.status()["changes"] == 2)
    assert watcher.status()["asking_since_ms"] is None


def test_request_refresh_does_not_hammer_the_service(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request within a second of the last attempt waits for that second to pass."""
    monkeypatch.setattr(watcher_module, "_BACKOFF_S", (60.0, 60.0))
    service = ScriptedService(A, B)
    watcher = make(service, interval_ms=-1)
    watcher.start()
    watcher.wait_first(10)
    watcher.request_refresh()
    assert 50 < watcher._next_fetch - time.monotonic() <= 60
    assert service.calls == 1


def test_all_calls_come_from_one_daemon_thread_that_closes_the_service(make: Make) -> None:
    """A service needs no locks."""
    service = ScriptedService(A, DOWN, A)
    service.active = {"c": True}
    watcher = make(service)
    watcher.track(["c"])
    watcher.start()
    eventually(lambda: service.calls > 3)
    assert watcher._thread.daemon
    watcher.close()
    assert (service.closed, service.callers) == (1, {"dynamic-kafka-metadata"})


def test_nothing_waits_for_a_service_that_hangs(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the snapshot, status and activity, requesting and closing all go on; close waits a bounded time."""
    monkeypatch.setattr(watcher_module, "_CLOSE_S", 0.1)
    service = ScriptedService(A)
    service.gate.clear()
    watcher = make(service)
    watcher.start()
    eventually(lambda: service.calls == 1)
    assert watcher.wait_first(0.01) is None
    watcher.request_refresh()
    watcher.track(["c"])
    assert (watcher.snapshot(), watcher.failure(), watcher.is_cluster_active("c")) == (None, None, True)
    watcher.close()
    assert watcher.wait_first(10) is None, "a closed watcher wakes those who wait"
    service.gate.set()
    eventually(lambda: service.closed)


def test_failure_ends_the_thread_and_closes_the_service(make: Make) -> None:
    """After a final failure the service is left alone."""
    service = ScriptedService(DOWN)
    watcher = make(service)
    watcher.start()
    failed(watcher)
    eventually(lambda: service.closed)
    watcher.request_refresh()
    watcher.close()
    assert (service.calls, service.closed) == (1, 1)


def test_watcher_that_was_never_started_closes_its_service(make: Make) -> None:
    """Whoever made it may always close it."""
    service = ScriptedService(A)
    make(service).close()
    assert service.closed == 1
