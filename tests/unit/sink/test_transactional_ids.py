"""Transactional ids on one machine: how many there are, and who may use which one when."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.sink import transactional_ids as module
from dynamic_kafka.sink.transactional_ids import TransactionalId, TransactionalIdPool, belongs_to, transactional_id

Start = Callable[..., "Worker"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of the test's own, for this process and its children."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


class Worker:
    """Another process: takes an id, says its name, and lives until it is ended, without a word to anybody.

    Args:
        generation: Whose task it is.
        state: How far it comes with the id.
        chain: The chain of claims.
    """

    SCRIPT = textwrap.dedent("""
        import sys
        from dynamic_kafka.sink.transactional_ids import TransactionalIdPool

        chain, generation, state = sys.argv[1], int(sys.argv[2]), sys.argv[3]
        taken = TransactionalIdPool("p", "c").take(chain, generation)
        if state != "starting":
            taken.write(state, chain, generation)
        print(taken.name, flush=True)
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


def number(taken: TransactionalId | str) -> int:
    """The number of an id."""
    return int((taken if isinstance(taken, str) else taken.name).rpartition("-")[2])


def use(pool: TransactionalIdPool, generation: int, chain: str = "x") -> TransactionalId:
    """An id with a transaction."""
    taken = pool.take(chain, generation)
    taken.write("used", chain, generation)
    return taken


# --- one process --------------------------------------------------------------------------------------------------------


def test_each_transaction_of_a_generation_has_its_own(folder: Path) -> None:
    """They are numbered from 0, and are ours; also if the earlier ones are not held any more."""
    pool = TransactionalIdPool("p", "c")
    taken = [use(pool, 1) for _ in range(3)]
    assert [number(one) for one in taken] == [0, 1, 2]
    assert all(belongs_to("p", one.name) for one in taken)
    taken[1].release()
    assert number(use(pool, 1)) == 3
    assert len(files(folder)) == 4


def test_the_next_generation_uses_them_again(folder: Path) -> None:
    """So a process needs no more than two batches do, and holds files for the producers that it has only."""
    pool = TransactionalIdPool("p", "c")
    for generation in range(1, 50):
        taken = [use(pool, generation) for _ in range(2)]
        assert {number(one) for one in taken} == {0, 1}
        for one in taken:
            one.release()
    assert len(files(folder)) == 2


def test_an_id_is_starting_until_it_is_told_otherwise() -> None:
    """Nobody takes it meanwhile, whatever the generation."""
    pool = TransactionalIdPool("p", "c")
    assert pool.take("x", 1).state == "starting"
    assert number(pool.take("x", 2)) == 1
    assert number(pool.take("y", 9)) == 2


def test_prefixes_and_clusters_have_their_own() -> None:
    """Also if one name is part of the other."""
    names = [use(TransactionalIdPool(*place), 1).name for place in [("p", "c"), ("p", "d"), ("pc", ""), ("p.dk", "c")]]
    assert [number(name) for name in names] == [0] * 4
    assert len(set(names)) == 4  # two names may be those of one cluster


def test_a_released_id_is_free_for_others() -> None:
    """As its file describes it: after another generation, here."""
    pool = TransactionalIdPool("p", "c")
    taken = use(pool, 1)
    taken.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(taken.file)
    assert number(use(pool, 1)) == 1
    assert number(use(TransactionalIdPool("p", "c"), 2)) == 0


