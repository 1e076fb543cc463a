"""What `dynamic-kafka lag` makes of what it sees: sums, the worst first, trends, limits, and what is not known."""

from __future__ import annotations

import json
import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.commands import Run, runner
from tests.engine import write_checkpoint
from tests.observed import cluster, source, topic

from dynamic_kafka.cli.job import Target
from dynamic_kafka.cli.lag import command as lag
from dynamic_kafka.cli.lag import of_checkpoint
from dynamic_kafka.cli.lag.lags import By, Look, PartitionLag, exceeds, rows_of
from dynamic_kafka.cli.lag.of_checkpoint import properties_for
from dynamic_kafka.cli.lag.of_query import QueryLag, look_of
from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.kafka.cluster import TopicInfo
from dynamic_kafka.observe.model import Model
from dynamic_kafka.observe.server import MetricsServer
from dynamic_kafka.source.document.document import ClusterOffsets, Document
from dynamic_kafka.source.document.offsets import encode

ROOT = Path(__file__).parents[3]


def part(name: str, number: int, behind: int | None, seconds: float | None = None) -> PartitionLag:
    """A partition `cluster/topic` that is behind; None if that is not known."""
    cluster_name, _, topic_name = name.partition("/")
    if behind is None:
        return PartitionLag(cluster_name, topic_name, number, 100, reason="it is unreachable")
    return PartitionLag(cluster_name, topic_name, number, 100, 100 + behind, seconds=seconds)


# --- sums, order and trend ----------------------------------------------------------------------------------------------


def test_the_worst_comes_first_and_the_unknown_before_it() -> None:
    """By age, then by lag. A lag that is not known is never 0."""
    look = Look(
        0,
        (
            part("ewr/a", 0, 5, 9.0),
            part("ewr/a", 1, 500, 3.0),
            part("ewr/b", 0, 0, 0.0),
            part("jfk/a", 0, 7, 70.0),
            part("lga/a", 0, None),
        ),
        {"lga": "it is unreachable", "mia": "never seen"},
    )
    by_topic = rows_of([look], "topic")
    assert [row.key for row in by_topic] == [("lga", "a"), ("mia",), ("jfk", "a"), ("ewr", "a"), ("ewr", "b")]
    assert [(row.lag, row.seconds) for row in rows_of([look], "cluster")] == [
        (None, None),
        (None, None),
        (7, 70.0),
        (505, 9.0),
    ]
    assert next(row.key for row in rows_of([look], "partition")) == ("lga", "a", "0")
    (hot,) = [row for row in by_topic if row.key == ("ewr", "a")]
    assert hot.note == "99% of it in a/1"
    assert (look.lag, look.known_lag, look.unknown, look.seconds) == (None, 512, 1, 70.0)


def test_a_sum_says_what_it_lacks() -> None:
    """The known part, how many partitions are not in it, and why."""
    (row,) = rows_of([Look(0, (part("ewr/a", 0, 5), part("ewr/a", 1, None)))], "topic")
    assert (row.lag, row.unknown, row.note) == (5, 1, "1 partitions are not known: it is unreachable")


def looks(*lags: int | None, every_ms: int = 10_000) -> list[Look]:
    """Looks at one partition."""
    return [Look(i * every_ms, (part("ewr/a", 0, behind),)) for i, behind in enumerate(lags)]


@pytest.mark.parametrize(
    ("lags", "per_second", "clear_s"),
    [
        ((100,), None, None),
        ((100, 50), -5.0, 10.0),
        ((100, 80, 60), -2.0, 30.0),
        ((100, 200), 10.0, None),
        ((100, 100), 0.0, None),
        ((100, 0), -10.0, None),
        ((None, 100), None, None),
        ((100, None, 80), -1.0, 80.0),
        ((100, None), None, None),
    ],
)
def test_the_trend_and_the_time_to_clear(
    lags: tuple[int | None, ...], per_second: float | None, clear_s: float | None
) -> None:
    """From the first look at what is known to the last one; a look without it is left out."""
    for by in ("cluster", "topic", "partition"):
        (row,) = rows_of(looks(*lags), by)
        assert (row.per_second, row.clear_s) == (per_second, clear_s)


