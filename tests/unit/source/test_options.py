"""The option table and what options mean together: every name, every value that is wrong, every conflict."""

from __future__ import annotations

import contextlib
import json
import pickle
import re
from typing import Any

import pytest

from dynamic_kafka.errors import (
    ConfigurationError,
    ConflictingOptionsError,
    DynamicKafkaError,
    InvalidOptionError,
)
from dynamic_kafka.initializer import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
    PartitionTimestamps,
    initializer_from_json,
)
from dynamic_kafka.metadata.services import InMemoryMetadataService
from dynamic_kafka.metadata.subscriber import StreamPatternSubscriber, StreamSetSubscriber
from dynamic_kafka.options import ParsedOptions, markdown_table
from dynamic_kafka.options import parse_options as parse_any_options
from dynamic_kafka.source.configure import SOURCE_OPTIONS, SourceObjects, configure_source
from dynamic_kafka.source.document.document import OffsetRange
from dynamic_kafka.source.document.offsets import Packing
from dynamic_kafka.source.settings import SourceSettings

BROKER = {"kafka.bootstrap.servers": "h:9092"}
BASE = BROKER | {"subscribe": "t"}
EARLIEST = KafkaOffsetsInitializer.earliest()
LATEST = KafkaOffsetsInitializer.latest()

# A right value for each option, as text, and what it is read as.
RIGHT: dict[str, tuple[str, Any]] = {
    "topic": ("a; b", ("a", "b")),
    "topic-pattern": ("a.*", re.compile("a.*")),
    "topic-partitions": ('{"a": [0]}', frozenset({("a", 0)})),
    "stream-ids": ("s;r", ("s", "r")),
    "stream-pattern": ("s", re.compile("s")),
    "metadata-service": ("file", "file"),
    "scan.startup.mode": ("GROUP_OFFSETS", "group-offsets"),
    "scan.startup.timestamp-millis": ("5", 5),
    "scan.startup.specific-offsets": ("partition:0,offset:42", {0: 42}),
    "startingOffsets": (" latest ", "latest"),
    "startingTimestamp": ("0", 0),
    "startingOffsetsByTimestamp": ('{"a": {"0": 5}}', '{"a": {"0": 5}}'),
    "startingOffsetsByTimestampStrategy": ("Latest", "latest"),
    "scan.bounded.mode": ("unbounded", "unbounded"),
    "scan.bounded.timestamp-millis": ("5", 5),
    "scan.bounded.specific-offsets": ("partition:0,offset:42", {0: 42}),
    "endingOffsets": ("latest", "latest"),
    "endingTimestamp": ("5", 5),
    "endingOffsetsByTimestamp": ('{"a": {"0": 5}}', '{"a": {"0": 5}}'),
    "stream-metadata-discovery-interval-ms": ("-1", -1),
    "stream-metadata-discovery-failure-threshold": ("0", 0),
    "stream-metadata-removed-cluster-retention-ms": ("2 days", 172_800_000),
    "partition.discovery.interval.ms": ("5 min", 300_000),
    "cluster-failure-mode": ("ISOLATE", "isolate"),
    "drain-on-removal": ("TRUE", True),
    "drain-quiet-ms": ("10s", 10_000),
    "scan.watermark.alignment.group": ("g", "g"),
    "scan.watermark.alignment.max-drift": ("10 min", 600_000),
    "scan.watermark.alignment.update-interval": ("500 ms", 500),
    "scan.watermark.idle-timeout": ("1 min", 60_000),
    "failOnDataLoss": ("false", False),
    "skip-offsets": ("c/t/0:50-100", (OffsetRange("c", "t", 0, 50, 100),)),
    "maxOffsetsPerTrigger": ("10", 10),
    "maxOffsetsPerTriggerPerCluster": ("10", ({}, 10)),
    "minOffsetsPerTrigger": ("10", 10),
    "maxTriggerDelay": ("15m", 900_000),
    "scan.parallelism": ("4", 4),
    "minPartitions": ("4", 4),
    "maxRecordsPerPartition": ("4", 4),
    "includeHeaders": ("true", True),
    "includeLeaderEpoch": ("true", True),
    "kafkaConsumer.pollTimeoutMs": ("512", 512),
    "fetchOffset.numRetries": ("0", 0),
    "fetchOffset.retryIntervalMs": ("10", 10),
    "groupIdPrefix": ("spark", "spark"),
    "client.id.prefix": ("me", "me"),
    "commit.offsets.on.checkpoint": ("false", False),
    "register.consumer.metrics": ("true", True),
    "metrics.port": ("9090", 9090),
    "metrics.host": ("0.0.0.0", "0.0.0.0"),
    "metrics.otlp-endpoint": ("http://localhost:4318/v1/metrics", "http://localhost:4318/v1/metrics"),
    "metrics.query": ("nightly", "nightly"),
    "metrics.max-partitions": ("50", 50),
    "import-kafka-checkpoint": ("true", True),
    "history.path": ("/h", "/h"),
    "history.format": ("Delta", "delta"),
    "history.version": ("7", 7),
    "history.switch": ("checkpoint", "checkpoint"),
    "history.switch.checkpoint": ("/c", "/c"),
    "history.switch.timestamp-millis": ("5", 5),
    "history.time-column": ("ts", "ts"),
}