def test_taking_an_id_does_not_look_at_all_taken_ones_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of many tasks in one worker opens each file about once, and so does the next batch."""
    opened: list[str] = []
    really_open = os.open

    def counting(path: object, *arguments: int, **more: int) -> int:
        opened.append(str(path))
        return really_open(path, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", counting)
    pool = TransactionalIdPool("p", "c")
    for generation in (1, 2):
        opened.clear()
        names = set()
        for _ in range(300):
            taken = use(pool, generation)
            names.add(taken.name)
            taken.release()
        assert len(names) == 300
        assert len([path for path in opened if pool._host in path]) <= 301
    assert len(os.listdir(pool._directory)) == 300  # noqa: PTH208


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
    assert number(use(TransactionalIdPool("p", "c"), 4)) == 1  # it still lives, and has its lock
    worker.kill()
    same = TransactionalIdPool("p", "c")
    assert use(same, 3).name != name
    assert use(same, 3).name != name
    assert use(TransactionalIdPool("p", "c"), 4).name == name


def test_another_chain_does_not_wait(start: Start) -> None:
    """In another log nothing of the first one can be decided, and its generations count from 1 again."""
    worker = start(7)
    name = worker.name()
    worker.kill()
    assert use(TransactionalIdPool("p", "c"), 1, chain="y").name == name


def test_a_ready_id_without_a_transaction_is_free(start: Start) -> None:
    """Its worker died before it wrote anything."""
    worker = start(3, state="ready")
    name = worker.name()
    worker.kill()
    assert use(TransactionalIdPool("p", "c"), 3).name == name


def test_an_unanswered_request_keeps_its_id_for_ten_minutes(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may still be on its way; after that the id is one with a transaction of that generation."""
    worker = start(3, state="starting")
    name = worker.name()
    worker.kill()
    assert use(TransactionalIdPool("p", "c"), 4).name != name
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 590)
    assert use(TransactionalIdPool("p", "c"), 4).name != name
    monkeypatch.setattr(time, "time", lambda: now + 610)
    assert use(TransactionalIdPool("p", "c"), 3).name != name
    assert use(TransactionalIdPool("p", "c"), 4).name == name


# --- files --------------------------------------------------------------------------------------------------------------


def files(folder: Path) -> list[Path]:
    """The ids' files."""
    return sorted(folder.glob("dynamic-kafka-*/*/*/*"))


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"state": "used"}', '{"state": "starting", "at": "x"}', "\0\0"])
def test_a_damaged_file_is_left_alone(folder: Path, text: str) -> None:
    """Nobody knows what its id is used for."""
    use(TransactionalIdPool("p", "c"), 1).release()
    (file,) = files(folder)
    file.write_text(text)
    assert number(use(TransactionalIdPool("p", "c"), 9, chain="y")) == 1


def test_an_empty_file_is_a_new_one(folder: Path) -> None:
    """Its maker died before it wrote into it, so before it asked for anything."""
    use(TransactionalIdPool("p", "c"), 1).release()
    files(folder)[0].write_text("")
    assert number(use(TransactionalIdPool("p", "c"), 1)) == 0


def test_a_shorter_text_replaces_a_longer_one(folder: Path) -> None:
    """The file is JSON at each moment."""
    taken = TransactionalIdPool("p", "c").take("a-long-name-of-a-chain" * 2, 123_456)
    taken.write("used", "x", 1)
    assert json.loads(files(folder)[0].read_text())["chain"] == "x"