@pytest.mark.parametrize(
    ("lags", "per_second", "swing"),
    [
        ((0, 900, 0, 900, 0, 900), None, (0, 900)),  # batches: the first and the last look would say that it grows
        ((900, 0, 900, 0, 900, 0), None, (0, 900)),  # or that it will be clear soon
        ((1000, 1400, 1000, 1500, 1100), None, (1000, 1500)),
        ((9000, 8100, 8000, 7100, 7000, 6100, 6000), -50.0, None),
        ((0, 100, 200, 300), 10.0, None),
        ((5, 5, 5, 5), 0.0, None),
        ((100, 0, 100), 0.0, None),  # too few to tell
    ],
)
def test_a_lag_that_swings_has_no_trend(
    lags: tuple[int, ...], per_second: float | None, swing: tuple[int, int] | None
) -> None:
    """Unless it falls or grows by more than it swings; without a trend there is no time to clear."""
    (row,) = rows_of(looks(*lags), "topic")
    assert row.per_second == pytest.approx(per_second)
    assert row.swing == swing
    assert (row.clear_s is None) == (per_second is None or per_second >= 0)


def test_the_trend_is_that_of_the_last_minutes() -> None:
    """What was an hour ago does not matter."""
    (row,) = rows_of(looks(0, 0, 1000, 900, every_ms=200_000), "topic")
    assert row.per_second == -0.5


def test_a_driver_remembers_earlier_lags() -> None:
    """So one look is enough for the trend of its clusters."""
    look = Look(60_000, (part("ewr/a", 0, 400),), past={"ewr": ((0, 1000), (30_000, 700))})
    (row,) = rows_of([look], "cluster")
    assert (row.per_second, row.clear_s) == (-10.0, 40.0)
    assert rows_of([look], "topic")[0].per_second is None


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("tu"), st.none() | st.integers(0, 9)), max_size=9))
def test_sums_add_up(found: list[tuple[str, str, int | None]]) -> None:
    """Whatever a row is about, all rows together are the total."""
    look = Look(0, tuple(part(f"{c}/{t}", i, behind) for i, (c, t, behind) in enumerate(found)))
    for by in ("cluster", "topic", "partition"):
        rows = rows_of([look], by)
        assert sum(row.lag or 0 for row in rows) == look.known_lag
        assert sum(row.unknown for row in rows) == look.unknown
        assert sum(row.partitions for row in rows) == len(look.partitions)
    assert look.lag == (None if look.unknown else look.known_lag)


def test_an_age_that_lacks_some_is_a_least_one() -> None:
    """Of partitions with something to read; the text says so, and JSON counts them. Without any known age there is none."""
    look = Look(0, (part("a/t", 0, 9, 5.0), part("a/t", 1, 2), part("a/u", 0, 0, 0.0), part("a/u", 1, 2)))
    assert (look.seconds, look.ageless) == (5.0, 2)
    rows = {row.key[1]: (row.seconds, row.ageless, lag._shown(row, "topic")["AGE"]) for row in rows_of([look], "topic")}
    assert rows == {"t": (5.0, 1, "at least 5 s"), "u": (None, 1, None)}
    assert "the oldest one to read is at least 5 s old" in lag._sentence(look)
    document = lag._document(look, rows_of([look], "topic"), "topic")
    assert [document["unknown_ages"], *(row["unknown_ages"] for row in document["rows"])] == [2, 1, 1]


@pytest.mark.parametrize(
    ("partitions", "max_lag", "max_seconds", "said"),
    [
        ([part("a/t", 0, 10, 5.0)], None, None, ""),
        ([part("a/t", 0, 10, 5.0)], 10, 5.0, ""),
        ([part("a/t", 0, 10, 5.0)], 9, None, "the lag is 10, more than 9"),
        ([part("a/t", 0, 10, 65.0)], None, 60.0, "is 65 s old, more than 60"),
        ([part("a/t", 0, 10)], None, 60.0, "the age of the next record is not known for 1 partitions"),
        ([part("a/t", 0, 0, 0.0), part("b/t", 0, None)], 10, None, "the lag of 1 partitions is not known"),
    ],
)
def test_limits(partitions: list[PartitionLag], max_lag: int | None, max_seconds: float | None, said: str) -> None:
    """What is not known does not keep a limit."""
    why = exceeds(Look(0, tuple(partitions)), max_lag, max_seconds)
    assert (why == "") == (said == "")
    assert said in why


# --- a checkpoint -------------------------------------------------------------------------------------------------------


