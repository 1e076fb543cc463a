"""What `dynamic-kafka doctor` makes of what it finds, and the command without any cluster."""

from __future__ import annotations

import json
import re
import sys
import threading
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.commands import Run, runner

from dynamic_kafka.cli import doctor
from dynamic_kafka.cli.checks import exactly_once, machine, network, rights
from dynamic_kafka.cli.checks.findings import Finding, Result
from dynamic_kafka.cli.checks.visit import TopicState
from dynamic_kafka.cli.job import Job, Target, job_of
from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError
from dynamic_kafka.kafka import probing
from dynamic_kafka.kafka.probing import Clock, Probe
from dynamic_kafka.kafka.transactions.connection import Step
from dynamic_kafka.kafka.transactions.security import ConnectionSettings

OK, WARNING, ERROR, UNKNOWN = Result.OK, Result.WARNING, Result.ERROR, Result.UNKNOWN
ROOT = Path(__file__).parents[3]
SET = "PYSPARK_PYTHON"


# --- the machine --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("finding", "result", "said"),
    [
        (machine.judge_python((3, 12), "3.12.1"), OK, "Python 3.12.1"),
        (machine.judge_python((3, 10), "3.10.0"), ERROR, "too old"),
        (machine.judge_python((3, 14), "3.14.0"), WARNING, "newer than what is tested"),
        (
            machine.judge_workers("python3", SET, (3, 12), "3.12 True /opt/py\n", ""),
            OK,
            "in '/opt/py' (PYSPARK_PYTHON), Python 3.12",
        ),
        (
            machine.judge_workers("python3", SET, (3, 12), "3.11 True /opt/py\n", ""),
            ERROR,
            "this is Python 3.12",
        ),
        (
            machine.judge_workers("python3", SET, (3, 12), "3.12 False /py\n", ""),
            ERROR,
            "does not have pyspark-dynamic",
        ),
        (
            machine.judge_workers("nothing", SET, (3, 12), "", "FileNotFoundError"),
            ERROR,
            "does not start (FileNotFoundError)",
        ),
        (machine.judge_java("/x/java", 'openjdk version "17.0.15" 2025-04-15'), OK, "Java 17.0.15 (/x/java)"),
        (machine.judge_java("/x/java", 'java version "1.8.0_292"'), ERROR, "Java 8.0_292 (/x/java) is too old"),
        (machine.judge_java("/x/java", 'openjdk version "25" 2025-09-16'), WARNING, "newer"),
        (machine.judge_java("/x/java", "segmentation fault"), ERROR, "does not say a version"),
        (machine.judge_java("/x/java", ""), ERROR, "'/x/java' cannot be run"),
        (machine.judge_java(None, None), ERROR, "was not found"),
        (machine.judge_spark("4.2.0", None), OK, "Spark 4.2.0"),
        (machine.judge_spark("3.5.8", None), ERROR, "too old"),
        (machine.judge_spark(None, "/opt/spark"), UNKNOWN, "SPARK_HOME is /opt/spark"),
        (machine.judge_client("2.16.0", "2.16.0"), OK, "librdkafka 2.16.0"),
        (machine.judge_client("2.9.0", "2.9.0"), ERROR, "too old"),
        (machine.judge_client("2.17.1", "2.17.1"), WARNING, "newer than what is tested"),
        (machine.judge_client(None, "2.16.0"), UNKNOWN, "no version"),
        (machine.judge_memory(4096, 2, 1), OK, "4096 MiB are free"),
        (machine.judge_memory(512, 2, 1), WARNING, "needs about 1388 MiB"),
        (machine.judge_memory(None, 2, 1), UNKNOWN, "not known"),
        (machine.judge_open_files(None, 100, []), OK, "any number"),
        (machine.judge_open_files(1024, 200, []), OK, "1024 files"),
        (machine.judge_open_files(1024, 600, []), WARNING, "about 600"),
        (machine.judge_open_files(1024, 2000, []), ERROR, "about 2000"),
        (machine.judge_open_files(1024, 200, ["jfk"]), UNKNOWN, "do not answer: jfk"),
    ],
)
def test_findings_about_the_machine(finding: Finding, result: Result, said: str) -> None:
    """What is wrong has a remedy, and what is not known is not all right."""
    assert finding.result is result
    assert said in finding.what
    assert finding.remedy or result in (OK, UNKNOWN)


