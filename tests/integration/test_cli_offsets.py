"""`dynamic-kafka offsets reset`, which asks real clusters, on checkpoints of queries that have read from them."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from dynamic_kafka.cli.main import main
from dynamic_kafka.errors import ClusterUnavailableError
from dynamic_kafka.sink.configure import commit_log_topic
from dynamic_kafka.sink.log.chain import Chain, Record, State
from dynamic_kafka.sink.log.commit_log import CommitLog
from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.engine import MetadataFile, Query, part, read_all, write_checkpoint
from tests.spark.tables import Topic

pytestmark = pytest.mark.broker


class Stopped:
    """A query without Spark that has read what there was, and its checkpoint.

    Args:
        path: Where the checkpoint is.
        broker: The cluster.
        name: The topic.
    """

    def __init__(self, path: Path, broker: KafkaBroker, name: str) -> None:
        self.path = path
        self.query = Query({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": name})
        self.query.available_now()
        self.query.close()
        write_checkpoint(path, self.query.log)

    def reset(self, *arguments: str) -> int:
        """Run `offsets reset`."""
        return main(["offsets", "reset", str(self.path), "--force", "--timeout", "10", *arguments])

    def read_on(self) -> list[tuple[int, int]]:
        """Go on from the checkpoint: (partition, offset) of what is read."""
        self.query.rows.clear()
        self.query.log = [path.read_text().split("\n")[2] for path in self._batches()]
        self.query.available_now()
        self.query.close()
        return sorted((row["partition"], row["offset"]) for row in self.query.rows)

    def _batches(self) -> list[Path]:
        return sorted((self.path / "offsets").iterdir(), key=lambda path: int(path.name))


def test_positions_of_the_cluster(
    cluster_a: KafkaBroker, topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Earliest, latest, and the first record at or after a time; the end where there is none."""
    name = topic(cluster_a, partitions=2)
    now_ms = time.time_ns() // 1_000_000
    produce(cluster_a.bootstrap_servers, name, [(None, "a")], partition=0, timestamp_ms=now_ms - 60_000)
    produce(cluster_a.bootstrap_servers, name, [(None, "b"), (None, "c")], partition=0, timestamp_ms=now_ms)
    produce(cluster_a.bootstrap_servers, name, [(None, "d")], partition=1, timestamp_ms=now_ms - 60_000)
    stopped = Stopped(tmp_path, cluster_a, name)
    produce(cluster_a.bootstrap_servers, name, [(None, "e")], partition=1, timestamp_ms=now_ms)
    assert stopped.reset("--to", "earliest") == 0
    assert "3 offsets back" in capsys.readouterr().out
    assert stopped.read_on() == [(1, 1)]  # a dry run
    assert stopped.reset("--to", str(now_ms - 1000), "--execute") == 0
    assert stopped.read_on() == [(0, 1), (0, 2), (1, 1)]
    assert stopped.reset("--to", "earliest", "--topic", name, "--cluster", "kafka", "--execute") == 0
    assert stopped.read_on() == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert stopped.reset("--to", "latest", "--execute") == 0
    assert stopped.read_on() == []


