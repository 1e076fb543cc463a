"""The metadata document: what is read, and how faults are named."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_kafka.errors import MetadataServiceError
from dynamic_kafka.initializer import KafkaOffsetsInitializer, initializer_to_json
from dynamic_kafka.metadata.document import parse_document
from dynamic_kafka.metadata.model import ClusterMetadata, KafkaStream

YAML = """\
- streamId: orders
  clusterMetadataList:
    - clusterId: eu
      bootstrapServers: [eu-1:9092, eu-2:9092]
      topics: [orders, orders-v2]
      properties:
        security.protocol: SASL_SSL
        sasl.jaas.config: ${env:EU_JAAS}
        request.timeout.ms: 30000
        enable.auto.commit: false
      startingOffsets: latest
      stoppingOffsets: {timestamp: 1657256176000}
    - bootstrapServers: us:9092
      topics: [orders]
- streamId: users
  clusterMetadataList: []
"""


def cluster(**changes: Any) -> dict[str, Any]:
    """A valid cluster entry, changed; None takes a key out."""
    entry = {"clusterId": "c", "bootstrapServers": "h:9092", "topics": ["t"]} | changes
    return {key: value for key, value in entry.items() if value is not None}


def document(*clusters: dict[str, Any]) -> str:
    """A document with one stream of these clusters."""
    return json.dumps([{"streamId": "s", "clusterMetadataList": list(clusters)}])


def fault(text: str, source: str = "m.yaml") -> str:
    """The message of the error that the text raises."""
    with pytest.raises(MetadataServiceError) as caught:
        parse_document(text, source)
    assert caught.value.__cause__ is None
    return str(caught.value)


def test_document_describes_streams_clusters_topics_properties_and_offsets() -> None:
    """Every key of the document arrives in the model; the cluster id defaults to the bootstrap servers."""
    orders, users = parse_document(YAML, "m.yaml")
    eu, us = orders.clusters["eu"], orders.clusters["us:9092"]
    assert (orders.stream_id, users) == ("orders", KafkaStream("users", {}))
    assert eu.topics == {"orders", "orders-v2"}
    assert eu.properties == {
        "bootstrap.servers": "eu-1:9092,eu-2:9092",
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": "${env:EU_JAAS}",
        "request.timeout.ms": "30000",
        "enable.auto.commit": "false",
    }
    assert eu.starting_offsets == KafkaOffsetsInitializer.latest()
    assert initializer_to_json(eu.stopping_offsets) == {"timestamp": 1657256176000}
    assert us == ClusterMetadata(frozenset({"orders"}), {"bootstrap.servers": "us:9092"})


@pytest.mark.parametrize("servers", ["b:1,a:1", "a:1, b:1", ["b:1", "a:1"], ["a:1,b:1", " a:1 "]])
def test_the_default_cluster_id_does_not_depend_on_the_spelling(servers: Any) -> None:
    """The order of the servers, spaces and repetitions are no other cluster."""
    (stream,) = parse_document(document({"bootstrapServers": servers, "topics": ["t"]}), "m.json")
    assert list(stream.clusters) == ["a:1,b:1"]


def test_document_may_be_json() -> None:
    """JSON gives the same streams, by file name, by its look, and through the YAML parser."""
    text = document(cluster(startingOffsets={"t": {"0": 5}}, properties={"client.id": "\ud83d\ude00"}))
    assert parse_document(text, "m.json") == parse_document(text, "https://host/metadata")


def test_document_of_plain_yaml_scalars_keeps_their_spelling() -> None:
    """Only true, false, null and whole numbers are not text, so `no`, dates, octals and floats stay as written."""
    text = """\
- streamId: no
  clusterMetadataList:
    - bootstrapServers: h:9092
      topics: [2024-01-01, on, 1e3]
      properties: {sasl.password: 007, a: 0x10, b: 1_000, c: 12:30, d: 1.50, e: yes, f: 12, g: true}
"""
    (stream,) = parse_document(text, "m.yaml")
    found = stream.clusters["h:9092"]
    assert stream.stream_id == "no"
    assert found.topics == {"2024-01-01", "on", "1e3"}
    assert list(found.properties.values())[1:] == ["007", "0x10", "1_000", "12:30", "1.50", "yes", "12", "true"]


def test_document_may_reuse_parts_by_anchor_and_merge_key() -> None:
    """Properties that clusters share are written once; an own key wins over a merged one."""
    text = """\
- streamId: s
  clusterMetadataList:
    - {bootstrapServers: a:1, topics: [t], properties: &common {x: '1', y: '1'}}
    - {bootstrapServers: b:1, topics: [t], properties: {<<: *common, y: '2'}}
    - {bootstrapServers: c:1, topics: [t], properties: *common}