def test_findings_about_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it nothing is read or written: the finding names the machine, and what to do."""
    (found,) = machine.check_kernel(Job())
    assert found.result is OK
    assert re.fullmatch(r"the native kernel [\w.]+ with librdkafka [\d.]+", found.what)

    def missing() -> None:
        raise DynamicKafkaError("The native kernel cannot be used on host: it is missing; reinstall it")

    monkeypatch.setattr(machine, "kernel", missing)
    (found,) = machine.check_kernel(Job())
    assert (found.result, found.remedy) == (ERROR, "reinstall it")
    assert found.what == "The native kernel cannot be used on host: it is missing"


def test_a_missing_feature_matters_where_it_is_needed() -> None:
    """Kerberos is missing in wheels, which is an error for a cluster with Kerberos. Any codec may be in a topic."""
    missing = {"sasl_gssapi": "libsasl2 not available at build time", "zstd": "not built"}
    (listed, codecs) = machine.judge_features(missing, {})
    assert (listed.result, codecs.result) == (OK, WARNING)
    assert "lacks sasl_gssapi, zstd" in listed.what
    found = list(machine.judge_features(missing, {"sasl_gssapi": "jfk", "zstd": "jfk"}))
    assert [f.result for f in found] == [OK, ERROR, ERROR]
    assert "cluster 'jfk' needs sasl_gssapi" in found[1].what


def test_open_files_grow_with_brokers_and_clients() -> None:
    """A process that writes exactly once has four producers for each cluster."""
    targets = tuple(Target(name, {"bootstrap.servers": "a:1,b:1"}) for name in ("ewr", "jfk"))
    reading, writing = (machine.needed_files(Job(targets, {p: True}), {"ewr": 9}) for p in ("reading", "exactly-once"))
    assert (reading, writing) == (100 + 4 * (9 + 2 + 8) + 4 * 10, 100 + 4 * (9 + 2 + 8) + 4 * 10)


def test_supported_versions_are_those_of_the_package() -> None:
    """The same as in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (client,) = [line for line in project["dependencies"] if line.startswith("confluent-kafka")]
    assert tuple(tuple(map(int, v.split("."))) for v in re.findall(r"[\d.]+", client)) == machine.CLIENT
    assert project["requires-python"] == f">={machine.PYTHON[0][0]}.{machine.PYTHON[0][1]}"
    assert project["optional-dependencies"]["spark"] == [f"pyspark>={machine.SPARK[0]}.{machine.SPARK[1]}"]
    newest = f"Programming Language :: Python :: {machine.PYTHON[1][0]}.{machine.PYTHON[1][1]}"
    assert max(c for c in project["classifiers"] if "Python :: 3" in c) == newest


# --- a cluster ----------------------------------------------------------------------------------------------------------


def at(*steps: Step, problem: str = "", refused: bool = False) -> Probe:
    """What was found at an address."""
    return Probe(("here", 9092), list(steps), problem, refused, 0.012)


@pytest.mark.parametrize(
    ("probe", "others", "result", "said"),
    [
        (at(Step.DNS, Step.TCP, Step.VERSIONS), False, OK, "here:9092: DNS, TCP, ApiVersions in 12 ms"),
        (at(Step.DNS, problem="here:9092: no such name"), False, ERROR, "here:9092: DNS fails: no such name"),
        (at(Step.DNS, Step.TCP, problem="refused"), True, WARNING, "TCP fails: refused"),
        (at(Step.DNS, Step.TCP, Step.TLS, problem="eof; check security.protocol"), False, ERROR, "TLS fails: eof"),
        (at(Step.DNS, Step.TCP, Step.LOGIN, problem="no", refused=True), True, ERROR, "login fails: no"),
        (at(problem="no answer"), False, ERROR, "DNS fails: no answer"),
    ],
)
def test_findings_about_an_address(probe: Probe, others: bool, result: Result, said: str) -> None:  # noqa: FBT001
    """The step that fails is named. One of several addresses may fail, but not its login."""
    found = network.judge_address(probe, others=others)
    assert found.result is result
    assert found.what == said or said in found.what
    assert "; check" not in found.what
    assert bool(found.remedy) == (result is not OK)