def test_a_topic_that_was_recreated_is_read_as_the_new_one(
    cluster_a: KafkaBroker, topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reset is the user's word that the old records are gone: the query goes on without an error of lost data."""
    name = topic(cluster_a, partitions=2)
    produce(cluster_a.bootstrap_servers, name, [(None, str(i)) for i in range(5)], partition=0)
    stopped = Stopped(tmp_path, cluster_a, name)
    admin = AdminClient({"bootstrap.servers": cluster_a.bootstrap_servers})
    admin.delete_topics([name])[name].result(20)
    wait_until(lambda: name not in admin.list_topics(timeout=10).topics, 20, "the deletion")
    admin.create_topics([NewTopic(name, 1)])[name].result(20)
    wait_until(lambda: name in admin.list_topics(timeout=10).topics, 20, "the new topic")
    produce(cluster_a.bootstrap_servers, name, [(None, "new")])
    assert stopped.reset("--to", "earliest", "--execute", "--output", "json") == 0
    shown = capsys.readouterr()
    assert [c["effect"] for c in json.loads(shown.out)["changes"]] == ["5 offsets back", "not there any more"]
    assert f"cluster 'kafka', topic '{name}' was recreated" in shown.err
    assert stopped.read_on() == [(0, 0)]


def test_another_cluster_is_not_asked(
    cluster_a: KafkaBroker,
    cluster_b: KafkaBroker,
    topic: Topic,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its offsets mean nothing here. A cluster that does not answer, and an unknown topic, are errors, too."""
    name = topic(cluster_a, cluster_b)
    produce(cluster_a.bootstrap_servers, name, [(None, "a")])
    stopped = Stopped(tmp_path, cluster_a, name)
    assert stopped.reset("--to", "earliest", "--property", f"bootstrap.servers={cluster_b.bootstrap_servers}") == 1
    assert "but the checkpoint was read from" in capsys.readouterr().err
    assert stopped.reset("--to", "earliest", "--property", "bootstrap.servers=127.0.0.1:1", "--timeout", "1") == 1
    assert "Cluster 'kafka' at 127.0.0.1:1 does not answer" in capsys.readouterr().err
    assert stopped.reset("--to", "earliest", "--topic", "other") == 2
    with pytest.raises(SystemExit):
        stopped.reset("--to", "yesterday")


@pytest.mark.slow
def test_a_dead_cluster_is_taken_out_of_the_batch_that_waits_for_it(
    cluster_a: KafkaBroker, cluster_b: KafkaBroker, topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The query then reads the other cluster, and the dead one once it answers: each record once."""
    name = topic(cluster_a, cluster_b)
    alive = part(cluster_a, name)
    other = part(cluster_b, name)
    metadata = MetadataFile(tmp_path / "metadata.yaml")
    metadata.write(s={"alive": alive, "other": other})
    limits = {"kafkaConsumer.pollTimeoutMs": "1000", "properties.default.api.timeout.ms": "1000"}
    query = Query(metadata.options(**limits, **{"cluster-failure-mode": "isolate"}))
    for broker in (cluster_a, cluster_b):
        produce(broker.bootstrap_servers, name, [(None, "1")])
    query.run_until_rows(2)
    for broker in (cluster_a, cluster_b):
        produce(broker.bootstrap_servers, name, [(None, "2"), (None, "3")])
    start, planned = query.document, 0
    while planned < 4:
        end = json.loads(json.dumps(query.enumerator.latest_offset(start, limited=True)))
        planned = sum(r.end - r.start for task in query.enumerator.tasks(start, end) for r in task.ranges)
    query.log.append(json.dumps(end))

    metadata.write(s={"alive": alive, "other": {**other, "bootstrapServers": "127.0.0.1:1"}})
    query.close()
    with pytest.raises(ClusterUnavailableError, match="dynamic-kafka offsets postpone CHECKPOINT other"):
        read_all(query.enumerator.tasks(start, end), query.settings)
    query.close()
    checkpoint = write_checkpoint(tmp_path / "checkpoint", query.log, unfinished=True)
    command = ["offsets", "postpone", checkpoint, "other", "--execute"]
    assert main([*command, "--rewrite-unfinished", "--force"]) == 0
    assert "leaves 2 offsets of 'other' (1 partition) to a later batch" in capsys.readouterr().out

    query.log[-1] = (tmp_path / "checkpoint" / "offsets" / str(len(query.log) - 1)).read_text().split("\n")[2]
    query.restart(forget_last_batch=True)
    assert len(query.rows) == 4
    produce(cluster_a.bootstrap_servers, name, [(None, "4")])
    query.run_until_rows(5)
    metadata.write(s={"alive": alive, "other": other})
    query.run_until_rows(7)
    query.assert_once()
    assert query.values() == ["1", "1", "2", "2", "3", "3", "4"]
    query.close()


class Log:
    """The commit log of a prefix.

    Args:
        broker: Its cluster.
        prefix: The prefix.
    """

    def __init__(self, broker: KafkaBroker, prefix: str) -> None:
        self._place = "kafka", broker.client_properties(), commit_log_topic(prefix)

    def write(self, state: State) -> None:
        """Append a state that counts, and make the topic if it is not there."""
        log = CommitLog(*self._place, timeout_ms=20_000)
        with closing(log):
            if not log.topic.exists():
                log.topic.create(None)
            state = replace(state, places=(f"{log.topic.kafka_id()}/{self._place[2]}",))
            log.append(Record(f"{state.status}-{time.monotonic_ns()}", log.read().offset, state))

    def read(self) -> Chain:
        """Its head."""
        log = CommitLog(*self._place, timeout_ms=20_000)
        with closing(log):
            return log.read()


def test_the_commit_log_of_the_sink_decides_about_an_unfinished_batch(
    cluster_a: KafkaBroker, topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A batch that is not published may be changed, after the log was taken away from it. A published one may not."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, "a"), (None, "b")])
    Stopped(tmp_path, cluster_a, name)
    (tmp_path / "metadata").write_text('{"id": "q"}')
    (tmp_path / "commits/0").unlink()
    log = Log(cluster_a, name)
    prefix = ["--sink-prefix", name, "--commit-log-property", f"bootstrap.servers={cluster_a.bootstrap_servers}"]

    def change(offset: int) -> int:
        for path in tmp_path.rglob("offsets/*"):
            os.utime(path, (1, 1))
        command = ["offsets", "set", str(tmp_path), f"kafka/{name}/0:{offset}", "--rewrite-unfinished", *prefix]
        return main([*command, "--execute", "--timeout", "20"])

    assert change(1) == 1
    assert "does not exist or is empty" in capsys.readouterr().out
    log.write(State("c", 2, "owned", applied={"another": 5}))
    assert change(1) == 1
    assert "knows no batch of this query" in capsys.readouterr().out
    assert log.read().state.generation == 2
    log.write(State("c", 3, "owned"))
    assert change(1) == 0
    assert "Batch 0 is not published" in capsys.readouterr().out
    assert (log.read().state.generation, log.read().state.status) == (4, "owned")
    log.write(State("c", 4, "finished", "q", 0, applied={"q": 0}))
    assert change(0) == 1
    assert "Batch 0 is decided or published" in capsys.readouterr().out
