"""ACLs on a real broker: which rights are enough for what a query does, and what is said if one of them is missing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from dynamic_kafka.errors import DynamicKafkaError
from dynamic_kafka.testing import KafkaBroker, wait_until
from tests.brokers import SECURED_USERS, grant, revoke_all
from tests.engine import Query
from tests.security.document import check_row, clear, normal
from tests.security.tries import read_values, sink, with_prefix, write_value

pytestmark = pytest.mark.broker

Topic = Callable[..., str]
USER = "clerk"
GROUP = "clerks"


class Right(NamedTuple):
    """An operation on a resource; names that begin with `prefix` stand for all names that begin so."""

    kind: ResourceType
    operation: AclOperation
    name: str

    def __str__(self) -> str:
        return f"{self.operation.name} on {self.kind.name.lower().replace('_', ' ')} ({self.name})"


TOPIC, LOG, IDS = "the topic", "the commit log", "the prefix"
READ = (Right(ResourceType.TOPIC, AclOperation.READ, TOPIC),)
COMMITS = (*READ, Right(ResourceType.GROUP, AclOperation.READ, "the group"))
WRITE = (Right(ResourceType.TOPIC, AclOperation.WRITE, TOPIC),)
LOG_OPERATIONS = (AclOperation.CREATE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE)
EXACTLY_ONCE = (
    *WRITE,
    Right(ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE, IDS),
    *(Right(ResourceType.TOPIC, operation, LOG) for operation in (*LOG_OPERATIONS, AclOperation.DESCRIBE_CONFIGS)),
    Right(ResourceType.BROKER, AclOperation.DESCRIBE_CONFIGS, "the cluster"),
)


class World(NamedTuple):
    """A topic with a record, and a user without rights."""

    broker: KafkaBroker
    topic: str
    prefix: str

    @property
    def properties(self) -> dict[str, str]:
        """How the user connects."""
        return self.broker.client_properties(USER)

    def allow(self, *rights: Right) -> None:
        """Grant rights."""
        names = {TOPIC: self.topic, "the group": GROUP, LOG: f"{self.prefix}-log", IDS: self.prefix}
        for kind, operation, name in rights:
            pattern = ResourcePatternType.PREFIXED if name == IDS else ResourcePatternType.LITERAL
            grant(self.broker, USER, kind, names.get(name, "kafka-cluster"), operation, pattern=pattern)

    def write(self, guarantee: str, user: str = USER) -> None:
        """Write a row."""
        settings = sink(guarantee)
        if guarantee == "exactly-once":
            settings = replace(settings, prefix=self.prefix, log_topic=f"{self.prefix}-log")
        write_value(self.topic, self.broker.client_properties(user), "1", settings)


@pytest.fixture(scope="module", autouse=True)
def _document() -> None:
    clear("rights")


@pytest.fixture
def world(secured: KafkaBroker, topic: Topic) -> Iterator[World]:
    """The user has no rights before and after."""
    revoke_all(secured, USER)
    name = topic(secured)
    write_value(name, secured.client_properties("admin"), "0", sink())
    yield World(secured, name, topic())
    revoke_all(secured, USER)


def told(error: DynamicKafkaError, world: World) -> str:
    """The error, as the document has it."""
    text = str(error).replace(world.topic, "orders").replace(world.prefix, "prefix")
    return normal(text)


# --- what is enough -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_rights_to_read(world: World) -> None:
    """Read on the topic is enough; it implies Describe."""
    world.allow(*READ)
    assert read_values(world.topic, world.properties) == ["0"]


@pytest.mark.slow
def test_rights_to_commit_the_offsets_of_a_group(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """With Read on the topic and on the group, offsets are committed, and another query starts from them."""
    world.allow(*COMMITS)
    given = {"subscribe": world.topic, "properties.group.id": GROUP, **with_prefix(world.properties)}
    with caplog.at_level(logging.WARNING, "dynamic_kafka"):
        first = Query(given)
        first.run_until_rows(1)
        first.run_until(lambda: bool(first.enumerator.report()["commitsSucceeded"]))
        first.close()
        write_value(world.topic, world.broker.client_properties("admin"), "1", sink())
        second = Query(given | {"startingOffsets": "committed"})
        second.run_until_rows(1)
        second.close()
    assert second.values() == ["1"]
    assert not caplog.records


@pytest.mark.slow
def test_rights_to_write(world: World) -> None:
    """Write on the topic is enough, also for an idempotent producer."""
    world.allow(*WRITE)
    world.write("at-least-once")


def test_rights_to_write_exactly_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The rights of the document are enough, and nothing is warned of."""
    world.allow(*EXACTLY_ONCE)
    with caplog.at_level(logging.WARNING, "dynamic_kafka"):
        world.write("exactly-once")
    assert not caplog.records


# --- what is missing ----------------------------------------------------------------------------------------------------


def check(world: World, name: str, attempt: Callable[[], object], expected: str) -> None:
    """The attempt fails within seconds, and the error names the operation, the resource, the user and the command."""
    began = time.monotonic()
    with pytest.raises(DynamicKafkaError, match=f"User:{USER} may not .*{expected}") as caught:
        attempt()
    assert time.monotonic() - began < 15
    assert f"kafka-acls.sh --add --allow-principal 'User:{USER}' --operation" in str(caught.value)
    assert SECURED_USERS[USER] not in str(caught.value)
    check_row("rights", name, told(caught.value, world))