def test_an_address_that_could_not_be_looked_at_is_not_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever went wrong: an error that nobody expected, or one without words."""
    settings = ConnectionSettings((("here", 9092),))
    for failure, said in ((RuntimeError("oops"), "RuntimeError: oops"), (OSError(), "OSError: ")):

        def connect(*_: Any, failure: Exception = failure) -> None:
            raise failure

        monkeypatch.setattr(probing, "Connection", connect)
        assert probing.probe(("here", 9092), settings, 1).problem == said


def test_an_address_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the time that it may take, and no more: looking up a name has no time-out of its own."""
    answered = threading.Event()

    def connect(*_: Any) -> None:
        answered.wait(30)
        raise OSError("too late")

    monkeypatch.setattr(probing, "Connection", connect)
    monkeypatch.setattr(probing, "_GRACE_S", 0.0)
    found = probing.probe(("here", 9092), ConnectionSettings((("here", 9092),)), 0.05)
    assert found.problem == "no answer within 0.05 s"
    answered.set()


def test_a_broker_that_advertises_what_is_not_reached_is_an_error() -> None:
    """Its partitions cannot be read, although the bootstrap server answers."""
    wrong = Probe(("internal", 9092), [Step.DNS], "internal:9092: no such name")
    error, good = network.judge_listeners({1: at(Step.DNS, Step.TCP), 2: wrong})
    assert (error.result, good.result) == (ERROR, OK)
    assert error.what == "broker 2 is advertised as internal:9092, where DNS fails: no such name"
    assert good.what.startswith("1 of 2 brokers")


def test_findings_about_topics() -> None:
    """A topic that may not be seen is not one that does not exist."""
    found = list(
        network.judge_topics(
            {"a": TopicState(3), "b": TopicState(), "c": TopicState(hidden=True), "d": TopicState(2, leaderless=1)}
        )
    )
    assert [(f.result, f.what) for f in found] == [
        (WARNING, "these topics do not exist: b"),
        (UNKNOWN, "this user may not see these topics: c"),
        (ERROR, "partitions without a leader: d (1)"),
        (OK, "topics: 2, with partitions: 5"),
    ]
    (nothing,) = network.judge_topics({})
    assert nothing.result is WARNING


@pytest.mark.parametrize(
    ("there_ms", "result", "said"),
    [
        (1_000_010, OK, "at most 10 ms apart"),
        (1_000_500, OK, "at most 500 ms apart"),
        (1_030_020, WARNING, "30.0 s ahead of"),
        (980_000, WARNING, "20.0 s behind"),
    ],
)
def test_clocks_are_apart_by_what_is_certain(there_ms: int, result: Result, said: str) -> None:
    """The question took 20 ms, so the difference is known to that."""
    slow = Clock(1, there_ms, 990_000, 1_010_000)
    found = network.judge_clock([slow, Clock(1, there_ms, 1_000_000, 1_000_020)], [])
    assert found.result is result
    assert said in found.what


def test_a_clock_that_was_not_told_is_unknown() -> None:
    """With the reason."""
    assert network.judge_clock([], ["this user may not ask for it"]).result is UNKNOWN
    assert "nobody was asked" in network.judge_clock([], []).what


@pytest.mark.parametrize(
    ("granted", "asked_for", "result", "said"),
    [
        ({"T": frozenset({"Describe", "Read"})}, True, OK, "enough for reading: Describe, Read on T"),
        ({"T": frozenset({"Describe"})}, True, ERROR, "not enough for reading: missing is Read on T"),
        ({"T": frozenset({"Describe"})}, False, WARNING, "missing is Read on T"),
        ({"T": "it does not exist"}, True, UNKNOWN, "T (it does not exist)"),
        ({"T": frozenset[str](), "U": "no answer"}, True, ERROR, "Describe, Read on T. Not known: U (no answer)"),
        ({}, True, UNKNOWN, "no topic is named"),
    ],
)
def test_findings_about_rights(
    granted: Mapping[str, rights.Granted],
    asked_for: bool,  # noqa: FBT001
    result: Result,
    said: str,
) -> None:
    """What is missing is named; what is not known is not enough."""
    needed = dict.fromkeys(granted, frozenset({"Describe", "Read"}))
    found = rights.judge_rights("reading", needed, granted, asked_for=asked_for, user="User:me")
    assert found.result is result
    assert said in found.what
    assert ("--allow-principal User:me ..." in found.remedy) == (result in (ERROR, WARNING))


@pytest.mark.parametrize(
    ("most", "expires", "results"),
    [
        ("900000", "604800000", [OK, OK]),
        ("60000", "604800000", [ERROR, OK]),
        ("900000", "3600000", [OK, WARNING]),
        ("900000", "900000", [OK, ERROR]),
        (None, None, [UNKNOWN, UNKNOWN]),
    ],
)
def test_findings_about_transactions(most: str | None, expires: str | None, results: list[Result]) -> None:
    """The brokers' limits against the sink's time-out, and how long ids are remembered."""
    limits = {"transaction.max.timeout.ms": most, "transactional.id.expiration.ms": expires}
    given = {name: value for name, value in limits.items() if value is not None}
    assert [f.result for f in exactly_once.judge_transactions(given, 900_000, asked_for=True)] == results