@pytest.mark.parametrize("kind", ["file", "link", "open to others"])
def test_a_folder_that_cannot_be_used(folder: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its name can be guessed, so another user may have made it first: this process then has ids of its own, and says so."""
    usual = use(TransactionalIdPool("p", "c"), 1).name
    (place,) = folder.glob("dynamic-kafka-*")
    if kind == "open to others":
        place.chmod(0o777)
    else:
        place.rename(folder / "away")
    if kind == "file":
        place.write_text("a file where a folder should be")
    if kind == "link":
        place.symlink_to(folder / "away")
    names = {use(TransactionalIdPool("p", "c"), 1).name.rpartition("-")[0] for _ in range(2)} | {
        usual.rpartition("-")[0]
    }
    assert len(names) == 3
    assert f"The folder '{place}' cannot be used" in caplog.text


def test_the_folder_is_private(folder: Path) -> None:
    """Nobody else can look into it, whatever mask the process has or had."""
    before = os.umask(0)
    try:
        use(TransactionalIdPool("p", "c"), 1)
        (place,) = folder.glob("dynamic-kafka-*")
        assert place.stat().st_mode & 0o777 == 0o700
        place.chmod(0o755)
        use(TransactionalIdPool("p", "d"), 1)
        assert place.stat().st_mode & 0o777 == 0o700
        assert all(file.stat().st_mode & 0o777 == 0o600 for file in files(folder))
    finally:
        os.umask(before)


def test_a_folder_of_another_user_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its owner could replace the files."""
    usual = use(TransactionalIdPool("p", "c"), 1).name
    mine, another = os.getuid(), os.getuid() + 1
    Path(tempfile.gettempdir(), f"dynamic-kafka-{mine}").rename(Path(tempfile.gettempdir(), f"dynamic-kafka-{another}"))
    monkeypatch.setattr(os, "getuid", lambda: another)
    assert use(TransactionalIdPool("p", "c"), 1).name.rpartition("-")[0] != usual.rpartition("-")[0]
    assert "other users can write into it" in caplog.text


def test_a_folder_without_locks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on some network file systems; it is not taken for an id that somebody holds, of which there is no end."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ConfigurationError, match=r"/0' cannot be locked \(No locks available\).*set TMPDIR"):
        TransactionalIdPool("p", "c").take("x", 1)


def test_a_file_that_is_deleted_under_its_lock(folder: Path) -> None:
    """The lock does not count any more: another process could lock a new file, and have the same id."""
    taken = TransactionalIdPool("p", "c").take("x", 1)
    assert taken.is_locked()
    files(folder)[0].unlink()
    assert not taken.is_locked()


def test_a_folder_that_is_deleted(folder: Path) -> None:
    """Nobody knows any more what its ids are used for, so there are new ones: also in the processes that live."""
    pool = TransactionalIdPool("p", "c")
    before = use(pool, 1).name
    (place,) = folder.glob("dynamic-kafka-*")
    shutil.rmtree(place)
    after = [use(pool, 1).name, use(TransactionalIdPool("p", "c"), 1).name]
    assert [number(name) for name in after] == [1, 0]
    hosts = {name.rpartition("-")[0] for name in after}
    assert len(hosts) == 1
    assert before.rpartition("-")[0] not in hosts


def test_another_machine_has_other_ids(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so has this one after a reboot, or when its folder was emptied, and another container on it."""
    names = [use(TransactionalIdPool("p", "c"), 1).name]
    (place,) = folder.glob("dynamic-kafka-*")
    place.rename(folder / "away")
    names.append(use(TransactionalIdPool("p", "c"), 1).name)
    boot_id = folder / "boot_id"
    boot_id.write_text("another")
    monkeypatch.setattr(module, "_BOOT_ID", boot_id)
    names.append(use(TransactionalIdPool("p", "c"), 1).name)
    monkeypatch.setattr(socket, "gethostname", lambda: "another")  # a copy of the folder in an image
    names.append(use(TransactionalIdPool("p", "c"), 1).name)
    assert len(set(names)) == 4


# --- names --------------------------------------------------------------------------------------------------------------

OURS = ".dk-0123456789ab-0"

hosts = st.text("0123456789abcdef", min_size=12, max_size=12)
numbers = st.integers(0, 10**6)
# Prefixes that look like ids, or like each other.
prefixes = st.lists(st.sampled_from(["p", "-", ".", "dk", ".dk-", OURS, "0", "\n", "é", "٣"]), min_size=1).map("".join)


@given(prefixes, hosts, numbers)
def test_what_we_make_is_ours(prefix: str, host: str, number: int) -> None:
    """Whatever the prefix looks like."""
    assert belongs_to(prefix, transactional_id(prefix, host, number))


@given(prefixes, prefixes, hosts, numbers)
@example("p", "p-eu", "0" * 12, 0)
@example("p", f"p{OURS}", "0" * 12, 0)
@example(f"p{OURS}", "p", "0" * 12, 0)
def test_a_neighbours_is_not(mine: str, other: str, host: str, number: int) -> None:
    """Neither if its prefix begins with ours, nor if ours begins with its."""
    assert belongs_to(mine, transactional_id(other, host, number)) == (mine == other)


@given(prefixes, hosts, numbers, st.sampled_from(["", "-0", ".0", "0a", "\n", " ", "٣", OURS]))
def test_nothing_may_come_after_it(prefix: str, host: str, number: int, more: str) -> None:
    """The id is read from the right, to its very end."""
    assert belongs_to(prefix, transactional_id(prefix, host, number) + more) == (more == "")


@given(prefixes, st.integers(0, 10**6), st.integers(0, 10**6))
def test_flinks_ids_are_not_ours(prefix: str, subtask: int, offset: int) -> None:
    """Flink's TransactionalIdFactory: the prefix, the subtask, and a number, with dashes between them."""
    assert not belongs_to(prefix, f"{prefix}-{subtask}-{offset}")
    assert not belongs_to(prefix, f"{prefix}-{offset}")


@pytest.mark.parametrize(
    "name",
    [
        "p",
        "p.dk-",
        "p.dk-0123456789ab-",
        "p.dk-0123456789ab-x",
        "p.dk-0123456789ab-1-0",
        "p.dk-0123456789a-0",
        "p.dk-0123456789abc-0",
        "p.dk-0123456789AB-0",
        "pxdk-0123456789ab-0",
        "p.dk-0123456789ab-٣",
        "q.dk-0123456789ab-0",
        "P.dk-0123456789ab-0",
        "p-5f0c2d0e-0000-0000-0000-000000000000-1",
    ],
)
def test_what_only_looks_like_ours(name: str) -> None:
    """Another host part, another number, Kafka Streams' names."""
    assert not belongs_to("p", name)


def _open_files(folder: Path) -> list[str]:
    """This process's open files in a folder; kept clients of other tests open and close connections at any time."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            found.append(str(entry.readlink()))
    return sorted(name for name in found if name.startswith(str(folder)))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """At any step: an error that names the folder and what to do. No open file, no other file and no used-up id is left."""
    steps = [(os, name) for name in ("mkdir", "open", "pwrite", "link")] + [(Path, "write_text")]
    failures = 0
    while True:
        left = failures

        def failing(real: Callable[..., object]) -> Callable[..., object]:
            def call(*arguments: object, **more: object) -> object:
                nonlocal left
                left -= 1
                if left == -1:
                    raise OSError(number, os.strerror(number))
                return real(*arguments, **more)

            return call

        opened = _open_files(folder)
        with monkeypatch.context() as patch:
            for owner, name in steps:
                patch.setattr(owner, name, failing(getattr(owner, name)))
            try:
                taken = TransactionalIdPool("p", "c").take("x", 1)
            except ConfigurationError as error:
                message = str(error)
            else:
                break
        assert message.startswith("Transactional ids need a file each, and the f")
        assert f"in '{folder}' cannot be written ({os.strerror(number)}); free space there, or set TMPDIR" in message
        assert _open_files(folder) == opened
        assert {found.name for found in folder.iterdir()} <= {f"dynamic-kafka-{os.getuid()}"}
        assert [found.name for found in folder.glob("*/*") if len(found.name) == 32] == []
        shutil.rmtree(folder / f"dynamic-kafka-{os.getuid()}", ignore_errors=True)
        failures += 1
    assert failures > 4
    taken.release()


def test_a_disk_that_was_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """The id that could not be written is the next one to be taken, by the same process too."""
    pool = TransactionalIdPool("p", "c")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(ConfigurationError, match="No space left"):
            pool.take("x", 1)
    taken = pool.take("x", 1)
    assert taken.name.endswith("-0")
    taken.release()
