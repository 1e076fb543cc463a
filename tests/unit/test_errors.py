"""The error tree: complete, picklable, and with first lines that stand alone."""

from __future__ import annotations

import inspect
import pickle

import pytest

from dynamic_kafka import errors
from dynamic_kafka.errors import (
    ArchiveError,
    CheckpointError,
    ClusterUnavailableError,
    ConfigurationError,
    ConflictingOptionsError,
    DataLossError,
    DeliveryError,
    DynamicKafkaError,
    HistoryError,
    InvalidOptionError,
    LostTransactionsError,
    MetadataServiceError,
    MissingDependencyError,
    OffsetResolutionError,
    ProducerFencedError,
    RecordError,
    RegistryError,
    RowError,
    SchemaEvolutionError,
    SqlError,
    TransactionError,
    UnknownOptionError,
    listed,
    nearest,
    suggestion,
)

ONE_OF_EACH = [
    DynamicKafkaError("something", cluster_id="c"),
    ConfigurationError("something"),
    UnknownOptionError("subscrib", ["subscribe", "assign"]),
    InvalidOptionError("minPartitions", "0", "a whole number above 0"),
    ConflictingOptionsError(["topic", "assign"], "give one of them"),
    MissingDependencyError("httpx2", "http", "to ask a metadata service over HTTP"),
    MetadataServiceError("something"),
    ClusterUnavailableError("something", cluster_id="c"),
    OffsetResolutionError("something", cluster_id="c"),
    DataLossError("gone", cluster_id="c", topic="t", partition=1, start=2, end=3),
    RecordError("bad", cluster_id="c", topic="t", partition=1, offset=2),
    SchemaEvolutionError("new", subject="t-value", schema_id="7", fields=("a",), place=("c", "t", 1, 2)),
    HistoryError("s3://b/f.parquet", "was deleted"),
    RowError("topic", "is null"),
    DeliveryError(
        "too large", cluster_id="c", topic="t", partition=1, key_bytes=3, code="MSG_SIZE_TOO_LARGE", retriable=False
    ),
    TransactionError("something", cluster_id="c"),
    ProducerFencedError("something"),
    LostTransactionsError(7, {"p.dk-0-1": "east, aborted"}, 2),
    ArchiveError("something"),
    CheckpointError("something"),
    SqlError("Expected a type, found ','", line=2, column=5, excerpt="  a, b\n   ^"),
    RegistryError("something", retriable=False, not_found=True),
]


def test_all_is_complete() -> None:
    """`__all__` names every error of the module, and `ONE_OF_EACH` has one of each."""
    defined = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)}
    assert set(errors.__all__) == defined == {type(error).__name__ for error in ONE_OF_EACH}


def test_the_tree_in_the_docstring_is_the_real_one() -> None:
    """Every error is drawn, below its parent."""
    drawn: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        name = line.lstrip(" │├└─")
        if name.split(" ")[0].endswith("Error"):
            drawn.append((len(line) - len(name), name.split(" ")[0]))
    parents = {}
    for i, (depth, name) in enumerate(drawn):
        parents[name] = next((above for level, above in reversed(drawn[:i]) if level < depth), "Exception")
    assert parents == {name: getattr(errors, name).__bases__[0].__name__ for name in errors.__all__}


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_errors_survive_pickling(error: DynamicKafkaError, protocol: int) -> None:
    """They cross from Spark's workers to the driver with their attributes."""
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert again.cluster_id == error.cluster_id
    assert again.retriable == error.retriable


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda error: type(error).__name__)
def test_errors_are_one_line(error: DynamicKafkaError) -> None:
    """Spark often shows only the first line. Only an error in SQL shows the line at fault below its own."""
    assert str(error)
    assert "\n" not in str(error).removesuffix(f"\n{getattr(error, 'excerpt', '')}")


def test_only_what_may_pass_by_itself_is_retriable() -> None:
    """A service or a cluster that does not answer."""
    assert {type(error) for error in ONE_OF_EACH if error.retriable} == {MetadataServiceError, ClusterUnavailableError}


def test_errors_are_also_what_python_code_expects() -> None:
    """A wrong option is a ValueError, a missing library an ImportError."""
    assert issubclass(ConfigurationError, ValueError)
    assert issubclass(MissingDependencyError, ImportError)


def test_unknown_options_suggest_the_nearest_name() -> None:
    """In its own spelling, without regard to case; none if nothing is near."""
    error = UnknownOptionError("SUBSCRIBEPATERN", ["subscribe", "subscribePattern"])
    assert error.suggestion == "subscribePattern"
    assert str(error) == "Unknown option 'SUBSCRIBEPATERN'; did you mean 'subscribePattern'?"
    far = UnknownOptionError("colour", ["subscribe"])
    assert far.suggestion is None
    assert "see docs/reference/options.md and docs/reference/sql.md" in str(far)


def test_a_suggestion_is_the_end_of_a_message() -> None:
    """It is empty if no known name is similar, so that a caller can say something else; case does not matter."""
    assert suggestion("Jsn", ["csv", "JSON"]) == "; did you mean 'JSON'?"
    assert suggestion("avro", ["csv", "json"]) == ""
    assert nearest("pipeline.nam", ["pipeline.name"]) == "pipeline.name"
    assert nearest("pipeline.nam", ["pipeline.name"], cutoff=0.99) is None


@pytest.mark.parametrize(
    ("items", "text"), [("", ""), ("ab", "a, b"), ("abc", "a, b, c"), ("abcdefg", "a, b, c and 4 more")]
)
def test_long_lists_are_cut(items: str, text: str) -> None:
    """Only as many items as asked for are shown, and the rest is counted."""
    assert listed(items, 3) == text


def test_messages_name_the_place() -> None:
    """Cluster, topic, partition and offsets; and what to do."""
    assert str(ONE_OF_EACH[9]) == (
        "Cluster 'c', topic 't', partition 1, offsets [2, 3): gone. "
        "Set failOnDataLoss=false for one start to continue without the lost records"
    )
    assert str(ONE_OF_EACH[10]) == "Cluster 'c', topic 't', partition 1, offset 2: bad"
    assert str(ONE_OF_EACH[3]) == "Option 'minPartitions' has the value '0'; expected a whole number above 0"
    assert str(ONE_OF_EACH[4]) == "Options 'topic' and 'assign' are in conflict: give one of them"