def test_findings_about_the_commit_log() -> None:
    """As the sink judges it: what may delete decisions is an error, what may lose them with a broker a warning."""
    good = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "min.insync.replicas": "2"}

    def results(settings: Mapping[str, str] | None, *counts: int) -> list[Result]:
        found = exactly_once.judge_commit_log("log", settings, counts)  # type: ignore[arg-type]
        return [f.result for f in found]

    assert results(good, 1, 3, 3) == [OK]
    assert results(good | {"cleanup.policy": "compact"}, 1, 3, 3) == [ERROR]
    assert results(good | {"retention.ms": "604800000", "min.insync.replicas": "1"}, 1, 3, 3) == [ERROR, WARNING]
    assert results(good | {"unclean.leader.election.enable": "true"}, 1, 1, 3) == [WARNING, WARNING]
    assert results(good, 2, 3, 3) == [ERROR]
    assert results(None, 1, 3, 3) == [UNKNOWN]


# --- what is examined ---------------------------------------------------------------------------------------------------


def test_a_job_is_what_its_options_say(tmp_path: Path) -> None:
    """A source reads, a sink writes with its guarantee; an option that only one of them has decides which it is."""
    one = {"kafka.bootstrap.servers": "here:9092", "topic": "orders"}
    source = job_of({**one, "properties.group.id": "g", "startingOffsets": "latest"})
    assert source.purposes == {"reading": True}
    assert (source.group, source.targets[0].topics) == ("g", frozenset({"orders"}))
    assert job_of(one, write=True).purposes == {"writing": True}
    sink = job_of({**one, "sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": "p"})
    assert (sink.purposes, sink.prefix, sink.log_topic) == ({"exactly-once": True}, "p", "__dynamic-kafka-commits-p")
    with pytest.raises(ConfigurationError, match="are mixed"):
        job_of({**one, "startingOffsets": "latest", "sink.delivery-guarantee": "none"})
    streams = tmp_path / "streams.yaml"
    streams.write_text(
        "- {streamId: a, clusterMetadataList: [{clusterId: ewr, bootstrapServers: 'e:1', topics: [t]},"
        " {clusterId: jfk, bootstrapServers: 'j:1', topics: [t, u]}]}"
    )
    service = {"metadata-service": "file", "metadata-service.path": str(streams)}
    found = job_of({**service, "stream-ids": "a;b", "properties.client.id": "me"})
    assert [(t.cluster, sorted(t.topics)) for t in found.targets] == [("ewr", ["t"]), ("jfk", ["t", "u"])]
    assert found.targets[1].properties == {"client.id": "me", "bootstrap.servers": "j:1"}
    assert found.unknown_streams == ("b",)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `dynamic-kafka doctor`: its exit code, and what it wrote to the two outputs."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    return runner(capsys, "doctor")


def test_every_check_is_documented(run: Run) -> None:
    """In the table of docs/reference/cli.md; and --help has examples."""
    text = (ROOT / "docs" / "reference" / "cli.md").read_text()
    for name, _ in (*doctor.MACHINE_CHECKS, *doctor.CLUSTER_CHECKS):
        assert f"| `{name}` |" in text
    code, out, _ = run("--help")
    assert code == 0
    assert "dynamic-kafka doctor -o metadata-service=file" in out