def test_reading_without_describe(world: World) -> None:
    """A batch read fails."""
    check(world, "read: Describe on the topic", lambda: read_values(world.topic, world.properties), "Describe and")


def test_reading_without_read(world: World) -> None:
    """The task that reads says so."""
    world.allow(Right(ResourceType.TOPIC, AclOperation.DESCRIBE, TOPIC))
    check(
        world,
        "read: Read on the topic",
        lambda: read_values(world.topic, world.properties),
        f"Read topic '{world.topic}'",
    )


@pytest.mark.slow
def test_a_stream_without_describe_waits_for_it(world: World) -> None:
    """The query goes on with its other topics, and its events say what is missing; it reads as soon as it may."""
    query = Query({"subscribe": world.topic, "partition.discovery.interval.ms": "200", **with_prefix(world.properties)})
    query.step()
    assert any(f"User:{USER} may not Describe and Read topic '{world.topic}'" in event for event in query.events())
    world.allow(*READ)
    query.run_until_rows(1)
    query.close()


@pytest.mark.slow
def test_a_group_without_describe(world: World) -> None:
    """Its committed offsets cannot be read as a start."""
    world.allow(*READ)
    options = {"subscribe": world.topic, "startingOffsets": "committed", "group.id": GROUP}
    given = {**options, **with_prefix(world.properties), "kafka.default.api.timeout.ms": "5000"}
    given["kafka.group.id"] = given.pop("group.id")

    def step() -> None:
        query = Query(given)
        try:
            query.step()
        finally:
            query.close()

    check(world, "read from committed offsets: Describe on the group", step, f"group '{GROUP}'")


@pytest.mark.slow
def test_a_group_without_read(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Commits fail in a thread of their own, which says so; the query reads on."""
    world.allow(*READ, Right(ResourceType.GROUP, AclOperation.DESCRIBE, "the group"))
    query = Query({"subscribe": world.topic, "properties.group.id": GROUP, **with_prefix(world.properties)})
    query.run_until_rows(1)
    with caplog.at_level(logging.WARNING, "dynamic_kafka"):
        query.step()
        said = wait_until(
            lambda: [r.getMessage() for r in caplog.records if "were not committed" in r.getMessage()], 60, "a warning"
        )[0]
    query.close()
    assert f"User:{USER} may not" in said
    check_row("rights", "commit group offsets: Read on the group", normal(said.replace(world.topic, "orders")))


def test_writing_without_write(world: World) -> None:
    """Neither Describe nor Write; then only Describe, which lacks the right to be idempotent, too."""
    check(world, "write: Describe on the topic", lambda: world.write("at-least-once"), "Describe and Write topic")
    world.allow(Right(ResourceType.TOPIC, AclOperation.DESCRIBE, TOPIC))
    check(
        world,
        "write: Write on any topic",
        lambda: world.write("at-least-once"),
        "Write topic .*IdempotentWrite on the cluster",
    )
    grant(world.broker, USER, ResourceType.TOPIC, f"{world.topic}-another", AclOperation.WRITE)
    check(world, "write: Write on the topic", lambda: world.write("at-least-once"), "Describe and Write topic")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        (AclOperation.CREATE, "Create topic"),
        (AclOperation.READ, "Read"),
        (AclOperation.WRITE, "Write"),
        (AclOperation.DELETE, "Delete topic"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_exactly_once_without_a_right_on_the_log(world: World, missing: AclOperation, expected: str) -> None:
    """Each of them is an error before anything is written."""
    world.allow(*(right for right in EXACTLY_ONCE if (right.name, right.operation) != (LOG, missing)))
    if missing is AclOperation.READ:  # a log that somebody else has begun
        world.write("exactly-once", "admin")
    name = f"exactly-once: {missing.name.capitalize()} on the commit log"
    check(world, name, lambda: world.write("exactly-once"), expected)


@pytest.mark.slow
def test_exactly_once_without_rights_on_transactional_ids(world: World) -> None:
    """Write, and with it Describe; then Write alone."""
    world.allow(*(right for right in EXACTLY_ONCE if right.name != IDS))
    check(
        world,
        "exactly-once: Describe on the transactional ids",
        lambda: world.write("exactly-once"),
        f"transactional id '{world.prefix}'",
    )
    world.allow(Right(ResourceType.TRANSACTIONAL_ID, AclOperation.DESCRIBE, IDS))
    check(
        world,
        "exactly-once: Write on the transactional ids",
        lambda: world.write("exactly-once"),
        f"transactional id '{world.prefix}'",
    )


@pytest.mark.slow
def test_exactly_once_without_write(world: World) -> None:
    """The transaction fails, and the error says on which topic."""
    world.allow(*(right for right in EXACTLY_ONCE if right.name != TOPIC))
    world.allow(Right(ResourceType.TOPIC, AclOperation.DESCRIBE, TOPIC))
    check(
        world, "exactly-once: Write on the topic", lambda: world.write("exactly-once"), f"Write topic '{world.topic}'"
    )


@pytest.mark.slow
def test_exactly_once_without_rights_to_look(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Without DescribeConfigs it works, and a warning says what cannot be checked."""
    world.allow(*(right for right in EXACTLY_ONCE if right.operation is not AclOperation.DESCRIBE_CONFIGS))
    with caplog.at_level(logging.WARNING, "dynamic_kafka"):
        world.write("exactly-once")
    said = " ".join(record.getMessage() for record in caplog.records)
    assert f"User:{USER} may not DescribeConfigs topic '{world.prefix}-log'" in said
