"""Transactional ids on one machine: how many there are, and who may use which one when."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dynamic_kafka.sink import transactional_ids as module
from dynamic_kafka.sink.ids import belongs_to
from dynamic_kafka.sink.transactional_ids import Slot, Slots

Start = Callable[..., "Worker"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of the test's own, for this process and its children."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


class Worker:
    """Another process: takes a slot, says its name, and lives until it is ended, without a word to anybody.

    Args:
        generation: Whose task it is.
        state: How far it comes with the slot.
        chain: The chain of claims.
    """

    SCRIPT = textwrap.dedent("""
        import sys
        from dynamic_kafka.sink.transactional_ids import Slots

        chain, generation, state = sys.argv[1], int(sys.argv[2]), sys.argv[3]
        slot = Slots("p", "c").take(chain, generation)
        if state != "starting":
            slot.write(state, chain, generation)
        print(slot.name, flush=True)
        sys.stdin.read()
    """)

    def __init__(self, generation: int, state: str = "used", chain: str = "x") -> None:
        command = [sys.executable, "-c", self.SCRIPT, chain, str(generation), state]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def name(self) -> str:
        """The id it took; waits for it."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts workers, and ends them after the test."""
    workers: list[Worker] = []

    def make(generation: int, state: str = "used", chain: str = "x") -> Worker:
        workers.append(Worker(generation, state, chain))
        return workers[-1]

    yield make
    for worker in workers:
        worker.kill()


def number(slot: Slot | str) -> int:
    """The number of a slot."""
    return int((slot if isinstance(slot, str) else slot.name).rpartition("-")[2])


def use(slots: Slots, generation: int, chain: str = "x") -> Slot:
    """A slot with a transaction."""
    slot = slots.take(chain, generation)
    slot.write("used", chain, generation)
    return slot


# --- one process --------------------------------------------------------------------------------------------------------


def test_each_transaction_of_a_generation_has_its_own() -> None:
    """They are numbered from 0, and are ours."""
    slots = Slots("p", "c")
    taken = [use(slots, 1) for _ in range(3)]
    assert [number(slot) for slot in taken] == [0, 1, 2]
    assert all(belongs_to("p", slot.name) for slot in taken)


def test_the_next_generation_uses_them_again() -> None:
    """So a process needs no more than two batches do."""
    slots = Slots("p", "c")
    for generation in range(1, 50):
        assert {number(use(slots, generation)) for _ in range(2)} == {0, 1}
    assert len(slots.held) == 2


def test_a_slot_is_starting_until_it_is_told_otherwise() -> None:
    """Nobody takes it meanwhile, whatever the generation."""
    slots = Slots("p", "c")
    assert slots.take("x", 1).state == "starting"
    assert number(slots.take("x", 2)) == 1
    assert number(slots.take("y", 9)) == 2


def test_prefixes_and_clusters_have_their_own() -> None:
    """Also if one name is part of the other."""
    names = [use(Slots(*place), 1).name for place in [("p", "c"), ("p", "d"), ("pc", ""), ("p.dk", "c")]]
    assert [number(name) for name in names] == [0] * 4
    assert names[0] == names[1]  # the ids of different clusters have nothing to do with each other


def test_a_dropped_slot_is_free_for_others() -> None:
    """As its file describes it: after another generation, here."""
    slots = Slots("p", "c")
    slots.drop(use(slots, 1))
    assert slots.held == []
    assert number(use(slots, 1)) == 1
    assert number(use(Slots("p", "c"), 2)) == 0


# --- several processes --------------------------------------------------------------------------------------------------


def test_workers_at_one_time_have_different_ids_on_one_machine(start: Start) -> None:
    """Also if they begin in the same moment, in a folder that is not there yet."""
    names = [worker.name() for worker in [start(1) for _ in range(6)]]
    assert sorted(map(number, names)) == list(range(6))
    assert len({name.rpartition("-")[0] for name in names}) == 1