# Values that are wrong for each option that does not take any text.
WRONG: dict[str, tuple[str, ...]] = (
    {
        "topic": ("", " ", "a,,b", "a;"),
        "topic-pattern": ("", "(", "*"),
        "topic-partitions": ("",),
        "stream-ids": ("", "s;;r"),
        "stream-pattern": ("", "["),
        "metadata-service": ("",),
        "scan.startup.mode": ("", "earliest"),
        "startingOffsets": ("",),
        "startingOffsetsByTimestampStrategy": ("earliest", ""),
        "scan.bounded.mode": ("earliest-offset",),
        "cluster-failure-mode": ("ignore",),
        "stream-metadata-discovery-failure-threshold": ("-1", "many"),
        "fetchOffset.numRetries": ("-1", "1.5"),
        "scan.startup.timestamp-millis": ("-1", "today"),
        "startingTimestamp": ("-1", "", "1e3", str(2**63)),
        "endingTimestamp": ("-1", "9" * 30),
        "drain-quiet-ms": ("soon", "5 weeks", "1.5s", ""),
        "maxTriggerDelay": ("15 minuets",),
        "kafkaConsumer.pollTimeoutMs": ("2 min 3 s", "0"),
    }
    | {option.key: ("", "yes", "1", "None") for option in SOURCE_OPTIONS if option.expected == "true or false"}
    | {
        option.key: ("0", "-1", "1.5", "", "many", "1k")
        for option in SOURCE_OPTIONS
        if option.expected == "a whole number above 0"
    }
)


def parse_options(options: dict[str, str]) -> ParsedOptions:
    """A source's options."""
    return parse_any_options(options, SOURCE_OPTIONS)


def configured(default_starting: KafkaOffsetsInitializer = LATEST, /, **more: str) -> SourceSettings:
    """The settings of one topic with these options besides; `__` stands for a dot and `_` for a dash."""
    return configure_source(BASE | named(more)).with_default_start(default_starting)


def named(options: dict[str, str]) -> dict[str, str]:
    """Option names from Python's keyword arguments."""
    return {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}


