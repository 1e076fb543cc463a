"""`dynamic-kafka offsets` on checkpoints of several file systems: what it shows, changes and refuses."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest

from dynamic_kafka.cli.main import main
from dynamic_kafka.cli.offsets import evidence
from dynamic_kafka.cli.positions import (
    Partition,
    Position,
    changes,
    parse_ids,
    parse_position,
    parse_positions,
    positions,
    positions_text,
    renamed,
    waiting,
    with_positions,
)
from dynamic_kafka.errors import CheckpointError, ConfigurationError
from dynamic_kafka.files import open_files
from dynamic_kafka.history.model import FrozenHistory, HistoryFile
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.sink.log.chain import Chain, State
from dynamic_kafka.source.document.checkpoint import read_checkpoint
from dynamic_kafka.source.document.document import HistoryStage
from dynamic_kafka.source.document.offsets import ClusterOffsets, Document, RetainedTopic, check_chain, decode, encode
from dynamic_kafka.source.document.promise import Promise, Seen

QUERY = "11111111-2222-3333-4444-555555555555"
METADATA = '{"batchWatermarkMs":5,"batchTimestampMs":7,"conf":{"spark.sql.shuffle.partitions":"1"}}'
Ranges = Mapping[tuple[str, int], tuple[int, int]]


def cluster(ranges: Ranges, kafka_id: str = "id-eu", **more: Any) -> ClusterOffsets:
    """A cluster's part of a document, with the topics of its ranges."""
    by_partition = {KafkaTopicPartition(*tp): found for tp, found in ranges.items()}
    topics = {topic: "topic-id" for topic, _ in ranges}
    return ClusterOffsets(kafka_id, {"bootstrap.servers": "eu:9092"}, topics=topics, ranges=by_partition, **more)


def document(ranges: Ranges, **more: Any) -> Document:
    """A document of one cluster, `eu`."""
    return Document(streams={"s": {"eu": None}}, clusters={"eu": cluster(ranges, **more)})


FIRST = document({("orders", 0): (0, 10), ("orders", 1): (0, 20)})
SECOND = document({("orders", 0): (10, 15), ("orders", 1): (20, 20)})


def offset_file(*sources: Document | str) -> str:
    """A file in `offsets` as Spark writes it."""
    texts = [found if isinstance(found, str) else json.dumps(encode(found)) for found in sources]
    return "\n".join(["v1", METADATA, *texts])


class Folder:
    """A local checkpoint.

    Args:
        path: Where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, path: str, text: str, age_s: float = 7200) -> None:
        """Write a file that was changed some time ago."""
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        changed = time.time() - age_s
        os.utime(file, (changed, changed))

    def batch(self, number: int, *sources: Document | str, finished: bool = True, age_s: float = 7200) -> None:
        """Write a batch."""
        self.write("metadata", json.dumps({"id": QUERY}))
        self.write(f"offsets/{number}", offset_file(*sources), age_s)
        self.write(f"offsets/.{number}.crc", "a checksum")
        if finished:
            self.write(f"commits/{number}", 'v1\n{"nextBatchWatermarkMs":9}', age_s)

    def run(self, action: str, *arguments: str) -> int:
        """Run the command on it."""
        return main(["offsets", action, str(self.path), *arguments])

    def files(self) -> dict[str, str]:
        """All texts, without those in backups."""
        found = (path for path in self.path.rglob("*") if path.is_file() and "dynamic-kafka-backups" not in path.parts)
        return {str(path.relative_to(self.path)): path.read_text() for path in found}

    def document(self, number: int) -> Document:
        """The document of a batch."""
        return decode(json.loads((self.path / f"offsets/{number}").read_text().split("\n")[2]))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A checkpoint of two finished batches."""
    found = Folder(tmp_path / "checkpoint")
    found.batch(0, FIRST)
    found.batch(1, SECOND)
    return found


# --- positions ----------------------------------------------------------------------------------------------------------


def test_a_position_is_where_the_next_start_reads() -> None:
    """After a finished batch at its end; in an unfinished one at its beginning."""
    key = Partition("eu", "orders", 0)
    assert positions(SECOND, unfinished=False)[key] == Position(15, "reading")
    assert positions(SECOND, unfinished=True)[key] == Position(10, "reading", 5)


