"""`dynamic-kafka tail` on real clusters."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from dynamic_kafka.cli.main import main
from dynamic_kafka.testing import KafkaBroker, produce, wait_until
from tests.brokers import SECURED_USERS
from tests.engine import MetadataFile, part
from tests.spark.tables import Topic

pytestmark = pytest.mark.broker

AT_MS = 1_700_000_000_000


def tail(broker: KafkaBroker, name: str, *arguments: str) -> int:
    """Run the command on a topic."""
    return main(["tail", "--bootstrap-servers", broker.bootstrap_servers, "--topic", name, *arguments])


def read(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The messages in the output."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_messages_are_shown_from_where_the_user_says(
    cluster_a: KafkaBroker, topic: Topic, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the earliest, an offset, a time, or the last ones. It ends at the end, and no group is made."""
    name = topic(cluster_a, config={"retention.ms": "-1"})  # the records are old
    for i in range(5):
        produce(cluster_a.bootstrap_servers, name, [(f"k{i}", f"v{i}")], timestamp_ms=AT_MS + i * 1000)
    produce(cluster_a.bootstrap_servers, name, [(None, None)], headers=[("h", b"\xff"), ("n", None)])
    assert tail(cluster_a, name, "--from", "earliest", "-n", "2") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"kafka/{name}/0:0  2023-11-14T22:13:20.000Z  k0  v0",
        f"kafka/{name}/0:1  2023-11-14T22:13:21.000Z  k1  v1",
    ]
    for start, offsets in (("4", [4, 5]), ("-1", [5]), ("2023-11-14T22:13:23Z", [3, 4, 5]), ("99", [])):
        assert tail(cluster_a, name, "--from", start, "--output", "json") == 0
        assert [message["offset"] for message in read(capsys)] == offsets
    assert tail(cluster_a, name, "--from", "-1", "--headers", "--output", "json") == 0
    (message,) = read(capsys)
    assert (message["key"], message["value"]) == (None, None)
    error = "it is no UTF-8 (invalid start byte at byte 0)"
    assert message["headers"] == [
        {"name": "h", "value": None, "value_hex": "ff", "value_error": error},
        {"name": "n", "value": None},
    ]
    assert tail(cluster_a, name, "--from", "-1", "--headers") == 0
    assert capsys.readouterr().out.rstrip().endswith("null  null  h=0xff  n=null")
    assert tail(cluster_a, name, "--from", "earliest", "--format", "json", "-n", "1", "--output", "json") == 0
    assert read(capsys)[0]["value_hex"] == b"v0".hex()
    groups = AdminClient({"bootstrap.servers": cluster_a.bootstrap_servers}).list_consumer_groups().result(10).valid
    assert "dynamic-kafka-cli" not in {group.group_id for group in groups}


def test_long_values_are_cut(cluster_a: KafkaBroker, topic: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    """Unless --full is given."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, "x" * 700)])
    assert tail(cluster_a, name, "--from", "earliest") == 0
    assert "xxx... (700 bytes; --full shows all)" in capsys.readouterr().out
    assert tail(cluster_a, name, "--from", "earliest", "--full") == 0
    assert "x" * 700 in capsys.readouterr().out


def test_new_messages_are_waited_for(cluster_a: KafkaBroker, topic: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    """From latest, which is the default, until there are enough; or for as long as --wait says."""
    name = topic(cluster_a)
    produce(cluster_a.bootstrap_servers, name, [(None, "old")])
    assert tail(cluster_a, name, "--wait", "0.5") == 0
    assert capsys.readouterr().out == "No messages.\n"
    codes: list[int] = []
    running = threading.Thread(target=lambda: codes.append(tail(cluster_a, name, "-n", "1", "--output", "json")))
    running.start()

    def arrived() -> bool:
        produce(cluster_a.bootstrap_servers, name, [(None, "new")])
        running.join(0.3)
        return not running.is_alive()

    wait_until(arrived, 30, "a message")
    assert codes == [0]
    assert [message["value"] for message in read(capsys)] == ["new"]


def test_a_stream_on_several_clusters(
    cluster_a: KafkaBroker,
    cluster_b: KafkaBroker,
    topic: Topic,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By its id in the metadata. What cannot be read is a warning, and an error if there is nothing else."""
    name = topic(cluster_a, cluster_b, partitions=2)
    produce(cluster_a.bootstrap_servers, name, [(None, "a")], partition=0)
    produce(cluster_b.bootstrap_servers, name, [(None, "b")], partition=1)
    metadata = MetadataFile(tmp_path / "streams.yaml")
    clusters = {
        "a": part(cluster_a, name, "missing"),
        "b": part(cluster_b, name),
        "dead": {"bootstrapServers": "127.0.0.1:1", "topics": [name]},
    }
    metadata.write(s=clusters)
    command = ["tail", "-o", "metadata-service=file", "-o", f"metadata-service.path={metadata.path}", "--stream", "s"]
    command += ["--from", "earliest", "--timeout", "2", "--output", "json"]
    assert main([*command, "--stream", "t"]) == 1
    shown = capsys.readouterr()
    found = [json.loads(line) for line in shown.out.splitlines()]
    assert sorted((m["cluster"], m["partition"], m["value"]) for m in found) == [("a", 0, "a"), ("b", 1, "b")]
    assert "Cluster 'dead' at 127.0.0.1:1 does not answer" in shown.err
    assert "cluster 'a', topic 'missing' does not exist" in shown.err
    assert "the metadata service does not know these streams: t" in shown.err
    assert main([*command, "--cluster", "b", "--partition", "1"]) == 0
    assert [message["value"] for message in read(capsys)] == ["b"]
    assert main([*command, "--cluster", "dead"]) == 1
    assert main([*command, "--cluster", "unknown"]) == 2
    command[command.index("s")] = "orders"
    assert main(command) == 2
    wanted = "There is no partition to read: the metadata service does not know these streams: orders"
    assert wanted in capsys.readouterr().err


def test_what_may_not_be_read_and_no_secret_is_shown(
    secured: KafkaBroker, topic: Topic, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user without rights on the topic gets a clear answer."""
    name = topic(secured)
    login = ["--property", "security.protocol=SASL_PLAINTEXT", "--property", "sasl.mechanism=PLAIN"]
    login += ["--property", "sasl.username=reader", "--property", f"sasl.password={SECURED_USERS['reader']}"]
    assert tail(secured, name, *login, "--from", "earliest") == 2
    shown = capsys.readouterr()
    assert "There is no partition to read" in shown.err
    assert tail(secured, name, *login[:-1], "sasl.password=wrong-secret", "--timeout", "5") == 1
    wrong = capsys.readouterr()
    assert "refuses the login" in wrong.err
    assert not {"wrong-secret", SECURED_USERS["reader"]} & set(re.findall(r"[\w-]+", "".join((*shown, *wrong))))