def test_properties_come_from_the_options_of_today() -> None:
    """A cluster may have another name there: it is known by a broker. Without options the checkpoint has to do."""
    stored = {"bootstrap.servers": "a:1,b:1"}
    other, same = Target("jfk", {"bootstrap.servers": "j:1"}), Target("new", {"bootstrap.servers": "b:1, c:1"})
    named = Target("ewr", {"bootstrap.servers": "moved:1"})
    assert properties_for("ewr", stored, [], {"sasl.password": "x"}) == {**stored, "sasl.password": "x"}
    assert properties_for("ewr", stored, [other, same], {}) == same.properties
    assert properties_for("ewr", stored, [other, same, named], {}) == named.properties
    assert properties_for("ewr", stored, [other], {}) == stored


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `dynamic-kafka lag`: its exit code, and what it wrote to the two outputs."""
    return runner(capsys, "lag")


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A checkpoint after batch 0, of a cluster at an address where nothing listens."""
    return written(tmp_path, ewr=state_of("127.0.0.1:1", ("t", 0), ("t", 1)))


def state_of(servers: str, *partitions: tuple[str, int], **more: Any) -> ClusterOffsets:
    """A cluster's part of a document, with positions at offset 10."""
    ranges = {KafkaTopicPartition(*tp): (0, 10) for tp in partitions}
    return ClusterOffsets("", {"bootstrap.servers": servers}, topics={t: "" for t, _ in ranges}, ranges=ranges, **more)


def written(folder: Path, **clusters: ClusterOffsets) -> str:
    """A checkpoint after batch 0."""
    document = Document({"s": {name: frozenset(state.topics) for name, state in clusters.items()}}, clusters)
    return write_checkpoint(folder, [json.dumps(encode(document))])


def test_a_cluster_that_was_never_reached_is_unknown(run: Run, tmp_path: Path) -> None:
    """No topic of it is known, so it has a row of its own, and the exit code says so."""
    code, out, _ = run(written(tmp_path, mia=ClusterOffsets(since_ms=5)), "--output", "json")
    found = json.loads(out)
    assert (code, list(found["unreachable"]), found["rows"][0]["lag"]) == (1, ["mia"], None)
    assert "has not reached it yet" in found["rows"][0]["note"]


@pytest.mark.parametrize(
    ("options", "others"),
    [
        ([], [("t", 1), ("unseen", 0), ("unseen", 1)]),
        (["subscribe=t,listed"], [("listed", 0), ("listed", 1), ("t", 1), ("unseen", 0), ("unseen", 1)]),
        (["subscribePattern=listed|t"], [("listed", 0), ("listed", 1), ("t", 1), ("unseen", 0), ("unseen", 1)]),
        (['assign={"t": [0], "unseen": [0]}'], [("unseen", 0)]),
    ],
)
def test_what_the_checkpoint_does_not_have_is_unknown(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], others: list[tuple[str, int]]
) -> None:
    """Partitions beside those with a position, topics that were never seen, and what only the options name."""
    infos = {name: TopicInfo("", (1, 1)) for name in ("t", "unseen", "listed")}
    connection = SimpleNamespace(
        kafka_id=lambda: "",
        topics=lambda names: ({name: infos[name] for name in names}, frozenset()),
        matching_topics=lambda pattern: {name for name in infos if pattern.fullmatch(name)},
        available_ends=lambda tps, _: dict.fromkeys(tps, 10),
        close=lambda: None,
    )
    monkeypatch.setattr(of_checkpoint, "ClusterConnection", lambda *_, **__: connection)
    place = written(tmp_path, ewr=state_of("here:1", ("t", 0), discovered=True, unseen={"unseen": 0}))
    given = [word for option in options for word in ("-o", "kafka.bootstrap.servers=here:1", "-o", option)]
    code, out, _ = run(place, "--by", "partition", "--output", "json", *given)
    rows = sorted((row["topic"], row["partition"], row["lag"]) for row in json.loads(out)["rows"])
    assert (code, rows) == (1, sorted([("t", 0, 0), *((*tp, None) for tp in others)]))


def test_a_cluster_that_only_the_options_name_is_unknown(run: Run, checkpoint: str) -> None:
    """It has no positions to compare with."""
    code, out, _ = run(checkpoint, "-o", "kafka.bootstrap.servers=a:1", "-o", "subscribe=t", "--timeout", "0.1")
    assert code == 1
    assert "the checkpoint has no positions in it" in out