def test_states_say_what_is_special_about_a_partition() -> None:
    """Its stop is reached, it is being drained, it has no position yet, or its topic is retained."""
    found = document(
        {("a", 0): (0, 5), ("b", 0): (0, 5)},
        stops={KafkaTopicPartition("a", 0): 5},
        draining={"b"},
        unresolved={KafkaTopicPartition("a", 1): 3},
        retained={"c": RetainedTopic("", 1, {0: 77})},
    )
    assert {str(key): position[:2] for key, position in positions(found, unfinished=False).items()} == {
        "eu/a/0": (5, "done"),
        "eu/a/1": (None, "waiting"),
        "eu/b/0": (5, "draining"),
        "eu/c/0": (77, "retained"),
    }
    edited = with_positions(found, {Partition("eu", "a", 1): 4, Partition("eu", "c", 0): 70}, unfinished=False)
    assert positions(edited, unfinished=False)[Partition("eu", "a", 1)] == Position(4, "reading")
    assert edited.clusters["eu"].retained["c"].offsets == {0: 70}
    assert edited.clusters["eu"].unresolved == {}
    assert found.clusters["eu"].retained["c"].offsets == {0: 77}


@pytest.mark.parametrize(
    ("state", "listed", "found"),
    [
        (ClusterOffsets(discovered=True), None, {}),
        (ClusterOffsets(since_ms=5), None, {"us": {"named"}}),
        (ClusterOffsets(discovered=True, unseen={"later": 1}), {"more"}, {"us": {"later", "more"}}),
        (cluster({("named", 0): (0, 1)}, discovered=True), {"named"}, {}),
        (ClusterOffsets(discovered=True, unresolved={KafkaTopicPartition("named", 0): 1}), {"named"}, {}),
        (
            ClusterOffsets(continues={"cluster": "eu", "by": "records", "topics": {"orders": "named"}}),
            {"x"},
            {"us": {"x"}},
        ),
    ],
)
def test_what_waits_for_its_first_positions(
    state: ClusterOffsets, listed: set[str] | None, found: Mapping[str, set[str]]
) -> None:
    """Topics that were never seen, or are named and not there; not one that stands by for another cluster."""
    both = Document({"s": {"us": frozenset({"named"})}}, {"us": state, "eu": cluster({("orders", 0): (0, 1)})})
    assert waiting(both, None if listed is None else {"us": listed}) == found
    if not listed:
        unnamed = replace(both, streams={"s": {"us": None}})
        assert waiting(unnamed) == ({} if state.discovered else {"us": set()})


def test_a_change_after_a_finished_batch_reads_nothing_and_keeps_the_chain() -> None:
    """Every range is empty, and the document says where the chain is broken."""
    edited = with_positions(SECOND, {Partition("eu", "orders", 0): 3}, unfinished=False)
    assert dict(edited.clusters["eu"].ranges) == {("orders", 0): (3, 3), ("orders", 1): (20, 20)}
    check_chain(SECOND, edited)
    assert decode(json.loads(json.dumps(encode(edited)))) == edited


def test_rows_of_a_history_are_neither_skipped_nor_repeated() -> None:
    """The batch of a change reads none of them, and the next one goes on where they ended; an unfinished keeps its own."""
    files = (HistoryFile("f", 1, 1, 1, (10,)),)
    stage = HistoryStage(FrozenHistory("/h", "parquet", "1 file", 10, files), Promise("Kafka goes on", 10), (2, 5))
    document = replace(SECOND, history=stage)
    edited = with_positions(document, {Partition("eu", "orders", 0): 3}, unfinished=False)
    by_hand = stage.promise.and_seen(Seen("set by hand", 0, 1, ("eu/orders/0",)))
    assert edited.history == replace(stage, range=(5, 5), promise=by_hand)
    assert str(by_hand) == "Kafka goes on. Not exact: positions were set by hand: eu/orders/0"
    check_chain(document, edited)
    assert with_positions(document, {}, unfinished=True, before=FIRST).history == stage