def fault(options: dict[str, str]) -> str:
    """The message of the configuration error that the options raise."""
    with pytest.raises(ConfigurationError) as caught:
        configure_source(options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- the table ----------------------------------------------------------------------------------------------------


def test_the_table_of_options_holds_the_prefixes() -> None:
    """What cannot be listed."""
    assert all(
        f"`{prefix}*`" in markdown_table(SOURCE_OPTIONS) for prefix in ("properties.", "kafka.", "metadata-service.")
    )


def test_options_that_spark_adds_are_no_options() -> None:
    """They are left alone."""
    assert parse_options({"path": "x", "__datasource_name__": "dynamic-kafka"}).values == {}


def test_two_spellings_of_one_option_must_agree() -> None:
    """The same value twice is no conflict."""
    assert parse_options({"topic": "a", "subscribe": "a"}).values == {"topic": ("a",)}
    with pytest.raises(ConflictingOptionsError, match=r"'topic' and 'subscribe' are in conflict.*two values"):
        parse_options({"topic": "a", "subscribe": "b"})


@pytest.mark.parametrize(
    ("text", "ms"),
    [("5", 5), ("5ms", 5), ("5 s", 5000), ("2 minutes", 120_000), ("1h", 3_600_000), ("7 D", 604_800_000), ("-1", -1)],
)
def test_durations_have_units(text: str, ms: int) -> None:
    """As in Flink and Spark; a bare number is milliseconds."""
    parsed = parse_options({"partition.discovery.interval.ms": text})
    assert parsed.values["partition.discovery.interval.ms"] == ms


# --- client properties --------------------------------------------------------------------------------------------


def test_properties_come_from_both_prefixes() -> None:
    """Spark's `kafka.` and Flink's `properties.` are the same."""
    parsed = parse_options(
        {"kafka.Bootstrap.Servers": "h:1", "properties.fetch.min.bytes": "5", "KAFKA.client.id": "x"}
    )
    assert parsed.properties == {"bootstrap.servers": "h:1", "fetch.min.bytes": "5", "client.id": "x"}


def test_properties_with_two_values_are_a_conflict() -> None:
    """The same value twice is none."""
    same = {"kafka.client.id": "x", "properties.client.id": "x"}
    assert parse_options(same).properties == {"client.id": "x"}
    with pytest.raises(ConflictingOptionsError, match=r"'kafka.client.id' and 'properties.client.id'"):
        parse_options(same | {"properties.client.id": "y"})


def test_an_unknown_property_is_an_error_on_the_driver() -> None:
    """Not in a task, hours later."""
    assert "'fetch.min.byte'; did you mean 'fetch.min.bytes'" in fault(BASE | {"kafka.fetch.min.byte": "5"})


def test_bootstrap_servers_are_required() -> None:
    """Without a metadata service nobody else knows them."""
    assert "'kafka.bootstrap.servers') is missing; name at least one broker" in fault({"subscribe": "t"})
    assert "is missing" in fault({"subscribe": "t", "kafka.bootstrap.servers": " "})


@pytest.mark.parametrize("prefix", ["kafka.", "properties."])
@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("auto.offset.reset", "latest", "'startingOffsets'"),
        (
            "key.deserializer",
            "org.apache.kafka.common.serialization.StringDeserializer",
            "keys are deserialized as byte",
        ),
        (
            "value.deserializer",
            "StringDeserializer",
            "values are deserialized as byte arrays with ByteArrayDeserializer",
        ),
        ("value.deserializer", "my.Own", "values are deserialized as byte arrays"),
        ("enable.auto.commit", "true", "the offsets in the checkpoint"),
        ("interceptor.classes", "com.example.Audit", "Java code"),
    ],
)
def test_properties_of_the_connector_are_rejected(prefix: str, key: str, value: str, says: str) -> None:
    """As in Spark; the error says what to use."""
    message = fault(BASE | {prefix + key: value})
    assert f"'properties.{key}'" in message
    assert says in message


def test_properties_that_say_what_happens_anyway_are_accepted() -> None:
    """Copied from a Java configuration."""
    properties = {
        "key.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
        "value.deserializer": "ByteArrayDeserializer",
        "enable.auto.commit": "False",
        "interceptor.classes": "",
    }
    configure_source(BASE | {f"kafka.{key}": value for key, value in properties.items()})