def test_a_cluster_that_does_not_answer_is_unknown(run: Run, checkpoint: str) -> None:
    """With the reason, never 0; and the exit code says so."""
    code, out, err = run(checkpoint, "--timeout", "0.5", "--output", "json")
    assert (code, err) == (1, "")
    found = json.loads(out)
    assert (found["lag"], found["known_lag"], found["unknown_partitions"]) == (None, 0, 2)
    assert "does not answer" in found["unreachable"]["ewr"]
    (row,) = found["rows"]
    assert (row["cluster"], row["topic"], row["lag"], row["age_s"], row["unknown_partitions"]) == (
        "ewr",
        "t",
        None,
        None,
        2,
    )
    assert "does not answer" in row["note"]
    code, out, err = run(checkpoint, "--timeout", "0.5", "--by", "cluster", "--max-lag", "5")
    assert code == 1
    assert out.splitlines()[0].split() == ["CLUSTER", "PARTITIONS", "LAG", "AGE", "TREND", "CLEAR", "IN", "NOTE"]
    assert out.splitlines()[1].split()[:3] == ["ewr", "2", "unknown"]
    assert "not known: 2 partitions (clusters: 1)" in out
    assert "the lag of 2 partitions is not known" in err


def test_wrong_properties_of_one_cluster_are_its_reason(run: Run, checkpoint: str) -> None:
    """And no secret is shown."""
    code, out, err = run(checkpoint, "--property", "sasl.passwrd=hunter2", "--output", "json")
    assert code == 1
    assert "Unknown Kafka property 'sasl.passwrd'" in json.loads(out)["unreachable"]["ewr"]
    assert "hunter2" not in out + err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Give the checkpoint of the query, or --url"),
        (["/c", "--url", "http://here:1"], "Give the checkpoint of the query, or --url"),
        (["--url", "here:1"], "is not an address such as"),
        (["--url", "http://me:hunter2@here:1"], "is not an address such as"),
        (["--url", "http://here:1", "-o", "subscribe=a"], "the driver asks the clusters itself"),
        (["/c", "--query", "q"], "--query is for --url"),
        (["/c", "--max-lag", "-1"], "expected a whole number"),
        (["/c", "--once", "--watch", "1"], "not allowed with"),
        (["/c", "--watch", "86400"], "less than a day"),
        (["/c", "--max-seconds", "inf"], "expected seconds"),
    ],
)
def test_wrong_usage(run: Run, arguments: list[str], said: str) -> None:
    """Exit code 2, and what is wrong."""
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert "hunter2" not in err


def test_an_age_may_be_days(run: Run, checkpoint: str) -> None:
    """Unlike a time-out."""
    code, _, err = run(checkpoint, "--max-seconds", "864000", "--timeout", "0.1")
    assert code == 1
    assert "the lag of 2 partitions is not known" in err


# --- a driver's port ----------------------------------------------------------------------------------------------------


def status_of(*reports: Any, now_ms: int = 20_000) -> Any:
    """The status after reports that arrived at 10 s."""
    model = Model(0)
    for report in reports:
        model.report(report, 10_000)
    return json.loads(json.dumps(model.status(now_ms, lambda _cluster, _topic: True)))


def test_a_status_becomes_the_lag() -> None:
    """Positions and ends of all partitions; what is unreachable is not known, although the driver has its last numbers."""
    east = cluster("east", topic("orders", current=(10, 10), end=(15, 10)))
    west = cluster("west", topic("orders", end=(99,)), state="unreachable", reason="nobody answers")
    found = look_of(status_of(source(east, west)), None)
    assert found.silent == {"west": "nobody answers"}
    assert [(p.cluster, p.partition, p.lag, p.reason) for p in sorted(found.partitions, key=lambda p: p.cluster)] == [
        ("east", 0, 5, ""),
        ("east", 1, 0, ""),
        ("west", 0, None, "nobody answers"),
    ]
    assert found.notes[0].startswith("Query 'orders' is degraded")


def test_a_query_that_is_silent_is_not_known() -> None:
    """What it said last is no longer true."""
    found = look_of(status_of(source(cluster("east", topic(end=(15,)))), now_ms=40_000), None)
    assert found.unknown == 1
    assert "the query is silent" in found.silent["east"]


def places(found: Any) -> Iterator[tuple[Any, Any]]:
    """All parts of a JSON document, as what they are in and their key there."""
    for key in list(found) if isinstance(found, dict) else range(len(found)) if isinstance(found, list) else ():
        yield found, key
        yield from places(found[key])