@pytest.mark.parametrize(
    ("wanted", "planned"), [(12, (12, 15)), (15, (15, 15)), (16, (16, 16)), (9, (9, 9)), (10, (10, 15))]
)
def test_a_position_in_an_unfinished_batch_leaves_the_rest_of_its_range(wanted: int, planned: tuple[int, int]) -> None:
    """A range that contains the position is read from there on; any other one is read by a later batch."""
    key = Partition("eu", "orders", 0)
    edited = with_positions(SECOND, {key: wanted}, unfinished=True, before=FIRST)
    assert edited.clusters["eu"].ranges[KafkaTopicPartition("orders", 0)] == planned
    check_chain(FIRST, edited)
    back = with_positions(edited, {key: 10}, unfinished=True, before=FIRST)
    assert back.clusters["eu"].resets == frozenset()


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (Partition("us", "orders", 0), "does not know the cluster 'us'; it has 'eu'"),
        (Partition("eu", "order", 0), "does not know the topic 'order' of cluster 'eu'.*did you mean 'orders'"),
        (Partition("eu", "orders", 7), "does not know partition 7 of the topic 'orders'"),
    ],
)
def test_a_partition_that_is_not_known_is_an_error(key: Partition, message: str) -> None:
    """With what there is."""
    with pytest.raises(ConfigurationError, match=message):
        with_positions(FIRST, {key: 1}, unfinished=False)


