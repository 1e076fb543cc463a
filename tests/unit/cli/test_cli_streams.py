"""`dynamic-kafka streams` without a cluster: `validate`, and what changes between two documents."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dynamic_kafka.cli.main import main
from dynamic_kafka.cli.streams.checks import check_streams
from dynamic_kafka.cli.streams.command import _topics_found as topics_found
from dynamic_kafka.cli.streams.next_start import TopicChange, topic_changes
from dynamic_kafka.initializer import KafkaTopicPartition
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream
from dynamic_kafka.source.configure import configure_source
from dynamic_kafka.source.document.offsets import ClusterOffsets, Document, RetainedTopic
from dynamic_kafka.source.rules.model import ClusterView


def stream(name: str, **clusters: tuple[set[str], Mapping[str, str]]) -> KafkaStream:
    """A stream; a cluster's servers are named like itself unless its properties say it."""
    return KafkaStream(
        name,
        {
            cluster: ClusterMetadata(frozenset(topics), {"bootstrap.servers": f"{cluster}-1:9092", **properties})
            for cluster, (topics, properties) in clusters.items()
        },
    )


def found(*streams: KafkaStream) -> list[tuple[str, str, str]]:
    """The findings, without remedies."""
    return [(finding.result, finding.where, finding.what) for finding in check_streams(streams, None)]


def test_metadata_as_they_should_be() -> None:
    """Nothing is found."""
    secured = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": "${env:EU_PASSWORD}",
    }
    assert found(stream("orders", eu=({"orders"}, secured)), stream("clicks", eu=({"clicks"}, secured))) == []