def test_no_secret_is_in_an_error_or_a_repr() -> None:
    """Whatever is wrong, and wherever it stands."""
    secret = {
        "kafka.sasl.password": "hunter2",
        "kafka.ssl.key.password": "hunter2",
        "kafka.security.protocol": "SASL_SSL",
    }
    assert "hunter2" not in repr(configure_source(BASE | secret))
    assert "hunter2" not in fault(BASE | secret | {"kafka.sasl.pasword": "x"})
    assert "hunter2" not in fault(BASE | secret | {"properties.sasl.password": "hunter3"})


# --- what to read -------------------------------------------------------------------------------------------------


def topics_of(settings: SourceSettings) -> frozenset[str]:
    """The topics that the made-up stream of one cluster names."""
    service = settings.service()
    assert isinstance(service, InMemoryMetadataService)
    (stream,) = service.get_all_streams()
    (cluster,) = stream.clusters.values()
    return cluster.topics


def test_the_time_out_of_requests_is_a_number() -> None:
    """The error names the property."""
    with pytest.raises(
        InvalidOptionError, match=r"'default\.api\.timeout\.ms' has the value 'abc'; expected a whole number"
    ):
        configure_source(BASE | {"properties.default.api.timeout.ms": "abc"})


def test_subscribe_names_topics() -> None:
    """Separated by commas as in Spark, or semicolons as in Flink."""
    settings = configure_source(BROKER | {"subscribe": "a, b"})
    assert topics_of(settings) == {"a", "b"}
    assert (settings.pattern, settings.partitions) == (None, None)


def test_subscribe_pattern_matches_whole_names() -> None:
    """It is kept as a pattern; the cluster's topics are matched where they are known."""
    settings = configure_source(BROKER | {"subscribePattern": "a.*"})
    assert settings.pattern == re.compile("a.*")
    assert topics_of(settings) == frozenset()


def test_assign_names_partitions() -> None:
    """Spark's JSON."""
    settings = configure_source(BROKER | {"assign": '{"a": [0, 2], "b": [1]}'})
    assert settings.partitions == frozenset({("a", 0), ("a", 2), ("b", 1)})
    assert topics_of(settings) == {"a", "b"}


def test_exactly_one_way_to_say_what_to_read() -> None:
    """None or two of them are errors that name the options."""
    assert "What to read is missing" in fault(BROKER)
    ways = {
        "subscribe": "t",
        "subscribePattern": "t",
        "assign": '{"t": [0]}',
        "stream-ids": "s",
        "stream-pattern": "s",
    }
    names = list(ways)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            message = fault(BROKER | {one: ways[one], other: ways[other]})
            assert f"'{one}' and '{other}' are in conflict" in message


def test_streams_need_a_metadata_service() -> None:
    """And topics must not have one."""
    assert "'metadata-service' is missing" in fault(BROKER | {"stream-ids": "s"})
    message = fault(BASE | {"metadata-service": "file", "metadata-service.path": "x"})
    assert "'subscribe' and 'metadata-service' are in conflict" in message
    assert "there is no metadata service" in fault(BASE | {"metadata-service.path": "x"})


def test_streams_by_id_or_pattern() -> None:
    """Flink's two subscribers."""
    service = SourceObjects(metadata_service=InMemoryMetadataService([]))
    by_id = configure_source({"stream-ids": "s;r"}, service)
    assert isinstance(by_id.subscriber, StreamSetSubscriber)
    by_pattern = configure_source({"stream-pattern": "s"}, service)
    assert isinstance(by_pattern.subscriber, StreamPatternSubscriber)


def test_a_cluster_may_have_a_name() -> None:
    """It is in the column `cluster` and in the checkpoint."""
    settings = configure_source(BASE | {"metadata-service.cluster-id": "east"})
    (stream,) = settings.service().get_all_streams()
    assert list(stream.clusters) == ["east"]


