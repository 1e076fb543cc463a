"""`dynamic-kafka streams` with real clusters: what is there, and what the next start with a checkpoint would do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynamic_kafka.cli.main import main
from dynamic_kafka.testing import KafkaBroker, produce
from tests.engine import MetadataFile, Query, part, write_checkpoint
from tests.spark.tables import Topic

pytestmark = pytest.mark.broker

NOWHERE = "127.0.0.1:1"


def streams(file: MetadataFile, *arguments: str) -> int:
    """Run the command with the metadata's options."""
    options = ["-o", "metadata-service=file", "-o", f"metadata-service.path={file.path}", "--timeout", "3"]
    return main(["streams", *options, *arguments])


def checkpoint_of(file: MetadataFile, path: Path) -> str:
    """The checkpoint of a query that has read what there is."""
    query = Query(file.options())
    query.available_now()
    query.close()
    return write_checkpoint(path, query.log)


def test_what_the_metadata_say_is_checked(
    cluster_a: KafkaBroker,
    cluster_b: KafkaBroker,
    topic: Topic,
    file: MetadataFile,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The worst first: a cluster that is down, and a topic with a mistake in its name. --all shows what is right."""
    name = topic(cluster_a, cluster_b, partitions=2)
    file.write(s={"a": part(cluster_a, name, f"{name}s"), "dead": {"bootstrapServers": NOWHERE, "topics": ["t"]}})
    assert streams(file, "--all") == 1
    rows = capsys.readouterr().out.splitlines()
    assert rows[1].startswith("error    cluster 'dead'")
    assert f"cluster 'a', topic '{name}s'" in rows[2]
    assert f"did you mean '{name}'?" in rows[2]
    assert f"cluster 'a', topic '{name}'" in next(row for row in rows if "2 partitions" in row)
    file.write(s={"a": part(cluster_a, name), "b": part(cluster_b, name)})
    assert streams(file, "-o", "stream-ids=s") == 0
    assert "1 stream, 2 clusters, 2 topics: 0 errors" in capsys.readouterr().out
    assert streams(file, "-o", "stream-ids=s,other") == 1
    assert "the metadata service does not know it" in capsys.readouterr().out
    assert main(["streams", "validate", str(file.path), "--connect", "--timeout", "5"]) == 0


def test_what_the_next_start_would_do(
    cluster_a: KafkaBroker,
    cluster_b: KafkaBroker,
    topic: Topic,
    file: MetadataFile,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A cluster has a new name, a topic is gone, and one is new: found by the rules of the source itself."""
    kept, gone, new = topic(cluster_a), topic(cluster_a), topic(cluster_b, partitions=3)
    for name in (kept, gone):
        produce(cluster_a.bootstrap_servers, name, [(None, "1")])
    file.write(s={"a": part(cluster_a, kept, gone)})
    checkpoint = checkpoint_of(file, tmp_path / "checkpoint")
    produce(cluster_a.bootstrap_servers, kept, [(None, "2"), (None, "3")])
    produce(cluster_a.bootstrap_servers, gone, [(None, "2")])
    produce(cluster_b.bootstrap_servers, new, [(None, "1")])
    file.write(s={"renamed": part(cluster_a, kept), "b": part(cluster_b, new)})
    assert streams(file, "--diff", checkpoint, "--output", "json") == 3
    found = json.loads(capsys.readouterr().out)
    assert [(c["change"], c["cluster"], c["topic"], c["partitions"], c["unread"]) for c in found["changes"]] == [
        ("removed", "a", gone, 1, 0),
        ("moved", "renamed", kept, 1, 2),
        ("new", "b", new, 3, 1),
    ]
    texts = [event["text"] for event in found["events"]]
    assert [text for text in texts if "'renamed' is the cluster that was 'a'" in text]
    assert [text for text in texts if f"topic '{gone}' was removed; 1 records are left unread" in text]
    assert found["differs"]
    file.write(s={"renamed": part(cluster_a, kept), "b": part(cluster_b, new, f"{new}s")})
    assert streams(file, "--diff", checkpoint) == 3
    shown = capsys.readouterr().out
    assert f"topic '{new}s' does not exist, say its brokers; did you mean '{new}'?" in shown
    assert "Positions of what is removed are kept for 7 d 0 h" in shown
    assert "0 topics go on as before; the first batch has 3 offsets to read" in shown


def test_a_start_that_would_fail(
    cluster_a: KafkaBroker,
    cluster_b: KafkaBroker,
    topic: Topic,
    file: MetadataFile,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A mistake in the addresses, and a cluster that is down: the error of the next start, before it happens."""
    name = topic(cluster_a, cluster_b)
    produce(cluster_a.bootstrap_servers, name, [(None, "1")])
    file.write(s={"a": part(cluster_a, name)})
    checkpoint = checkpoint_of(file, tmp_path / "checkpoint")
    file.write(s={"a": part(cluster_b, name)})
    assert streams(file, "--diff", checkpoint) == 1
    assert "The next start ends with CheckpointError: Cluster 'a' leads to Kafka cluster.id" in capsys.readouterr().out
    file.write(s={"a": part(cluster_a, name), "dead": {"bootstrapServers": NOWHERE, "topics": ["t"]}})
    assert streams(file, "--diff", checkpoint) == 1
    shown = capsys.readouterr().out
    assert "error: Cluster 'dead' at 127.0.0.1:1 does not answer" in shown
    assert "cluster-failure-mode=fail" in shown
    assert streams(file, "--diff", checkpoint, "-o", "cluster-failure-mode=isolate") == 3
    file.write(s={"a": part(cluster_a, name)})
    assert streams(file, "--diff", checkpoint, "-o", "startingOffsets=earliest") == 0
    file.path.unlink()
    assert streams(file, "--diff", checkpoint) == 1
    assert "cannot be read" in capsys.readouterr().err