def test_this_machine_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Java it is an error, and the exit code says so."""
    monkeypatch.setenv("JAVA_HOME", "/no/such")
    code, out, err = run("--output", "json")
    assert (code, err) == (1, "")
    found = json.loads(out)
    assert found["error_count"] == 1
    by_check = {f["check"]: f for f in found["findings"]}
    assert by_check.keys() == {*(name for name, _ in doctor.MACHINE_CHECKS), "open files"}
    assert by_check["java"]["result"] == "error"
    assert by_check["python"] == {
        "cluster": None,
        "check": "python",
        "result": by_check["python"]["result"],
        "what": f"Python {sys.version.split()[0]}",
        "remedy": by_check["python"]["remedy"],
    }


def test_clusters_that_do_not_answer(run: Run, tmp_path: Path) -> None:
    """Each is an error of its own with the step that fails; what was not asked is unknown, not all right."""
    streams = tmp_path / "streams.yaml"
    streams.write_text(
        "- {streamId: a, clusterMetadataList: [{clusterId: ewr, bootstrapServers: '127.0.0.1:1', topics: [t]},"
        " {clusterId: jfk, bootstrapServers: 'no-such-host.invalid:9092', topics: [t]}]}"
    )
    arguments = ["-o", "metadata-service=file", "-o", f"metadata-service.path={streams}", "-o", "stream-ids=a"]
    code, out, _ = run(*arguments, "--output", "json", "--timeout", "2")
    assert code == 1
    found = [f for f in json.loads(out)["findings"] if f["cluster"] is not None]
    said = {(f["cluster"], f["check"], f["result"]): f["what"] for f in found}
    assert said["ewr", "address", "error"] == "127.0.0.1:1: TCP fails: Connection refused"
    assert said["jfk", "address", "error"].startswith("no-such-host.invalid:9092: DNS fails:")
    skipped = (
        "not asked, because none of its addresses can be used: listeners, answer, clock, topics, rights, isolation"
    )
    assert said["jfk", "listeners", "unknown"] == skipped
    code, out, _ = run(*arguments, "--timeout", "2")
    lines = out.splitlines()
    assert lines[0].split() == ["RESULT", "WHERE", "CHECK", "FOUND", "WHAT", "TO", "DO"]
    assert lines[1].startswith("error "), "worst first"
    assert re.fullmatch(r"2 error, \d warning, 2 unknown, \d+ ok", lines[-1])


def test_a_metadata_service_that_fails_is_a_finding(run: Run, tmp_path: Path) -> None:
    """The machine is examined all the same. So it is with options that are wrong."""
    service = ["-o", "metadata-service=file", "-o", f"metadata-service.path={tmp_path / 'none.yaml'}"]
    for arguments, check in (([*service, "-o", "stream-ids=a"], "metadata"), (["-o", "subscrib=a"], "options")):
        code, out, err = run(*arguments, "--output", "json")
        assert (code, err) == (1, "")
        found = json.loads(out)["findings"]
        assert [f["check"] for f in found if f["result"] == "error"] == [check]
        assert "java" in {f["check"] for f in found}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topic", "orders"], "add --bootstrap-servers"),
        (["--write"], "give the options with -o"),
        (["-o", "subscribe=a", "--bootstrap-servers", "here:1"], "leave out the arguments for one cluster"),
        (["-o", "subscribe"], "expected KEY=VALUE"),
        (["--bootstrap-servers", "here:1", "--for", "fun"], "invalid choice"),
        (["--property", "client.id=x"], "add --bootstrap-servers"),
    ],
)
def test_wrong_usage(run: Run, arguments: list[str], said: str) -> None:
    """Exit code 2, and what is wrong."""
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_no_secret_is_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a right one nor one in the wrong place."""
    secret = "hunter2-SECRET"
    monkeypatch.setenv("DYNAMIC_KAFKA_TEST_PASSWORD", secret)
    login = ["--property", "security.protocol=SASL_SSL", "--property", "sasl.mechanism=PLAIN"]
    for more in (
        ["--property", "sasl.username=me", "--property", f"sasl.password={secret}"],
        ["--property", "sasl.username=me", "--property", "sasl.password=${env:DYNAMIC_KAFKA_TEST_PASSWORD}"],
        ["--property", f"sasl.jaas.config=x.PlainLoginModule required password={secret} {secret};"],
        ["--property", f"sasl.passwrd={secret}"],
        ["--property", f"ssl.keystore.key={secret}"],
    ):
        _, out, err = run("--bootstrap-servers", "127.0.0.1:1", *login, *more, "--timeout", "1", "--output", "json")
        assert secret not in out + err
    _, out, err = run("-o", f"kafka.bootstrap.servers=kafka://me:{secret}@here:1", "-o", "subscribe=a")
    assert secret not in out + err


def test_a_check_that_fails_itself_hides_no_other(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is unknown, with the reason."""

    def broken(_job: Job) -> list[Finding]:
        raise RuntimeError("oops")

    monkeypatch.setattr(doctor, "MACHINE_CHECKS", (("broken", broken), ("python", machine.check_python)))
    code, out, _ = run("--output", "json")
    assert code == 0
    found = {f["check"]: (f["result"], f["what"]) for f in json.loads(out)["findings"]}
    assert found["broken"] == ("unknown", "the check itself failed: RuntimeError: oops")
    assert "python" in found
