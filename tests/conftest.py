"""What tests of every layer share: hypothesis' profiles, Kafka clusters, started when first asked for, and their topics."""

from __future__ import annotations

import faulthandler
import itertools
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

from dynamic_kafka.testing import KafkaBroker
from tests.brokers import SECURED_USERS
from tests.tools import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401  (hooks)
from tests.versions import SPARK

if TYPE_CHECKING:  # a short test does not wait for them
    from tests.engine import MetadataFile
    from tests.schema_registry import Proxy, SchemaRegistry

_numbers = itertools.count(1)
_END_S = 60
_STDERR = pytest.StashKey[int]()

# Each Spark that a test starts, also by a program in a process of its own, starts quickly.
os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "quick")

# A test may take a multiple of its profile's number: `@settings(max_examples=3 * settings().max_examples)`.
for _profile, _examples in (("dev", 20), ("ci", 150)):
    settings.register_profile(
        _profile,
        max_examples=_examples,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
# Mutants are found by failures. To make these small takes minutes.
settings.register_profile(
    "mutation", settings.get_profile("dev"), phases=(Phase.explicit, Phase.generate), derandomize=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_configure(config: pytest.Config) -> None:
    """Keep the terminal's error output, which is captured while tests run."""
    config.stash[_STDERR] = os.dup(2)
    if SPARK < (4, 2):  # its collect() leaves sockets to the garbage collector
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


def pytest_report_header() -> str:
    """Say which versions a run covers."""
    from dynamic_kafka.cli.checks import machine
    from dynamic_kafka.cli.job import Job
    from dynamic_kafka.testing.jars import KAFKA_VERSION

    checks = (machine.check_python, machine.check_java, machine.check_spark, machine.check_client)
    found = [finding.what for check in checks for finding in check(Job())]
    return f"covers: {'; '.join(found)}; Kafka {KAFKA_VERSION}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test that not even pytest-timeout can end shows where it hangs, and its process ends.

    The signal of pytest-timeout waits for a call of a native library to return.
    """
    marker = item.get_closest_marker("timeout")
    limit_s = float(marker.args[0] if marker else item.config.getini("timeout"))
    faulthandler.dump_traceback_later(limit_s + _END_S, exit=True, file=item.config.stash[_STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_unconfigure() -> None:
    """The process ends soon after its last test; else what holds it up is shown, and it ends as a failure.

    A worker of pytest-xdist waits for the other workers, and the process that started it ends it. With the profile
    "mutation" one process goes from run to run.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ and settings.get_current_profile_name() != "mutation":
        faulthandler.dump_traceback_later(_END_S, exit=True, file=2)


@pytest.fixture(scope="session")
def cluster_a() -> Iterator[KafkaBroker]:
    """A cluster for the whole test run: leave it running and unchanged, apart from own topics and groups."""
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def cluster_b() -> Iterator[KafkaBroker]:
    """Another one like `cluster_a`."""
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def cluster_c() -> Iterator[KafkaBroker]:
    """Another one like `cluster_a`."""
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def secured() -> Iterator[KafkaBroker]:
    """A cluster with logins and ACLs, for the whole test run too: see `brokers.SECURED_USERS` and `brokers.grant`."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin;User:alice",
    }
    with KafkaBroker(sasl_plain=SECURED_USERS, properties=properties) as broker:
        yield broker


@pytest.fixture(scope="session", name="_mortal")
def _shared_mortal() -> Iterator[KafkaBroker]:
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture
def mortal(_mortal: KafkaBroker) -> KafkaBroker:
    """A cluster that a test may restart, kill or pause, and may leave dead, but not paused; with topics of other tests."""
    return _mortal.start()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> Callable[..., str]:
    """A factory of topics: `topic(cluster_a, cluster_b, partitions=2)` is a new name, created on those clusters.

    Without a cluster it is only a name that no other test uses.
    """
    test = "".join(c if c.isascii() and c.isalnum() else "-" for c in request.node.name)[:80]

    def create(*clusters: KafkaBroker, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = f"{test}-{next(_numbers)}"
        for cluster in clusters:
            cluster.create_topic(name, partitions, config)
        return name

    return create


@pytest.fixture
def file(tmp_path: Path) -> MetadataFile:
    """A metadata document that the test writes."""
    from tests.engine import MetadataFile

    return MetadataFile(tmp_path / "streams.yaml")


@pytest.fixture(scope="module")
def registry_server() -> Iterator[SchemaRegistry]:
    """A schema registry for all tests of a module."""
    from tests.schema_registry import SchemaRegistry

    with SchemaRegistry() as running:
        yield running


@pytest.fixture
def proxy(registry_server: SchemaRegistry) -> Iterator[Proxy]:
    """A proxy before the schema registry, of the test's own."""
    from tests.schema_registry import Proxy

    with Proxy(registry_server.url) as running:
        yield running
