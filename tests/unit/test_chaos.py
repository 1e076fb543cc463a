"""The pure parts of the fault campaign (`make chaos`): drawing, the books, the judgement, the report; and the proxy."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos import faults as _faults  # noqa: F401  declares them
from tests.chaos import report
from tests.chaos.declared import FAULTS, GOES_ON, Outcome, Seen, draw, first_line, judge, stops
from tests.chaos.ledger import Balance, Ledger, Place
from tests.chaos.proxy import STUCK, Condition, Link

from dynamic_kafka import errors
from dynamic_kafka.testing.configuration import free_ports

PLACE = Place("a", "t", 0, 0)


def test_there_are_many_faults_and_each_one_says_what_it_is() -> None:
    """At least fifty, a sentence each; the short campaign draws from the cheap ones, which run in a small world."""
    assert len(FAULTS) >= 50
    assert all(fault.what.endswith((".", ")")) and fault.outcome.words for fault in FAULTS.values())
    cheap = [fault for fault in FAULTS.values() if fault.cheap]
    assert len(cheap) >= 10
    assert not any(fault.needs for fault in cheap)


def test_expected_errors_exist() -> None:
    """An outcome that names an error names one of `dynamic_kafka.errors`."""
    named = {
        name
        for fault in FAULTS.values()
        if fault.outcome.has_to_stop
        for name in fault.outcome.error.replace(r"\b", "").strip("()").split("|")
    }
    assert named >= {"DataLossError", "CheckpointError"}
    assert [name for name in named if not hasattr(errors, name)] == []


def test_a_seed_gives_the_same_faults_again_and_each_once_before_any_again() -> None:
    """The order depends on the seed only."""
    faults = list(FAULTS.values())
    first = list(itertools.islice(draw(faults, 7), 2 * len(faults)))
    assert first == list(itertools.islice(draw(faults, 7), 2 * len(faults)))
    assert first != list(itertools.islice(draw(faults, 8), 2 * len(faults)))
    assert {fault.name for fault in first[: len(faults)]} == set(FAULTS)


def test_a_row_that_does_not_come_is_lost_and_told_once() -> None:
    """Rows written later are not looked at yet; a row that comes after all is no news."""
    books = Ledger()
    for number in range(3):
        books.write(number, PLACE)
    books.publish(0)
    assert books.missing(2) == [1]
    assert books.balance(2) == Balance(lost=(1,))
    assert books.balance(2) == Balance()
    books.publish(1)
    books.publish(2)
    assert books.balance(9) == Balance()


def test_a_row_that_comes_twice_is_told_once() -> None:
    """However often it comes."""
    books = Ledger()
    books.write(0, PLACE)
    for _ in range(3):
        books.publish(0)
    assert books.balance(1) == Balance(twice=(0,))
    books.publish(0)
    assert books.balance(1) == Balance()


def test_a_row_may_be_published_before_its_acknowledgement_is_known() -> None:
    """Then it is not waited for."""
    books = Ledger()
    books.publish(0)
    books.write(0, PLACE)
    assert books.missing(1) == []


def test_destroyed_rows_are_missing_without_being_lost() -> None:
    """Those that were read before come all the same, and count as there."""
    books = Ledger()
    for number in range(4):
        books.write(number, Place("ab"[number % 2], "t", 0, number))
    assert books.destroy(lambda place: place.cluster == "a") == 2
    books.publish(0)
    assert books.missing(4) == [1, 3]
    assert books.balance(4) == Balance(lost=(1, 3), destroyed=(2,))


@pytest.mark.parametrize(
    ("outcome", "seen", "balance", "verdict"),
    [
        (GOES_ON, Seen(recovery_s=3), Balance(), "ok"),
        (GOES_ON, Seen(recovery_s=91), Balance(), "recovers after 90 s"),
        (GOES_ON, Seen(recovery_s=3, broken=["1 rows lost under exact"]), Balance(), "1 rows lost under exact"),
        (GOES_ON, Seen(["DataLossError: x"], 3), Balance(), "stops"),
        (GOES_ON, Seen(recovery_s=None), Balance(lost=(1, 2)), "2 rows lost, does not recover"),
        (GOES_ON, Seen(flows=False), Balance(lost=(1,)), "1 rows do not come, does not go on"),
        (GOES_ON, Seen(recovery_s=3), Balance(twice=(1,)), "1 rows twice"),
        (Outcome("w", error="A"), Seen(recovery_s=3), Balance(), "ok"),
        (Outcome("w", error="A"), Seen(["B"], 3), Balance(), "another error"),
        (stops("DataLossError", lambda *_: {}, "w"), Seen(recovery_s=3), Balance(), "does not stop"),
        (
            stops("DataLossError", lambda *_: {}, "w", reports="count"),
            Seen(
                ["DataLossError: of 't'"],
                3,
                reports=["Partition 1, offsets [0, 1000): 1,000 records", "200 offsets are given up"],
            ),
            Balance(destroyed=tuple(range(1200))),
            "ok",
        ),
        (
            stops("DataLossError", lambda *_: {}, "w", reports="count"),
            Seen(["DataLossError: of 't'"], 3, reports=["1,000 records of t"]),
            Balance(destroyed=tuple(range(1200))),
            "1200 destroyed rows are not reported as such",
        ),
        (
            stops("DataLossError", lambda *_: {}, "w", reports="recreated|deleted"),
            Seen(["DataLossError: of 't'"], 3, reports=["Topic 't' was recreated"]),
            Balance(destroyed=(1,)),
            "ok",
        ),
        (
            stops("DataLossError", lambda *_: {}, "w", reports="recreated|deleted"),
            Seen(["DataLossError: of 't'"], 3),
            Balance(destroyed=(1,)),
            "1 destroyed rows are not reported",
        ),
    ],
)
def test_a_fault_is_judged_by_what_was_seen(outcome: Outcome, seen: Seen, balance: Balance, verdict: str) -> None:
    """Everything that is wrong is named."""
    assert judge(outcome, seen, balance) == verdict


def test_the_line_of_an_error_that_says_most() -> None:
    """Our own error in the middle of what Spark makes of it; else any error; else the last line."""
    spark = "[STREAM_FAILED] Query terminated with exception: Job aborted\nTraceback ...\nRuntimeError: left\n"
    own = "dynamic_kafka.errors.DataLossError: 3 records of 't' were deleted\n\tat org.apache.spark\n"
    assert first_line(spark + own) == "DataLossError: 3 records of 't' were deleted"
    assert first_line(spark) == "RuntimeError: left"
    assert first_line("one\ntwo\n") == "two"
    assert first_line("") == ""


def test_results_accumulate_and_make_the_report(tmp_path: Path) -> None:
    """Each fault has a row: how often it ran, the worst of it, and how it went; skipped ones do not count."""
    path, page = tmp_path / "results.json", tmp_path / "reliability.md"
    first = [
        report.Result("broker-killed", "ok", rows=100, recovery_s=4.0),
        report.Result("disk-full", "skipped: needs mount"),
    ]
    second = [
        report.Result("broker-killed", "2 rows lost", rows=50, lost=2, recovery_s=30.4, errors=("DataLossError: of t",))
    ]
    report.write(report.add(report.load(path), first, 60), FAULTS, path, page)
    report.write(report.add(report.load(path), second, 120), FAULTS, path, page)
    found = report.load(path)
    assert [result.verdict for result in found.results] == ["ok", "2 rows lost"]
    assert (found.seconds, found.rows) == (180, 150)
    text = page.read_text()
    assert (
        "2 faults in 3 minutes, 150 rows. 1 went as expected. 2 rows lost, 0 rows twice. Slowest recovery: 30 s."
        in text
    )
    (row,) = (line for line in text.splitlines() if line.startswith("| `broker-killed` |"))
    assert row.endswith("| as expected; **2 rows lost**, stops with DataLossError | 2 | 2 | 0 | 4.0 s to 30 s |")
    assert "| not tried yet | 0 | 0 | 0 |  |" in text


@pytest.fixture(name="link")
def _link() -> Iterator[Link]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = Link(next(free_ports()), server.getsockname())
        link.server = server  # type: ignore[attr-defined]
        yield link.open()
        link.close()


def connected(link: Link) -> tuple[socket.socket, socket.socket]:
    """The two ends of a connection through the link."""
    near = socket.create_connection(("127.0.0.1", link.port), timeout=5)
    near.settimeout(5)
    far, _ = link.server.accept()  # type: ignore[attr-defined]
    far.settimeout(5)
    return near, far


def test_an_open_link_passes_bytes_and_ends_on(link: Link) -> None:
    """In both directions, and when one side closes the other one sees it."""
    near, far = connected(link)
    near.sendall(b"there")
    assert far.recv(10) == b"there"
    far.sendall(b"back")
    assert near.recv(10) == b"back"
    far.close()
    assert near.recv(10) == b""
    near.close()


def test_a_slow_link_takes_its_time(link: Link) -> None:
    """What is sent arrives later, whole."""
    link.set(Condition(delay_s=0.2))
    near, far = connected(link)
    began = time.monotonic()
    near.sendall(b"slow")
    assert far.recv(10) == b"slow"
    assert time.monotonic() - began >= 0.2
    near.close()
    far.close()


def test_a_cut_link_resets_and_refuses_until_it_is_whole(link: Link) -> None:
    """Existing connections end with a reset, new ones are refused."""
    near, far = connected(link)
    link.cut()
    with pytest.raises(ConnectionResetError):
        near.recv(10)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", link.port), timeout=5)
    far.close()
    near.close()
    link.restore()
    for end in connected(link):
        end.close()


def test_nothing_arrives_over_a_stuck_link_until_it_is_whole(link: Link) -> None:
    """The connection stays, and nothing that was sent is lost."""
    near, far = connected(link)
    link.set(STUCK)
    near.sendall(b"late")
    far.settimeout(0.2)
    with pytest.raises(TimeoutError):
        far.recv(10)
    link.restore()
    far.settimeout(5)
    assert far.recv(10) == b"late"
    near.close()
    far.close()


def test_a_half_open_connection_is_dead_and_a_new_one_works(link: Link) -> None:
    """The old one gets neither bytes nor an end."""
    near, far = connected(link)
    link.half_open()
    near.sendall(b"lost")
    far.settimeout(0.2)
    with pytest.raises(TimeoutError):
        far.recv(10)
    new_near, new_far = connected(link)
    new_near.sendall(b"new")
    assert new_far.recv(10) == b"new"
    for end in (near, far, new_near, new_far):
        end.close()