"""
    (stream,) = parse_document(text, "m.yaml")
    assert [dict(c.properties) for c in stream.clusters.values()] == [
        {"bootstrap.servers": "a:1", "x": "1", "y": "1"},
        {"bootstrap.servers": "b:1", "x": "1", "y": "2"},
        {"bootstrap.servers": "c:1", "x": "1", "y": "1"},
    ]


BOMBS = {
    "lists within lists": "- &a [x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"- &{chr(b)} [{', '.join([f'*{chr(b - 1)}'] * 9)}]\n" for b in range(ord("b"), ord("k"))),
    "merged keys": "- &a {x: 1}\n"
    + "".join(f"- &{chr(b)} {{<<: [{', '.join([f'*{chr(b - 1)}'] * 9)}]}}\n" for b in range(ord("b"), ord("k"))),
    "one long list, often": f"- &a [{', '.join('x' * 2_000)}]\n" + "- *a\n" * 2_000,
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_aliases_may_not_stand_for_millions_of_values(bomb: str) -> None:
    """A few KB of aliases within aliases neither fill the memory nor take long."""
    began = time.monotonic()
    assert "its aliases stand for more than 1,000,000 values" in fault(BOMBS[bomb])
    assert time.monotonic() - began < 5


def test_aliases_may_not_nest_deeply() -> None:
    """Each alias adds a level, without a bracket that would be counted."""
    chain = "- &a0 [x]\n" + "".join(f"- &a{n} [*a{n - 1}]\n" for n in range(1, 50))
    assert "it is nested too deeply" in fault(chain)


@pytest.mark.parametrize(
    "tag",
    [
        "!!python/object/apply:os.system ['touch {path}']",
        "!!python/object/new:subprocess.Popen [['touch', '{path}']]",
        "!!python/name:os.system",
        "!!python/module:os",
        "!include {path}",
    ],
)
def test_yaml_runs_no_code(tag: str, tmp_path: Path) -> None:
    """Tags of Python, or of anybody, are an error."""
    path = tmp_path / "made"
    assert "a tag, alias or key that cannot be used here" in fault(f"- streamId: {tag.format(path=path)}")
    assert not path.exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the document: expected a list, not nothing"),
        ("streamId: s", "the document: expected a list, not a mapping"),
        ("[1]", "[0]: expected a mapping, not a number"),
        ("- streamId: s", "[0].clusterMetadataList: is missing"),
        ("- streamId: ''\n  clusterMetadataList: []", "[0].streamId: expected a name that is not empty"),
        ("- stream_id: s\n  clusterMetadataList: []", "[0].streamId: is missing"),
        (document(cluster(), cluster(topics="t")), "[0].clusterMetadataList[1].topics: expected a list, not text"),
        (document(cluster(topics=["a", 7])), ".topics[1]: expected text, not a number (put it in quotes)"),
        (document(cluster(topics=None)), "[0].clusterMetadataList[0].topics: is missing"),
        (document(cluster(topicz=["a"])), ".topicz: unknown key; did you mean 'topics'?"),
        (document(cluster(zzz=1)), ".zzz: unknown key; the known keys are clusterId, bootstrapServers, topics"),
        (document(cluster(bootstrapServers=9092)), ".bootstrapServers: expected host:port"),
        (document(cluster(bootstrapServers=" , ")), ".bootstrapServers: expected at least one host:port"),
        (document(cluster(properties={"a.b": ["x"]})), "[0].properties['a.b']: expected text, not a list"),
        (document(cluster(properties={"bootstrap.servers": "x"})), ".properties: bootstrap.servers does not belong here"),
        (document(cluster(startingOffsets="newest")), ".startingOffsets: 'newest' is not one of earliest"),
        (document(cluster(stoppingOffsets={"t": {"0": []}})), ".stoppingOffsets: [] is not an offset"),
        (document(cluster(), cluster()), "[0].clusterMetadataList[1]: cluster 'c' is already at [0].clusterMetadataList[0]"),
        (
            json.dumps([{"streamId": "s", "clusterMetadataList": []}] * 2),
            "[1].streamId: stream 's' is already at [0]; merge the two",
        ),
        ("- streamId: a\n  streamId: b", "line 2, column 3: the key 'streamId' occurs twice"),
        ("- {a: 1", "not YAML, did not find expected ',' or '}'"),
        ("a\n---\nb", "line 2, column 1: not YAML"),
        ("a: *x", "line 1, column 4: not YAML, a tag, alias or key that cannot be used here"),
        ("a: !!int ''", "not YAML, a value does not fit its tag"),
        ("a\x00b", "character 2: not YAML, a character that is not allowed"),
        ("[" * 100_000, "it is nested too deeply"),
        ("- &a [*a]", "an alias stands within what it stands for"),
    ],
)  # fmt: skip
def test_fault_is_named_with_its_path_and_what_was_expected(text: str, expected: str) -> None:
    """The first line names the source, the path to the fault, and what is expected there."""
    first_line = fault(text).splitlines()[0]
    assert first_line.startswith("Metadata document 'm.yaml' is invalid: ")
    assert expected in first_line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[{"streamId": "s",', "line 1, column 19: not JSON, Expecting property name"),
        ('[{"streamId": "s", "streamId": "t"}]', "the key 'streamId' occurs twice in one object"),
        ("- streamId: s", "line 1, column 1: not JSON"),
        ("[" * 100_000, "it is nested too deeply"),
        ("[" + "1" * 5000 + "]", "not JSON, a number is too long"),
    ],
)
def test_fault_in_a_json_file_speaks_of_json(text: str, expected: str) -> None:
    """A file that ends in .json is never explained as YAML."""
    assert expected in fault(text, "m.json")


def test_further_faults_follow_on_lines_of_their_own() -> None:
    """All faults are shown, up to five, so that they can be mended in one go."""
    lines = fault(document(cluster(topics=list(range(7))))).splitlines()
    assert [line.split(":")[0] for line in lines[1:5]] == [
        f"[0].clusterMetadataList[0].topics[{i}]" for i in (1, 2, 3, 4)
    ]
    assert lines[5:] == ["and 2 more errors"]


@pytest.mark.parametrize(
    "text",
    [
        document(cluster(properties={"sasl.password": ["s3cret"]})),
        document(cluster(properties="s3cret")),
        document(cluster(properties={"sasl.password": "s3cret"}, topics=None)),
        "- streamId: s\n  clusterMetadataList:\n  - properties: {sasl.password: *s3cret}",
        "- streamId: s\n  clusterMetadataList:\n  - properties: {sasl.password: !s3cret }",
        "- streamId: s\n  clusterMetadataList:\n  - properties: {sasl.password: !!int s3cret}",
        "- streamId: s\n  clusterMetadataList:\n  - properties: {sasl.password: 's3cret}",
    ],
)
def test_fault_never_shows_a_property_value(text: str) -> None:
    """Whatever is wrong, at or near a secret, the secret is not in the message."""
    assert "s3cret" not in fault(text)


@given(st.data())
def test_damaged_text_raises_nothing_but_metadata_service_error(data: st.DataObject) -> None:
    """Cut, spliced and mutated documents are either read or refused properly."""
    base = data.draw(st.sampled_from([YAML, document(cluster(properties={"a": "b"}, startingOffsets={"t": {"0": 1}}))]))
    start = data.draw(st.integers(0, len(base)))
    end = data.draw(st.integers(start, min(len(base), start + 20)))
    junk = data.draw(
        st.text(max_size=5)
        | st.text("[]{}:,-&*!|>'\"#%@`?~<\n\t 01.", max_size=8)
        | st.sampled_from(
            ["!!int ", "!!bool x", "!!timestamp x", "!!binary x", "!!set {", "!!omap ", "<<: ", "&a ", "*a"]
        )
    )
    try:
        streams = parse_document(base[:start] + junk + base[end:], data.draw(st.sampled_from(["m.yaml", "m.json"])))
    except MetadataServiceError as error:
        assert str(error).startswith("Metadata document 'm.")  # noqa: PT017
    else:
        assert all(isinstance(stream, KafkaStream) for stream in streams)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["earliest", "t"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.just("0"), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from(["clusterId", "bootstrapServers", "topics", "properties", "startingOffsets", "stoppingOffsets"]),
    _json,
)
def test_any_value_at_any_key_raises_nothing_but_metadata_service_error(key: str, value: Any) -> None:
    """A value of whatever shape is either taken or refused properly."""
    text = json.dumps([{"streamId": "s", "clusterMetadataList": [cluster() | {key: value}]}])
    for source in ("m.yaml", "m.json"):
        try:
            parse_document(text, source)
        except MetadataServiceError as error:
            assert "[0].clusterMetadataList[0]" in str(error)  # noqa: PT017


def test_services_are_imported_without_pydantic() -> None:
    """Executors that unpickle a service do not pay for pydantic, yaml or httpx2."""
    code = (
        "import sys, dynamic_kafka.metadata.watcher, dynamic_kafka.metadata.services;"
        "dynamic_kafka.metadata.services.HttpMetadataService('http://h/');"
        "sys.exit(', '.join({'pydantic', 'yaml', 'httpx2', 'confluent_kafka'} & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