def test_the_number_of_ids_stays_bounded(start: Start) -> None:
    """However many workers come and go."""
    seen = set()
    for generation in range(1, 9):
        workers = [start(generation) for _ in range(2)]
        seen |= {worker.name() for worker in workers}
        for worker in workers:
            worker.kill()
    assert len(seen) == 2


def test_a_dead_workers_transaction_keeps_its_id(start: Start) -> None:
    """Until a later generation of the same chain: only then it is settled."""
    worker = start(3)
    name = worker.name()
    assert number(use(Slots("p", "c"), 4)) == 1  # it still lives, and has its lock
    worker.kill()
    same = Slots("p", "c")
    assert use(same, 3).name != name
    assert use(same, 3).name != name
    assert use(Slots("p", "c"), 4).name == name


def test_another_chain_does_not_wait(start: Start) -> None:
    """In another log nothing of the first one can be decided, and its generations count from 1 again."""
    worker = start(7)
    name = worker.name()
    worker.kill()
    assert use(Slots("p", "c"), 1, chain="y").name == name


def test_a_ready_id_without_a_transaction_is_free(start: Start) -> None:
    """Its worker died before it wrote anything."""
    worker = start(3, state="ready")
    name = worker.name()
    worker.kill()
    assert use(Slots("p", "c"), 3).name == name


def test_an_unanswered_request_keeps_its_id_for_ten_minutes(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may still be on its way; after that the id is one with a transaction of that generation."""
    worker = start(3, state="starting")
    name = worker.name()
    worker.kill()
    assert use(Slots("p", "c"), 4).name != name
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 590)
    assert use(Slots("p", "c"), 4).name != name
    monkeypatch.setattr(time, "time", lambda: now + 610)
    assert use(Slots("p", "c"), 3).name != name
    assert use(Slots("p", "c"), 4).name == name


# --- files --------------------------------------------------------------------------------------------------------------


def files(folder: Path) -> list[Path]:
    """The slots' files."""
    return sorted(folder.glob("dynamic-kafka-*/*/*/*"))


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"state": "used"}', '{"state": "starting", "at": "x"}', "\0\0"])
def test_a_damaged_file_is_left_alone(folder: Path, text: str) -> None:
    """Nobody knows what its id is used for."""
    slots = Slots("p", "c")
    slots.drop(use(slots, 1))
    (file,) = files(folder)
    file.write_text(text)
    assert number(use(Slots("p", "c"), 9, chain="y")) == 1


def test_an_empty_file_is_a_new_one(folder: Path) -> None:
    """Its maker died before it wrote into it, so before it asked for anything."""
    slots = Slots("p", "c")
    slots.drop(use(slots, 1))
    files(folder)[0].write_text("")
    assert number(use(Slots("p", "c"), 1)) == 0


def test_a_shorter_text_replaces_a_longer_one(folder: Path) -> None:
    """The file is JSON at each moment."""
    slots = Slots("p", "c")
    slot = slots.take("a-long-name-of-a-chain" * 2, 123_456)
    slot.write("used", "x", 1)
    assert json.loads(files(folder)[0].read_text())["chain"] == "x"


def test_a_folder_that_cannot_be_used(folder: Path) -> None:
    """Ids of this process alone: nobody else can know which of them are taken."""
    usual = use(Slots("p", "c"), 1).name
    (place,) = folder.glob("dynamic-kafka-*")
    place.rename(folder / "away")
    place.write_text("a file where a folder should be")
    names = {use(Slots("p", "c"), 1).name.rpartition("-")[0] for _ in range(2)} | {usual.rpartition("-")[0]}
    assert len(names) == 3


def test_another_machine_has_other_ids(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so has this one after a reboot, or when its folder was emptied."""
    names = [use(Slots("p", "c"), 1).name]
    (place,) = folder.glob("dynamic-kafka-*")
    place.rename(folder / "away")
    names.append(use(Slots("p", "c"), 1).name)
    boot_id = folder / "boot_id"
    boot_id.write_text("another")
    monkeypatch.setattr(module, "_BOOT_ID", boot_id)
    names.append(use(Slots("p", "c"), 1).name)
    assert len(set(names)) == 3
