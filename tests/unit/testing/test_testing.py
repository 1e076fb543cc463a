"""What the test helpers say when something is missing, and how they wait."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from importlib import resources
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from dynamic_kafka.testing import BrokerError, KafkaBroker, MockCluster, broker, produce, wait_until
from dynamic_kafka.testing.configuration import as_properties
from dynamic_kafka.testing.jars import KAFKA_VERSION, find_java, kafka_classpath


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts a shell script under a name on an otherwise empty PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def put(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return put


@pytest.mark.usefixtures("tool")
def test_missing_java_is_named_with_how_to_get_it() -> None:
    """Without java the error names it and the commands that bring it, for Debian, Ubuntu and macOS."""
    with pytest.raises(BrokerError, match=r"needs java, .*PATH; .*apt-get install openjdk-17.*brew install"):
        KafkaBroker().start()


@pytest.mark.usefixtures("tool")
def test_a_wrong_java_home_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME goes before PATH; if there is no java in it, the error says so."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BrokerError, match=re.escape(f"JAVA_HOME ({tmp_path})")):
        find_java()


@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_392", 8), ("11.0.21", 11), ("17.0.15", None), ("21-ea", None), ("25", None)]
)
def test_java_older_than_17_is_refused(tool: Callable[[str, str], None], version: str, major: int | None) -> None:
    """Java is asked for its version, in the old and the new numbering."""
    tool("java", f"""echo 'openjdk version "{version}" 2025-01-01' >&2""")
    if major is None:
        assert find_java().endswith("/java")
    else:
        with pytest.raises(BrokerError, match=f"Java 17 or newer, but .* is Java {major}; install"):
            find_java()


def test_a_java_that_does_not_run_counts_as_missing(tool: Callable[[str, str], None]) -> None:
    """The stub that macOS has in place of Java is no Java."""
    tool("java", "echo 'Unable to locate a Java Runtime.' >&2; exit 1")
    with pytest.raises(BrokerError, match="does not report its version; install"):
        find_java()


def test_a_program_of_another_machine_counts_as_missing(tool: Callable[[str, str], None], tmp_path: Path) -> None:
    """The system itself refuses to run it."""
    for name in ("java", "mvn"):
        tool(name, "")
        (tmp_path / "bin" / name).write_bytes(b"\x7fELF of another processor")
    with pytest.raises(BrokerError, match="does not report its version; install"):
        find_java()
    with pytest.raises(
        BrokerError, match=r"mvn \(Maven\), which fetches Kafka .* cannot be run: Exec format error; install"
    ):
        kafka_classpath("4.1.0")


@pytest.mark.usefixtures("tool")
def test_missing_maven_is_named_with_how_to_get_it() -> None:
    """Without mvn, and without jars fetched before, the error names it and how to get it."""
    with pytest.raises(BrokerError, match=r"mvn \(Maven\).*PATH; .*apt-get install maven.*brew install maven"):
        kafka_classpath("4.1.0")


def test_a_failing_maven_shows_its_output_and_leaves_nothing(tool: Callable[[str, str], None], tmp_path: Path) -> None:
    """A fetch that failed is told with Maven's own words, and the next one starts afresh."""
    tool("mvn", "echo no route to the repository; exit 1")
    with pytest.raises(BrokerError, match=r"exit code 1\)(.|\n)*no route to the repository"):
        kafka_classpath("4.1.0")
    assert [path.suffix for path in (tmp_path / "cache" / "pyspark-dynamic-kafka").iterdir()] == [".lock"]


def test_jars_are_fetched_once(tool: Callable[[str, str], None], tmp_path: Path) -> None:
    """The first call fetches into the cache folder, the second one needs no Maven any more."""
    tool("mvn", 'for a in "$@"; do case $a in -DoutputDirectory=*) /bin/mkdir -p "${a#*=}";; esac; done')
    classpath = kafka_classpath(KAFKA_VERSION)
    tool("mvn", "exit 1")
    assert kafka_classpath(KAFKA_VERSION) == classpath
    assert classpath == f"{tmp_path}/cache/pyspark-dynamic-kafka/kafka-{KAFKA_VERSION}/*"


def test_a_broker_never_started_has_no_address() -> None:
    """Asking for the address too early says what to do, unless the port was given."""
    with pytest.raises(BrokerError, match=r"call start\(\)"):
        _ = KafkaBroker().bootstrap_servers
    assert KafkaBroker(port=9092).bootstrap_servers == "127.0.0.1:9092"
    KafkaBroker().close()


def test_a_broker_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's own error has no words."""
    monkeypatch.setattr(broker, "_ADMIN_TIMEOUT_S", 0)
    with pytest.raises(TimeoutError, match=r"has not answered within 0 s to create topic 't'; look into its log"):
        broker._await_answer(Future(), "to create topic 't'")


def test_passwords_are_not_in_the_repr() -> None:
    """A broker can be printed without telling its passwords."""
    assert "secret" not in repr(KafkaBroker(sasl_plain={"ann": "secret"}))


def test_properties_files_escape_what_java_would_read_differently() -> None:
    """Backslashes, line ends and characters beyond ASCII arrive in Java as they are."""
    assert as_properties({"a": "x=\\y\n", "b": "é😀"}) == "a=x=\\\\y\\u000a\nb=\\u00e9\\ud83d\\ude00\n"


def test_wait_until_returns_the_first_true_answer() -> None:
    """Waiting ends with what the condition answered."""
    answers = iter([0, 0, 7, 8])
    assert wait_until(lambda: next(answers), 5, "a number") == 7


def test_wait_until_names_what_did_not_come() -> None:
    """After the deadline the error names what was waited for and the last answer; the condition is asked once at least."""
    with pytest.raises(TimeoutError, match=r"After 0 s still waiting for the moon; the last answer was \[\]"):
        wait_until(list, 0, "the moon")


def test_the_mock_cluster_takes_records() -> None:
    """The mock cluster is up without Java, with as many brokers as asked for."""
    with MockCluster(brokers=2) as cluster:
        assert len(cluster.bootstrap_servers.split(",")) == 2
        produce(cluster.bootstrap_servers, "t", [(None, "v")], partition=0)
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
        consumer.assign([TopicPartition("t", 0, 0)])
        assert [m.value() for m in consumer.consume(1, timeout=20)] == [b"v"]
        consumer.close()


def test_the_watchdog_passes_the_exit_code_on(tmp_path: Path) -> None:
    """A command that ends by itself ends its watchdog, with the same exit code, and its folder stays."""
    watchdog = resources.files("dynamic_kafka.testing") / "watchdog.py"

    command = [sys.executable, "-I", "-S", str(watchdog), str(os.getpid()), str(tmp_path), "/bin/sh", "-c", "exit 3"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.wait(20) == 3
    assert tmp_path.exists()