# --- where to start -----------------------------------------------------------------------------------------------


def test_the_front_says_where_to_start_by_default() -> None:
    """Streams at the latest, batches at the earliest."""
    assert configured(LATEST).starting == LATEST
    assert configured(EARLIEST).starting == EARLIEST


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("earliest", "earliest"),
        ("LATEST", "latest"),
        ('{"t": {"0": 23, "1": -2, "2": -1}}', {"t": {"0": 23, "1": "earliest", "2": "latest"}}),
        ('{"t": "earliest", "u": {"0": 5}}', {"t": "earliest", "u": {"0": 5}}),
        (' {"t": {"0": 0}}', {"t": {"0": 0}}),
    ],
)
def test_starting_offsets_as_words_and_json(text: str, value: Any) -> None:
    """Spark's; partitions not named start at the earliest offset."""
    settings = configured(startingOffsets=text)
    assert settings.starting == initializer_from_json(value)


def test_starting_timestamp_is_strict_unless_told_otherwise() -> None:
    """`startingOffsetsByTimestampStrategy` is `error` by default."""
    assert configured(startingTimestamp="5").starting == PartitionTimestamps({}, default_ms=5, strict=True)
    settings = configured(startingTimestamp="5", startingOffsetsByTimestampStrategy="latest")
    assert settings.starting == KafkaOffsetsInitializer.timestamp(5)


def test_starting_offsets_by_timestamp() -> None:
    """A time for each partition."""
    text = '{"t": {"0": 5, "1": 7}}'
    times = {KafkaTopicPartition("t", 0): 5, KafkaTopicPartition("t", 1): 7}
    assert configured(startingOffsetsByTimestamp=text).starting == PartitionTimestamps(times, strict=True)
    lenient = configured(startingOffsetsByTimestamp=text, startingOffsetsByTimestampStrategy="latest")
    assert lenient.starting == PartitionTimestamps(times)


def test_sparks_precedence_of_starts() -> None:
    """One time, then times, then offsets."""
    offsets = {"startingOffsets": "earliest"}
    times = offsets | {"startingOffsetsByTimestamp": '{"t": {"0": 5}}'}
    assert isinstance(configured(**times).starting, PartitionTimestamps)
    assert configured(**times, startingTimestamp="9").starting == PartitionTimestamps({}, default_ms=9, strict=True)


def test_ending_twins() -> None:
    """The same for the end, where the strategy is always `latest`."""
    assert configured().stopping is None
    assert configured(endingOffsets="latest").stopping == LATEST
    assert configured(endingOffsets='{"t": {"0": 5}}').stopping == initializer_from_json({"t": {"0": 5}})
    assert configured(endingTimestamp="5").stopping == KafkaOffsetsInitializer.timestamp(5)
    times = PartitionTimestamps({KafkaTopicPartition("t", 0): 5})
    assert configured(endingOffsetsByTimestamp='{"t": {"0": 5}}').stopping == times


# --- Flink's modes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "more", "starting"),
    [
        ("earliest-offset", {}, EARLIEST),
        ("latest-offset", {}, LATEST),
        ("timestamp", {"scan.startup.timestamp-millis": "5"}, KafkaOffsetsInitializer.timestamp(5)),
        (
            "specific-offsets",
            {"scan.startup.specific-offsets": "partition:0,offset:42;partition:1,offset:300;"},
            KafkaOffsetsInitializer.offsets({("t", 0): 42, ("t", 1): 300}),
        ),
        ("group-offsets", {"kafka.group.id": "g"}, KafkaOffsetsInitializer.committed_offsets()),
        (
            "group-offsets",
            {"kafka.group.id": "g", "kafka.auto.offset.reset": "earliest"},
            KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST),
        ),
    ],
)
def test_startup_modes(mode: str, more: dict[str, str], starting: KafkaOffsetsInitializer) -> None:
    """Flink SQL's; `auto.offset.reset` is the reset of `group-offsets`."""
    settings = configure_source(BASE | more | {"scan.startup.mode": mode})
    assert settings.starting == starting