def test_an_answer_with_a_part_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no status, or the lag of what is left; never a fault of this program."""
    east = cluster("east", topic("orders", current=(10, 10), end=(15, 10)))
    status = status_of(source(east, cluster("west", topic(end=(9,)), state="unreachable", reason="it does not answer")))
    history = status["queries"][0]["sources"][0]["clusters"][0]["history"]
    history["times_ms"], history["pending_records"] = [11_000, 12_000, 13_000, 14_000], [1, 2, 3, 4]
    monkeypatch.setattr(QueryLag, "_answer", lambda _: json.dumps(status).encode())
    asked = QueryLag("http://here:1", None, timeout_s=1)
    bys: tuple[By, ...] = ("cluster", "topic", "partition")
    refused = set()
    for (around, key), wrong in product(
        [*places(status)], [math.nan, math.inf, "1", None, True, 10**400, 2**60, 0.5, [], {}, ["1"]]
    ):
        before, around[key] = around[key], wrong
        try:
            look = asked.look()
        except DynamicKafkaError:
            refused.add((key, str(wrong)))
        else:
            exceeds(look, 1, 10.0)
            for by in bys:
                rows = rows_of([look], by)
                json.dumps([lag._document(look, rows, by), [lag._shown(row, by) for row in rows], lag._sentence(look)])
        around[key] = before
    assert refused >= {("lag_s", "nan"), ("lag_s", "1"), ("end", "1"), ("time_ms", "None"), ("cluster", "None")}
    assert ("cluster", "1") not in refused  # a name


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    """A server without any query."""
    made = MetricsServer("127.0.0.1", 0)
    threading.Thread(target=made.serve_forever, args=[0.05], daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def now_ms() -> int:
    """The time."""
    return int(time.time() * 1000)


def test_the_port_of_a_driver(run: Run, server: MetricsServer) -> None:
    """The same table as from a checkpoint, and the limits."""
    url = f"http://127.0.0.1:{server.port}"
    code, _, err = run("--url", url)
    assert code == 2
    assert "The driver has no query" in err
    server.take(source(cluster("east", topic("orders", current=(10, 10), end=(15, 10)), seen_ms=now_ms())))
    code, out, err = run("--url", f"{url}/", "--by", "partition")
    assert (code, err) == (0, "")
    head, first, second, total, note = out.splitlines()
    assert head.split()[:6] == ["CLUSTER", "TOPIC", "PARTITION", "POSITION", "END", "LAG"]
    assert first.split()[:6] == ["east", "orders", "0", "10", "15", "5"]
    assert second.split()[:6] == ["east", "orders", "1", "10", "10", "0"]
    assert total.startswith("Records to read: 5 in 2 partitions")
    assert note == "Query 'orders' is running"
    code, _, err = run("--url", url, "--max-lag", "4")
    assert (code, err) == (1, "dynamic-kafka: warning: the lag is 5, more than 4\n")
    code, _, err = run("--url", url, "--query", "payments")
    assert code == 2
    assert "no such query; give --query with one of: 'orders'" in err


@pytest.mark.parametrize("begin", [b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\nX: "])
def test_a_server_that_drips_is_left(run: Run, begin: bytes) -> None:
    """The time limit is for the whole answer, not for each byte of it."""
    left = threading.Event()

    def drip() -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.sendall(begin)
                while not left.wait(0.05):
                    connection.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip)
        thread.start()
        began_s = time.monotonic()
        code, _, err = run("--url", f"http://127.0.0.1:{listener.getsockname()[1]}", "--timeout", "0.5")
        took_s = time.monotonic() - began_s
        left.set()
    thread.join()
    assert code == 1
    assert "does not answer (not within 0.5 s, see --timeout)" in err
    assert took_s < 5


def test_watching_is_one_json_line_for_each_look(
    run: Run, server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until Ctrl-C; a look that fails is a warning."""
    server.take(source(cluster("east", topic(end=(15,)), seen_ms=now_ms())))
    naps = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 2:
            server.shutdown()
            server.server_close()
        if len(naps) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(lag, "sleep", sleep)
    code, out, err = run("--url", f"http://127.0.0.1:{server.port}", "--watch", "7", "--output", "json")
    assert (code, naps) == (130, [7.0, 7.0, 7.0])
    assert [json.loads(line)["lag"] for line in out.splitlines()] == [5, 5]
    assert "does not answer" in err


def test_the_document_shows_what_the_command_prints(run: Run) -> None:
    """Headings and exit codes are those of the code; --help has examples."""
    text = (ROOT / "docs" / "reference" / "cli.md").read_text()
    for shown in ("CLEAR IN", "TREND", "--max-seconds", "unknown_partitions", "Records to read: "):
        assert shown in text
    code, out, _ = run("--help")
    assert code == 0
    assert "dynamic-kafka lag --url http://127.0.0.1:9250 --watch 5" in out