@pytest.mark.parametrize(
    ("properties", "result", "what"),
    [
        (
            {"security.protocol": "SASL_SSL", "sasl.password": "s3cret"},
            "warning",
            "a secret in clear text: sasl.password",
        ),
        ({"fetch.max.byte": "1"}, "error", "fetch.max.bytes"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "warning", "password crosses the network"),
        ({"sasl.username": "me"}, "warning", "sasl.username without an effect"),
        ({"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}, "warning", "not fully checked"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}, "warning", "not fully checked"),
        ({"group.id": "g"}, "warning", "group.id is not used here"),
        ({"bootstrap.servers": "eu-1"}, "warning", "'eu-1' is not host:port"),
        ({"bootstrap.servers": "localhost:9092"}, "warning", "'localhost:9092' is the machine of each reader"),
    ],
)
def test_suspicious_properties(properties: dict[str, str], result: str, what: str) -> None:
    """One finding that never shows a value of a secret."""
    (only,) = check_streams([stream("orders", eu=({"orders"}, properties))], None)
    assert (only.result, only.where) == (result, "cluster 'eu'")
    assert what in only.what
    assert "s3cret" not in str(only)


def test_one_address_under_two_names() -> None:
    """Probably one Kafka cluster."""
    servers = {"bootstrap.servers": "a:9092,b:9092"}
    (only,) = check_streams([stream("s", eu=({"t"}, servers), europe=({"u"}, {"bootstrap.servers": "B:9092"}))], None)
    assert (only.result, only.where) == ("warning", "clusters 'eu', 'europe'")
    assert "they have b:9092 in common" in only.what


def test_one_topic_on_several_clusters_or_in_several_streams_is_a_note() -> None:
    """It is what a stream on many clusters is for, and what a mirror looks like."""
    two = stream("orders", eu=({"orders"}, {}), us=({"orders", "more"}, {}))
    assert found(two) == [("note", "stream 'orders'", "'orders' is read from several clusters: eu, us")]
    other = stream("mine", eu=({"orders"}, {}))
    assert ("note", "cluster 'eu', topic 'orders'", "it belongs to the streams 'mine', 'orders'") in found(two, other)


def test_names_that_are_hard_to_tell_apart_and_what_is_empty() -> None:
    """They are accepted, and hardly meant."""
    assert found(stream("orders", eu=({"a"}, {})), stream("Orders", eu=(set(), {})), stream("none")) == [
        ("warning", "stream 'Orders', cluster 'eu'", "no topics are listed, so nothing is read"),
        ("warning", "stream 'none'", "it has no cluster, so nothing is read"),
        ("warning", "stream 'Orders', 'orders'", "these names differ only in case or blanks, and are different ones"),
    ]


def test_topics_by_a_pattern_are_not_listed() -> None:
    """They are read all the same."""
    assert check_streams([stream("kafka", kafka=(set(), {}))], None, by_pattern=True) == []


@pytest.mark.parametrize(
    ("topics", "said"), [((), ["no topic matches the pattern 'o.*', so nothing is read"]), (("o",), [])]
)
def test_a_pattern_that_matches_nothing_is_said(topics: tuple[str, ...], said: list[str]) -> None:
    """It is accepted, and hardly meant."""
    settings = configure_source({"kafka.bootstrap.servers": "here:1", "subscribePattern": "o.*"})
    seen: Any = SimpleNamespace(
        streams={},
        desired={"kafka": SimpleNamespace(topics=frozenset(topics))},
        views={"kafka": ClusterView("K", {}, {}, {})},
    )
    view: Any = SimpleNamespace(monitors={})
    assert [f.what for f in topics_found(settings, seen, view) if f.result == "warning"] == said


def test_a_document_without_streams_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A query would stop reading all; the counts are shown as well, but not of a document that is none."""
    assert validate(tmp_path, "[]") == 0
    shown = capsys.readouterr().out
    assert "there is no stream: a query would stop reading all" in shown
    assert shown.endswith("0 streams, 0 clusters, 0 topics: 0 errors, 1 warning\n")
    assert validate(tmp_path, "[]", "--strict") == 1
    capsys.readouterr()
    assert validate(tmp_path, "- [") == 1
    assert "0 streams" not in capsys.readouterr().out


def test_streams_that_contradict_each_other_are_an_error() -> None:
    """No query could read them together."""
    one, two = stream("a", eu=({"t"}, {"fetch.min.bytes": "1"})), stream("b", eu=({"t"}, {"fetch.min.bytes": "2"}))
    assert [finding.result for finding in check_streams([one, two], None)] == ["error"]


# --- validate -----------------------------------------------------------------------------------------------------------

GOOD = """
- streamId: orders
  clusterMetadataList:
    - {clusterId: eu, bootstrapServers: "eu-1:9092", topics: [orders]}
"""


def validate(tmp_path: Path, text: str, *arguments: str) -> int:
    """Run the command on a file."""
    path = tmp_path / "streams.yaml"
    path.write_text(text)
    return main(["streams", "validate", str(path), *arguments])


def test_a_good_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is counted, and JSON has what it says."""
    assert validate(tmp_path, GOOD) == 0
    assert capsys.readouterr().out == "1 stream, 1 cluster, 1 topic: 0 errors, 0 warnings\n"
    assert validate(tmp_path, GOOD, "--output", "json") == 0
    assert json.loads(capsys.readouterr().out) == {"streams": {"orders": {"eu": ["orders"]}}, "findings": []}


def test_a_wrong_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each fault is a row with its path; the exit code is 1."""
    assert validate(tmp_path, "- streamId: s\n  clusterMetadataList: [{topics: t}]\n") == 1
    shown = capsys.readouterr().out
    assert "[0].clusterMetadataList[0].bootstrapServers  is missing" in shown
    assert "[0].clusterMetadataList[0].topics            expected a list, not text" in shown
    assert validate(tmp_path, "- [") == 1
    assert "not YAML" in capsys.readouterr().out
    assert main(["streams", "validate", str(tmp_path / "missing")]) == 1


def test_warnings_fail_only_a_strict_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that CI can begin without them."""
    text = GOOD.replace("topics:", "properties: {sasl.password: s3cret, security.protocol: SASL_SSL}, topics:")
    assert validate(tmp_path, text) == 0
    assert validate(tmp_path, text, "--strict") == 1
    shown = capsys.readouterr()
    assert "a secret in clear text: sasl.password" in shown.out
    assert "s3cret" not in shown.out + shown.err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    assert main(["streams", "validate", "-", "--strict"]) == 0


def test_options_are_needed(capsys: pytest.CaptureFixture[str]) -> None:
    """They say where the metadata are."""
    assert main(["streams"]) == 2
    assert "No options are given" in capsys.readouterr().err


# --- changes ------------------------------------------------------------------------------------------------------------


def cluster(kafka_id: str, *topics: str, **more: Any) -> ClusterOffsets:
    """A cluster with topics of one partition, read up to offset 10."""
    return ClusterOffsets(
        kafka_id,
        topics=dict.fromkeys(topics, "id"),
        ranges={KafkaTopicPartition(topic, 0): (10, 10) for topic in topics},
        **more,
    )


def test_changes_between_two_documents() -> None:
    """The worst first: what is not read any more, what waits, what has another name, what is new."""
    kept = {"gone": RetainedTopic("id", 1, {0: 10})}
    before = Document(
        clusters={
            "a": cluster("A", "same", "gone", "lost", "drained", "back-not"),
            "old": cluster("B", "t"),
            "dead": cluster("D", "d"),
            "r": cluster("R", retained={"again": RetainedTopic("id", 1, {0: 3})}),
        }
    )
    after = Document(
        clusters={
            "a": cluster("A", "same", "drained", "new", retained=kept, draining={"drained"}),
            "b": cluster("B", "t"),
            "dead": cluster("D", "d"),
            "r": cluster("R", "again"),
            "late": ClusterOffsets(unseen={"later": 0}),
        }
    )
    views = {"a": ClusterView("A", {}, {}, {KafkaTopicPartition("new", 0): 17, KafkaTopicPartition("same", 0): 9})}
    assert topic_changes(before, after, views, {"dead": "no answer"}) == [
        TopicChange("removed", "a", "gone", 1, 0),
        TopicChange("forgotten", "a", "back-not", 1, 0),
        TopicChange("forgotten", "a", "lost", 1, 0),
        TopicChange("unreachable", "dead", "d", 1, 0),
        TopicChange("waits", "late", "later", 0, 0),
        TopicChange("draining", "a", "drained", 1, 0),
        TopicChange("moved", "b", "t", 1, 0, "old"),
        TopicChange("returns", "r", "again", 1, 0),
        TopicChange("new", "a", "new", 1, 7),
        TopicChange("goes on", "a", "same", 1, 0),
    ]


UNTRUSTED = """
- streamId: "orders"
  clusterMetadataList:
    - clusterId: eu
      bootstrapServers: eu-1.example.com:9092
      topics: [orders]
      properties:
        security.protocol: SASL_SSL
        sasl.mechanism: PLAIN
        sasl.username: me
        sasl.password: ${file:/run/secrets/kafka/eu}
        ssl.ca.location: /etc/ssl/certs/eu.pem
"""


def test_validate_notes_what_a_query_has_to_allow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the options of a query it is an error, or in order, as for the query."""
    file = tmp_path / "streams.yaml"
    file.write_text(UNTRUSTED)
    assert main(["streams", "validate", str(file), "--strict"]) == 0
    shown = capsys.readouterr().out
    for path in ("/run/secrets/kafka/eu", "/etc/ssl/certs/eu.pem"):
        assert f"have the query allow it: metadata-service.allowed-references=file:{path}" in shown
    some = ["-o", "metadata-service.allowed-references=file:/run/secrets/kafka/*"]
    assert main(["streams", "validate", str(file), *some]) == 1
    shown = capsys.readouterr().out
    assert "error   cluster 'eu'  Property 'ssl.ca.location'" in shown
    assert "sasl.password" not in shown
    both = ["-o", f"{some[1]};file:/etc/ssl/certs/*"]
    assert main(["streams", "validate", str(file), *both]) == 0
    assert "0 errors, 0 warnings" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["plugin.library.paths", "ssl.engine.location", "sasl.kerberos.kinit.cmd", "debug"])
@pytest.mark.parametrize("command", ["streams", "doctor"])
def test_what_a_document_must_not_say_is_an_error_before_any_cluster_is_asked(
    name: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`streams` and `doctor` name the cluster, the property, and the option that would allow it."""
    file = tmp_path / "streams.yaml"
    file.write_text(UNTRUSTED.replace("ssl.ca.location", name).replace("${file:/run/secrets/kafka/eu}", "x"))
    options = ["-o", "metadata-service=file", "-o", f"metadata-service.path={file}"]
    options += ["-o", "stream-ids=orders"] if command == "doctor" else []
    assert main([command, *options, "--timeout", "1"]) == 1
    shown = capsys.readouterr().out
    assert f"Property '{name}' is not allowed in metadata" in shown
    assert "'eu'" in shown
    assert f"metadata-service.allowed-properties={name}" in shown


@pytest.mark.parametrize("ending", ["\x1b]0;pwned\x07", "\x1b[2J", "\r", "\x9b31m", "\u202e"])
def test_nothing_that_a_document_says_controls_the_terminal(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In errors, tables and JSON: control characters are shown as escapes."""
    file = tmp_path / "streams.yaml"
    file.write_text(
        json.dumps(
            [
                {
                    "streamId": f"a{ending}",
                    "clusterMetadataList": [
                        {"clusterId": f"c{ending}", "bootstrapServers": f"b{ending}:1", "topics": [f"t{ending}"]}
                    ],
                }
            ]
        )
    )
    options = ["-o", "metadata-service=file", "-o", f"metadata-service.path={file}", "--timeout", "1"]
    for command in (
        ["streams", *options],
        ["streams", "validate", str(file)],
        ["streams", "validate", str(file), "--output", "json"],
    ):
        main(command)
        shown = capsys.readouterr()
        for text in (shown.out, shown.err):
            assert all(line.isprintable() for line in text.split("\n")), command


def test_an_error_of_any_kind_is_printable(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Also one of another library."""

    def fail(_args: Any) -> int:
        raise RuntimeError("a\x1b[2J\x07b")

    monkeypatch.setattr("dynamic_kafka.cli.streams.command.query_options_of", fail)
    assert main(["streams", "-o", "a=b"]) == 1
    assert "a\\x1b[2J\\x07b" in capsys.readouterr().err