def test_group_offsets_take_no_other_reset() -> None:
    """earliest, latest or none."""
    options = {"scan.startup.mode": "group-offsets", "kafka.group.id": "g", "kafka.auto.offset.reset": "nearest"}
    assert "'nearest'; expected earliest, latest or none" in fault(BASE | options)


@pytest.mark.parametrize(
    ("mode", "more", "stopping"),
    [
        ("unbounded", {}, None),
        ("latest-offset", {}, LATEST),
        ("group-offsets", {"kafka.group.id": "g"}, KafkaOffsetsInitializer.committed_offsets()),
        ("timestamp", {"scan.bounded.timestamp-millis": "5"}, KafkaOffsetsInitializer.timestamp(5)),
        (
            "specific-offsets",
            {"scan.bounded.specific-offsets": "partition:0,offset:42"},
            KafkaOffsetsInitializer.offsets({("t", 0): 42}),
        ),
    ],
)
def test_bounded_modes(mode: str, more: dict[str, str], stopping: KafkaOffsetsInitializer | None) -> None:
    """Flink SQL's."""
    assert configure_source(BASE | more | {"scan.bounded.mode": mode}).stopping == stopping


@pytest.mark.parametrize("prefix", ["scan.startup", "scan.bounded"])
@pytest.mark.parametrize(
    ("mode", "key", "value"),
    [("timestamp", "timestamp-millis", "5"), ("specific-offsets", "specific-offsets", "partition:0,offset:1")],
)
def test_modes_and_their_companions_belong_together(prefix: str, mode: str, key: str, value: str) -> None:
    """One without the other is an error that names both."""
    message = fault(BASE | {f"{prefix}.mode": mode})
    assert f"'{prefix}.{key}' is missing" in message
    assert f"'{prefix}.mode' = '{mode}' needs it" in message
    for options in ({}, {f"{prefix}.mode": "latest-offset"}):
        assert f"it belongs to the mode '{mode}'" in fault(BASE | options | {f"{prefix}.{key}": value})


def test_specific_offsets_need_one_topic() -> None:
    """They name none."""
    options = {"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "partition:0,offset:1"}
    assert "exactly one 'topic'" in fault(BROKER | options | {"topic": "t;u"})


@pytest.mark.parametrize(
    ("flink", "spark"),
    [
        ({"scan.startup.mode": "latest-offset"}, {"startingOffsets": "latest"}),
        ({"scan.startup.mode": "latest-offset"}, {"startingTimestamp": "5"}),
        ({"scan.bounded.mode": "latest-offset"}, {"endingOffsets": "latest"}),
        ({"scan.bounded.mode": "unbounded"}, {"endingOffsetsByTimestamp": '{"t": {"0": 5}}'}),
    ],
)
def test_flinks_and_sparks_way_exclude_each_other(flink: dict[str, str], spark: dict[str, str]) -> None:
    """Both say where to start, or stop."""
    message = fault(BASE | flink | spark)
    assert f"'{next(iter(flink))}' and '{next(iter(spark))}' are in conflict" in message


# --- groups -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "committed"},
        {"startingOffsets": '{"t": {"0": "committed"}}'},
        {"scan.startup.mode": "group-offsets"},
        {"endingOffsets": "committed"},
        {"scan.bounded.mode": "group-offsets"},
        {"commit.offsets.on.checkpoint": "true"},
    ],
)
def test_committed_offsets_need_a_group(options: dict[str, str]) -> None:
    """Rejected when the query is made, naming `group.id`."""
    assert "'properties.group.id' is missing" in fault(BASE | options)
    configure_source(BASE | options | {"kafka.group.id": "g"})