def test_a_cluster_that_is_renamed_keeps_everything() -> None:
    """Positions, streams and the cursor have the new name, and the chain holds by Kafka's cluster.id."""
    closed = with_positions(SECOND, {}, unfinished=False)
    found = renamed(closed, "eu", "europe")
    assert found.clusters == {"europe": closed.clusters["eu"]}
    assert found.streams == {"s": {"europe": None}}
    check_chain(SECOND, found)
    moving = Document(clusters={"us": ClusterOffsets(continues={"cluster": "eu", "by": "records"}), **SECOND.clusters})
    assert renamed(moving, "eu", "europe").clusters["us"].continues == {"cluster": "europe", "by": "records"}
    for old, new, message in (
        ("us", "x", "does not know"),
        ("eu", "eu", "has a cluster 'eu' already"),
        ("eu", " ", "empty"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            renamed(SECOND, old, new)


def test_positions_as_text_come_back() -> None:
    """Comments and blank lines do not matter; names of clusters may have slashes, colons and blanks."""
    found = {
        Partition("a:9092, b/c", "orders", 3): Position(5, "reading"),
        Partition("eu", "t", 0): Position(None, "waiting"),
        Partition("eu", "u", 0): Position(8, "retained"),
    }
    ids = {("eu", ""): "E", ("eu", "t"): "T", ("a:9092, b/c", ""): "A", ("a:9092, b/c", "orders"): "O", ("us", ""): "U"}
    text = positions_text(found, ["one", "two"], ids)
    assert parse_ids(text) == {key: known for key, known in ids.items() if key[0] != "us"}
    assert parse_positions(f"\n{text}\n", "file") == {key: p.offset for key, p in found.items() if p.offset is not None}
    assert parse_position(" a:9092, b/c/orders/3 : 5 ") == (Partition("a:9092, b/c", "orders", 3), 5)
    for line, message in (
        ("eu/t/0", "line 1: expected"),
        ("eu/t/0:-1", "line 1"),
        ("eu/t/0:1\neu/t/0:2", "line 2: .*twice"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            parse_positions(line, "file")


def test_changes_show_the_largest_step_back_first() -> None:
    """It is what makes rows come twice."""
    keys = [Partition("eu", "t", i) for i in range(4)]
    before = {key: Position(100, "reading") for key in keys[:3]}
    after = {keys[0]: Position(101, "reading"), keys[1]: Position(1, "reading"), keys[2]: Position(100, "reading", 4)}
    assert [change.partition.partition for change in changes(before, after)] == [1, 0]
    assert changes({}, {keys[3]: Position(None, "waiting")})[0].before is None


# --- show, diff, export -------------------------------------------------------------------------------------------------


def test_show_says_where_reading_goes_on(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table, and as JSON with all that scripts need."""
    assert folder.run("show") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["CLUSTER", "TOPIC", "PARTITION", "POSITION", "STATE"]
    assert shown[1].split() == ["eu", "orders", "0", "15", "reading"]
    assert shown[-1] == "Batch 1 is finished (planned 2 h 0 min ago). The next start goes on at these positions."
    assert folder.run("show", "--output", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["query"], found["batch"], found["finished"], found["source"]) == (QUERY, 1, True, "0")
    assert found["partitions"][0] == {
        "cluster": "eu", "topic": "orders", "partition": 0, "position": 15, "planned": 0, "state": "reading",
    }  # fmt: skip
    assert folder.run("show", "--batch", "0", "--topic", "orders", "--cluster", "eu") == 0
    assert "These are the positions after batch 0" in capsys.readouterr().out
    assert folder.run("show", "--topic", "order") == 2


def test_show_has_what_waits_for_its_first_positions(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """A cluster that never answered, and a topic that was never seen; also if there is a row for each topic only."""
    ranges = {("orders", i): (0, 10) for i in range(60)}
    for some, rows in ((dict(list(ranges.items())[:2]), 5), (ranges, 4)):
        state = cluster(some, discovered=True, unseen={"later": 0})
        folder.batch(1, Document({"s": {"eu": None, "us": None}}, {"eu": state, "us": ClusterOffsets(since_ms=5)}))
        assert folder.run("show") == 0
        shown = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert [(row[:2], row[-1]) for row in shown[1:3]] == [(["eu", "later"], "waiting"), (["us", "-"], "waiting")]
        assert len(shown) == rows + 1
    assert folder.run("show", "--cluster", "us", "--output", "json") == 0
    (entry,) = json.loads(capsys.readouterr().out)["partitions"]
    assert entry == {
        "cluster": "us", "topic": None, "partition": None, "position": None, "planned": 0, "state": "waiting",
    }  # fmt: skip
    assert folder.run("show", "--topic", "later") == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_show_says_that_a_batch_runs_again(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """With the number of offsets that it reads."""
    folder.batch(2, document({("orders", 0): (15, 18), ("orders", 1): (20, 21)}), finished=False)
    assert folder.run("show") == 0
    shown = capsys.readouterr().out
    assert "eu       orders  0          15        3        reading" in shown
    assert "Batch 2 is not finished" in shown
    assert "it reads 4 offsets from these positions on" in shown


def test_show_has_a_row_for_each_topic_if_there_are_many_partitions(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not simply read comes first; --all shows every partition."""
    ranges = {("orders", i): (0, i) for i in range(60)} | {("late", 0): (0, 4)}
    folder.batch(2, document(ranges, draining={"late"}))
    assert folder.run("show") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1:3] == [["eu", "late", "1", "4", "4", "draining"], ["eu", "orders", "60", "0", "59", "reading"]]
    assert folder.run("show", "--all") == 0
    assert len(capsys.readouterr().out.splitlines()) == 63
    folder.batch(3, document({(f"orders-{i}", 0): (0, i) for i in range(60)}))
    assert folder.run("show") == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 53
    assert shown[51] == "And 10 more topics that are read; choose with --topic, or add --all."


def test_diff_compares_batches_checkpoints_and_files(
    folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the last batch, another checkpoint, or an export of earlier."""
    assert folder.run("diff") == 0
    assert "5 offsets forward\n1 difference between batch 0 and batch 1." in capsys.readouterr().out
    exported = tmp_path / "positions.txt"
    assert folder.run("export", "--file", str(exported)) == 0
    assert folder.run("diff", str(exported)) == 0
    assert "No differences between" in capsys.readouterr().out
    other = Folder(tmp_path / "other")
    other.batch(0, FIRST)
    assert folder.run("export", "--output", "json", "--file", str(exported)) == 0
    assert json.loads(exported.read_text()) == {"eu/orders/0": 15, "eu/orders/1": 20}
    assert folder.run("diff", str(other.path), "--output", "json") == 0
    found = json.loads(capsys.readouterr().out)["changes"]
    assert [(c["partition"], c["before"], c["after"]) for c in found] == [(0, 10, 15)]
    assert other.run("diff") == 1
    assert "has only one batch" in capsys.readouterr().err


def test_positions_of_another_cluster_or_topic_are_told_apart(
    folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By Kafka's ids, if both sides have them: they are a difference, and an import of them is refused."""
    other, exported = Folder(tmp_path / "other"), tmp_path / "positions.txt"
    other.batch(0, document({("orders", 0): (0, 15), ("orders", 1): (0, 20)}, kafka_id="id-new"))
    assert other.run("export", "--file", str(exported)) == 0
    for given in (str(other.path), str(exported)):
        assert folder.run("diff", given) == 0
        shown = capsys.readouterr().out
        assert "Cluster 'eu' is another one: its cluster.id was id-new, and is id-eu.\n1 difference between" in shown
    assert folder.run("import", str(exported), "--execute") == 1
    assert "has positions in other logs than the checkpoint. Cluster 'eu' is another one" in capsys.readouterr().err
    for old, new in (("# eu has", "# us has"), ("topic id topic-id", "topic id other")):
        exported.write_text(exported.read_text().replace(old, new))
        assert folder.run("import", str(exported)) == int(new != "# us has")
    assert "Topic 'orders' of cluster 'eu' is another one: its topic id was other" in capsys.readouterr().err


def test_diff_says_that_the_last_batch_runs_again(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """The positions after it are not those of the next start."""
    folder.batch(2, document({("orders", 0): (15, 18), ("orders", 1): (20, 21)}), finished=False)
    assert folder.run("diff") == 0
    assert "Batch 2 is not finished. The next start runs it again from where it begins" in capsys.readouterr().out


# --- changes ------------------------------------------------------------------------------------------------------------


def test_a_change_is_shown_and_not_made_without_execute(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """The dry run ends with 0 if the change can be made, and says what is known about the query."""
    before = folder.files()
    assert folder.run("set", "eu/orders/0:3", "eu/orders/1:25") == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[1].split() == ["eu", "orders", "0", "15", "3", "12", "offsets", "back"]
    assert "5 offsets forward" in shown
    assert "The query last wrote 2 h 0 min ago. That is no proof that it is stopped" in shown
    assert "The offsets are not compared with the logs" in shown
    assert "Dry run, nothing was changed: add --execute to change 2 partitions." in shown
    assert folder.files() == before


def test_a_change_is_a_new_batch_that_spark_finds_unfinished(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file that Spark wrote is changed. The new one has the watermark after the last batch, and the settings."""
    before = folder.files()
    assert folder.run("set", "eu/orders/0:3", "--execute") == 0
    after = folder.files()
    assert {path: text for path, text in after.items() if path in before} == before
    assert set(after) - set(before) == {"offsets/2"}
    fields = json.loads(after["offsets/2"].split("\n")[1])
    assert (fields["batchWatermarkMs"], fields["conf"]) == (9, {"spark.sql.shuffle.partitions": "1"})
    assert fields["batchTimestampMs"] > time.time_ns() // 1_000_000 - 60_000
    assert folder.document(2).clusters["eu"].ranges[KafkaTopicPartition("orders", 0)] == (3, 3)
    check_chain(folder.document(1), folder.document(2))
    done = capsys.readouterr().out
    assert f"To undo this before the next start: delete {folder.path}/offsets/2" in done
    (backup,) = (folder.path / "dynamic-kafka-backups").iterdir()
    assert "eu/orders/0:15" in (backup / "positions.txt").read_text()
    assert (backup / "offsets" / "1").read_text() == before["offsets/1"]


def test_a_second_change_before_the_start_replaces_the_first(folder: Folder, tmp_path: Path) -> None:
    """The batch of the first one reads nothing, so nothing has to be said about it. Import goes back."""
    exported = tmp_path / "positions.txt"
    assert folder.run("export", "--file", str(exported)) == 0
    assert folder.run("set", "eu/orders/0:3", "--execute", "--force") == 0
    folder.write("offsets/.2.crc", "a checksum of Hadoop, which the new text would not fit")
    assert folder.run("import", str(exported), "--execute", "--force") == 0
    assert "offsets/.2.crc" not in folder.files()
    assert positions(folder.document(2), unfinished=True) == {
        key: Position(position.offset, "reading") for key, position in positions(SECOND, unfinished=False).items()
    }
    assert folder.document(2).clusters["eu"].resets == frozenset()


def test_what_is_written_has_the_owner_and_the_rights_of_the_checkpoint(folder: Folder) -> None:
    """Whoever changes it, with whatever mask, the query's user can still read it; a file that is replaced keeps its own."""
    owner = 4711 if os.geteuid() == 0 else os.geteuid()
    for path in (folder.path, *folder.path.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o640)
        os.chown(path, owner, -1)
    before = os.umask(0o077)
    try:
        assert folder.run("set", "eu/orders/0:3", "--execute") == 0
        (folder.path / "offsets/2").chmod(0o644)
        assert folder.run("set", "eu/orders/0:4", "--execute", "--force") == 0
    finally:
        os.umask(before)
    assert (folder.path / "offsets/2").stat().st_mode & 0o777 == 0o644
    found = [*(folder.path / "dynamic-kafka-backups").rglob("*"), folder.path / "dynamic-kafka-backups"]
    assert {path.stat().st_mode & 0o777 for path in found if path.is_dir()} == {0o755}
    assert {path.stat().st_mode & 0o777 for path in found if path.is_file()} == {0o640, 0o644}
    assert {path.stat().st_uid for path in (*found, folder.path / "offsets/2")} == {owner}


def test_a_cluster_is_renamed(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """In a batch of its own, as any change."""
    assert folder.run("rename-cluster", "eu", "europe", "--execute") == 0
    assert "Cluster 'eu' becomes 'europe', with 2 partitions." in capsys.readouterr().out
    assert set(folder.document(2).clusters) == {"europe"}


def test_nothing_to_change(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """The positions are these already."""
    before = folder.files()
    assert folder.run("set", "eu/orders/0:15", "--execute") == 0
    assert "Nothing to change" in capsys.readouterr().out
    assert folder.files() == before


def test_an_import_of_no_position_is_refused(
    folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty file is hardly meant."""
    empty = tmp_path / "positions.txt"
    empty.write_text("# nothing\n")
    assert folder.run("import", str(empty), "--execute") == 2
    assert "has no positions, so nothing would change" in capsys.readouterr().err


@pytest.mark.parametrize(("ages_s", "code"), [((7200, 30), 1), ((7200, 3000), 1), ((7200, 7000), 0)])
def test_a_query_that_has_written_a_moment_ago_may_be_running(
    tmp_path: Path, ages_s: tuple[float, float], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within a minute, or within two intervals of its batches. --force says that it is stopped."""
    folder = Folder(tmp_path / "checkpoint")
    folder.batch(0, FIRST, age_s=ages_s[0])
    folder.batch(1, SECOND, age_s=ages_s[1])
    assert folder.run("set", "eu/orders/0:3", "--execute") == code
    assert ("Refused: The query may be running" in capsys.readouterr().out) == bool(code)
    if code:
        assert "offsets/2" not in folder.files()
        assert folder.run("set", "eu/orders/0:3", "--execute", "--force") == 0
        assert "--force: The query may be running" in capsys.readouterr().err


def test_a_batch_that_was_written_in_between_is_a_query_that_runs(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark's own file wins, whichever comes first."""
    from dynamic_kafka.files import Files

    create = Files.create

    def slow(files: Files, path: str, text: str, like: str) -> bool:
        if path == "offsets/2":
            folder.write("offsets/2", offset_file(SECOND))
        return create(files, path, text, like)

    monkeypatch.setattr(Files, "create", slow)
    assert folder.run("set", "eu/orders/0:3", "--execute") == 1
    assert "so it runs. Nothing was changed" in capsys.readouterr().err
    assert folder.files()["offsets/2"] == offset_file(SECOND)


def test_an_unfinished_batch_is_changed_only_where_it_reads_nothing(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its rows may be in the output. The words say what to do; --force alone is not enough."""
    folder.batch(2, document({("orders", 0): (15, 18), ("orders", 1): (20, 20)}), finished=False)
    before = folder.files()
    assert folder.run("set", "eu/orders/0:16", "--execute", "--force") == 1
    assert "Refused: Batch 2 is not finished, and this would change what it reads" in capsys.readouterr().out
    assert folder.run("set", "eu/orders/0:16", "--execute", "--rewrite-unfinished") == 1
    assert "It is not known whether the rows of batch 2 are in the output" in capsys.readouterr().out
    assert folder.files() == before
    assert folder.run("set", "eu/orders/1:5", "--execute") == 0
    assert dict(folder.document(2).clusters["eu"].ranges) == {("orders", 0): (15, 18), ("orders", 1): (5, 5)}
    assert folder.run("set", "eu/orders/0:16", "--execute", "--rewrite-unfinished", "--force") == 0
    assert folder.document(2).clusters["eu"].ranges[KafkaTopicPartition("orders", 0)] == (16, 18)
    check_chain(folder.document(1), folder.document(2))
    assert "in the place of" in capsys.readouterr().out


def test_an_unfinished_batch_without_a_cluster(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """It reads the other clusters, and the next one goes on where the cluster was left: no offset is lost or read twice."""
    both = Document(
        clusters={
            "eu": cluster({("orders", 0): (15, 18)}),
            "us": cluster({("orders", 0): (7, 9), ("o", 0): (3, 3)}, "id"),
        }
    )
    folder.batch(2, both, finished=False)
    assert folder.run("postpone", "us", "--execute", "--force") == 1
    assert "Refused: Batch 2 is not finished, and this would change what it reads" in capsys.readouterr().out
    assert folder.run("postpone", "us", "--execute", "--force", "--rewrite-unfinished") == 0
    assert "Batch 2 leaves 2 offsets of 'us' (1 partition) to a later batch." in capsys.readouterr().out
    found = folder.document(2)
    assert dict(found.clusters["us"].ranges) == {("orders", 0): (7, 7), ("o", 0): (3, 3)}
    assert found.clusters["us"].resets == frozenset()
    assert found.clusters["eu"] == both.clusters["eu"]
    assert folder.run("postpone", "us", "--execute") == 0
    assert "Nothing to change" in capsys.readouterr().out
    assert folder.run("postpone", "use") == 2
    assert "does not know the cluster 'use'" in capsys.readouterr().err


def test_positions_come_from_standard_input_too(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a pipe."""
    import io

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"eu/orders/0:1\n")))
    assert folder.run("import", "-", "--execute") == 0
    assert folder.document(2).clusters["eu"].ranges[KafkaTopicPartition("orders", 0)] == (1, 1)
    assert folder.run("import", "no-such-file") == 2


def test_what_the_commit_log_proves_is_not_forced(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it does not show is a matter of the user's word."""
    folder.batch(2, document({("orders", 0): (15, 18), ("orders", 1): (20, 20)}), finished=False)
    monkeypatch.setattr(evidence, "supersede_claim", lambda *_: None)
    forced = ["eu/orders/0:16", "--rewrite-unfinished", "--sink-prefix", "p", "--force"]
    for batch, code in ((2, 1), (0, 0)):
        chain = Chain(1, State("c", 1, "finished", QUERY, batch, applied={QUERY: batch}))
        monkeypatch.setattr(evidence, "read_commit_log", lambda *_, chain=chain, **__: chain)
        assert folder.run("set", *forced) == code
        assert ("Refused: Batch 2 is decided or published" in capsys.readouterr().out) == bool(code)


# --- checkpoints --------------------------------------------------------------------------------------------------------


def test_a_query_with_several_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Others are left as they are. Two of ours need --source."""
    folder = Folder(tmp_path / "checkpoint")
    files = '{"logOffset":3}'
    folder.batch(0, files, FIRST, "-")
    assert folder.run("set", "eu/orders/0:2", "--execute") == 0
    lines = folder.files()["offsets/1"].split("\n")
    assert (lines[2], lines[4]) == (files, "-")
    assert folder.run("show", "--source", "2") == 1
    assert "source 2: this source has not read anything yet" in capsys.readouterr().err
    folder.batch(1, FIRST, SECOND)
    assert folder.run("show") == 2
    assert "add --source with one of 0, 1" in capsys.readouterr().err
    assert folder.run("show", "--source", "1") == 0
    assert folder.run("show", "--source", "3") == 2


def test_sources_with_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Spark's second format of the log of offsets."""
    folder = Folder(tmp_path / "checkpoint")
    folder.batch(0, FIRST)
    text = "\n".join(["v2", METADATA, f"mine:{json.dumps(encode(FIRST))}", 'other:{"logOffset":3}'])
    folder.write("offsets/0", text)
    assert read_checkpoint(str(folder.path)).batch(0).text == text
    assert folder.run("set", "eu/orders/0:2", "--execute") == 0
    assert folder.files()["offsets/1"].split("\n")[3] == 'other:{"logOffset":3}'
    assert folder.run("show", "--source", "mine") == 0


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("offsets/1", "", "offsets/1 is damaged: it does not have the version"),
        ("offsets/1", 'v1\n{}\n{"version": 1', "offsets/1 is damaged: the offset of source 0 is not JSON"),
        ("offsets/1", 'v1\n{}\n{"version": 1, "streams": {}}', "offsets/1: The checkpoint's offsets are damaged"),
        ("offsets/1", 'v1\n{}\n{"version": 9}', "offsets/1: The checkpoint's offsets have version 9"),
        ("offsets/1", 'v1\n{}\n{"orders": {"0": 5}}', "source 0 is Spark's own Kafka source"),
        ("offsets/1", "v1\n{}\n5", "is not one of dynamic-kafka"),
        ("offsets/1", 'v1\n{}\n{"a": 1}\n{"b": 2}', "has no source of dynamic-kafka among its 2 sources"),
        ("offsets/3", "v1\n{}\n-", "is damaged: the last batch in 'offsets' is 3, and in 'commits' it is 1"),
        ("metadata", "{}", "metadata is damaged: it does not have the id"),
        ("commits/1", "", "commits/1 is damaged: it does not have the version and the JSON"),
        ("commits/1", 'v1\n{"nextBatchWat', "commits/1 is damaged"),
        ("commits/1", '{"nextBatchWatermarkMs":9}', "commits/1 is damaged"),
    ],
)
def test_a_damaged_or_foreign_checkpoint(
    folder: Folder, path: str, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the file and the reason."""
    folder.write(path, text)
    assert folder.run("show") == 1
    assert message in capsys.readouterr().err


def test_bytes_that_are_no_text(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """As after a fault of a disk."""
    (folder.path / "offsets/1").write_bytes(b"v1\n\xff\xfe")
    assert folder.run("show") == 1
    assert "offsets/1 is damaged: it is not a text in UTF-8" in capsys.readouterr().err


def test_a_folder_that_is_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Or one of a query that has not begun."""
    assert main(["offsets", "show", str(tmp_path)]) == 1
    assert f"{tmp_path} is not a checkpoint of a streaming query" in capsys.readouterr().err


# --- file systems -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_files_of_any_file_system(kind: str, tmp_path: Path) -> None:
    """They are listed without hidden ones, created once, and replaced."""
    files = open_files(f"{kind}:/{tmp_path}/files")
    assert files.names("offsets") == []
    assert files.create("offsets/1", "one")
    assert not files.create("offsets/1", "two")
    assert files.create("offsets/.hidden", "x")
    assert (files.read("offsets/1"), files.names("offsets")) == ("one", ["1"])
    files.replace("offsets/1", "two")
    assert files.read("offsets/1") == "two"
    with pytest.raises(CheckpointError, match=r"offsets/7 cannot be read: it does not exist"):
        files.read("offsets/7")


def test_a_checkpoint_on_a_file_system_of_fsspec(capsys: pytest.CaptureFixture[str]) -> None:
    """It is shown and changed like a local one."""
    memory = fsspec.filesystem("memory")
    memory.pipe("/far/metadata", json.dumps({"id": QUERY}).encode())
    memory.pipe("/far/offsets/0", offset_file(FIRST).encode())
    memory.pipe("/far/commits/0", b'v1\n{"nextBatchWatermarkMs":0}')
    assert main(["offsets", "set", "memory://far", "eu/orders/1:4", "--execute", "--force"]) == 0
    capsys.readouterr()
    assert main(["offsets", "show", "memory://far", "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [p["position"] for p in found["partitions"]] == [10, 4]
    assert (found["batch"], found["finished"]) == (1, False)
    assert memory.exists("/far/dynamic-kafka-backups")


@pytest.mark.parametrize("count", [0, 3, 10**12])
def test_a_damaged_number_of_partitions_is_an_error_at_once(count: int) -> None:
    """Before any partition is listed."""
    value = encode(FIRST)
    value["clusters"]["eu"]["partitions"] = [count]
    with pytest.raises(CheckpointError, match=f"{count} partitions with 2 values"):
        decode(value)