@pytest.mark.parametrize(
    ("options", "commits"),
    [
        ({"properties.group.id": "g"}, True),
        ({"Properties.Group.Id": "g"}, True),
        ({"kafka.group.id": "g"}, False),
        ({"kafka.group.id": "g", "properties.group.id": "g"}, True),
        ({"kafka.group.id": "g", "commit.offsets.on.checkpoint": "true"}, True),
        ({"properties.group.id": "g", "commit.offsets.on.checkpoint": "false"}, False),
    ],
)
def test_the_groups_option_says_whose_rules_count(options: dict[str, str], *, commits: bool) -> None:
    """Flink commits to the group of a query. Spark never does: the group may be another application's."""
    settings = configure_source(BASE | options)
    assert (settings.group_id, settings.commit_offsets) == ("g", commits)


def test_the_group_named_to_brokers() -> None:
    """The user's, else one made of the prefix."""
    assert configured(kafka__group__id="g").consumer_group == "g"
    assert configured(groupIdPrefix="spark").consumer_group == "spark"
    assert configured().consumer_group == "dynamic-kafka-source"


# --- limits and tasks ---------------------------------------------------------------------------------------------


def test_options_that_are_settings_as_they_are() -> None:
    """Each of them under Spark's name."""
    settings = configured(
        kafkaConsumer__pollTimeoutMs="512",
        fetchOffset__numRetries="7",
        fetchOffset__retryIntervalMs="20",
        minOffsetsPerTrigger="10",
        maxOffsetsPerTrigger="100",
        maxTriggerDelay="5m",
        failOnDataLoss="false",
        includeHeaders="true",
        includeLeaderEpoch="true",
    )
    assert settings.poll_timeout_ms == 512
    assert (settings.call_retries, settings.call_retry_interval_ms) == (7, 20)
    assert (settings.min_offsets_per_trigger, settings.max_offsets_per_trigger) == (10, 100)
    assert settings.max_trigger_delay_ms == 300_000
    assert (settings.fail_on_data_loss, settings.include_headers, settings.include_leader_epoch) == (False, True, True)


def test_the_least_is_not_more_than_the_most() -> None:
    """An error in Spark, too."""
    message = fault(BASE | {"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"})
    assert "'minOffsetsPerTrigger' and 'maxOffsetsPerTrigger' are in conflict: the minimum, 11, is more" in message


@pytest.mark.parametrize(
    ("text", "limits"), [("10", ({}, 10)), ('{"a": 5, "b": 7}', ({"a": 5, "b": 7}, None)), ("{}", ({}, None))]
)
def test_limits_of_clusters(text: str, limits: tuple[dict[str, int], int | None]) -> None:
    """One for all, or each its own."""
    settings = configured(maxOffsetsPerTriggerPerCluster=text)
    assert (settings.cluster_limits, settings.max_offsets_per_cluster) == limits


def test_packing() -> None:
    """Spark's two options and Flink's parallelism."""
    assert configured().packing == Packing()
    assert configured(minPartitions="4").packing == Packing(min_tasks=4, cuts=True)
    assert configured(maxRecordsPerPartition="1000").packing == Packing(1000, 1, 0, cuts=True)
    assert configured(scan__parallelism="8").packing == Packing(1000, 1, 8)
    assert configured(scan__parallelism="8", maxRecordsPerPartition="7", minPartitions="2").packing == Packing(
        7, 2, 8, cuts=True
    )
    assert "4 tasks are more than 2" in fault(BASE | {"minPartitions": "4", "scan.parallelism": "2"})


def test_retention_is_not_negative() -> None:
    """0 keeps nothing, as in Flink."""
    key = "stream-metadata-removed-cluster-retention-ms"
    assert configure_source(BASE | {key: "0"}).retention_ms == 0
    assert f"Option '{key}' has the value" in fault(BASE | {key: "-1"})


# --- all of it ----------------------------------------------------------------------------------------------------


def test_settings_are_picklable() -> None:
    """They go to Spark's processes, and read nothing on the way."""
    settings = configured(startingOffsets=json.dumps({"t": {"0": 5}}), subscribe="t", endingOffsets="latest")
    again = pickle.loads(pickle.dumps(settings))
    assert (again.starting, again.stopping, again.packing) == (settings.starting, settings.stopping, settings.packing)
    assert topics_of(again) == {"t"}


OFFSETS = ("newest", "{", '{"t": 5}', '{"t": {"0": -4}}', '{"t": {"x": 5}}', "[]", "{}")
TIMES = ("5", "{", '{"t": 5}', '{"t": {"x": 5}}', '{"t": {"0": -5}}', '{"t": {"0": "5"}}')
LIMITS = ("0", "-1", "many", "[5]", '{"a": 0}', '{"a": "5"}', '{"a": true}', "true", "1.5", "null")
SPECIFIC = ("0:42", "partition:0", "partition:0,offset:-1", "partition:x,offset:1", "partition:0,offset:1,")
ASSIGNED = ("a", "[]", '{"a": 0}', '{"a": [-1]}', '{"a": ["0"]}', '{"a": [true]}', '{"a": "01"}', "{")


@pytest.mark.parametrize(
    ("option", "texts", "right"),
    [
        ("assign", ASSIGNED, 'JSON such as {"topic": [0, 1]}'),
        ("startingOffsets", OFFSETS, "earliest, latest, committed, or JSON"),
        ("endingOffsets", OFFSETS, "earliest, latest, committed, or JSON"),
        ("startingOffsetsByTimestamp", TIMES, "JSON such as"),
        ("endingOffsetsByTimestamp", TIMES, "JSON such as"),
        ("scan.startup.specific-offsets", SPECIFIC, "'partition:0,off"),
        ("maxOffsetsPerTriggerPerCluster", LIMITS, "a whole number"),
    ],
)
def test_a_text_that_is_wrong_within_says_so(option: str, texts: tuple[str, ...], right: str) -> None:
    """Option, value, what is right, and the fault inside the JSON."""
    more = {"scan.startup.mode": "specific-offsets"} if option == "scan.startup.specific-offsets" else {}
    for text in texts:
        message = fault((BROKER if option == "assign" else BASE) | more | {option: text})
        assert message.startswith(f"Option '{option}' has the value {text!r}; expected {right}")


def test_every_error_is_ours() -> None:
    """Whatever one option is given, nothing but our own errors comes out."""
    values = [
        "",
        " ",
        "0",
        "-1",
        "1e9",
        "true",
        "x",
        "{",
        "{}",
        "[]",
        "[0]",
        '{"t": null}',
        '{"t": {"0": null}}',
        "partition:0",
    ]
    for option in SOURCE_OPTIONS:
        for value in values:
            base = BASE if option.key not in ("topic", "topic-pattern", "topic-partitions") else BROKER
            with contextlib.suppress(DynamicKafkaError):
                configure_source(base | {option.key: value})


@pytest.mark.parametrize(
    "address",
    [
        *(
            f"https://{login}collector:4318/v1/metrics"
            for login in ("me:geheim@", "geheim@", "me:ge@heim@", "me:ge/geheim@")
        ),
        *("me:geheim@collector:4318", "HTTPS://me:geheim@collector/", "https://collector/v1?token=geheim"),
    ],
)
def test_the_address_of_a_collector_has_no_login(address: str) -> None:
    """The server gets the address as an argument, which every user of the machine can see. The error does not show it."""
    options = BASE | {"metrics.otlp-endpoint": address}
    with pytest.raises(ConfigurationError, match="OTEL_EXPORTER_OTLP_HEADERS") as caught:
        configure_source(options)
    assert "geheim" not in str(caught.value)
    assert configure_source(BASE | {"metrics.otlp-endpoint": "http://h:1/%40x"}).metrics is not None
