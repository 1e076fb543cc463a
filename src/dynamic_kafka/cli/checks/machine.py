"""Checks of this machine: Python, Java, Spark, Kafka's client, the native kernel, memory and open files."""

from __future__ import annotations

import importlib.metadata
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from dynamic_kafka.cli.checks.findings import Finding, error, of_error, ok, unknown, warning
from dynamic_kafka.cli.job import Job
from dynamic_kafka.errors import DynamicKafkaError, listed
from dynamic_kafka.native import kernel

__all__ = [
    "CLIENT",
    "JAVA",
    "PYTHON",
    "SPARK",
    "check_client",
    "check_features",
    "check_java",
    "check_kernel",
    "check_memory",
    "check_open_files",
    "check_python",
    "check_spark",
    "check_workers",
    "judge_client",
    "judge_features",
    "judge_java",
    "judge_memory",
    "judge_open_files",
    "judge_python",
    "judge_spark",
    "judge_workers",
    "needed_files",
]

PYTHON = ((3, 11), (3, 13))
"""The oldest Python that is supported, and the newest one that is tested."""
JAVA = (17, 21)
"""The same for Java."""
SPARK = (4, 0)
"""The oldest Spark."""
CLIENT = ((2, 10), (2, 17))
"""The oldest confluent-kafka, and the first one that is too new."""

_PATIENCE_S = 20.0
_CODECS = ("gzip", "snappy", "lz4", "zstd")
_FEATURES = ("ssl", "sasl_plain", "sasl_scram", "sasl_oauthbearer", "sasl_gssapi", "oidc", *_CODECS)
_MECHANISMS = {
    "PLAIN": "sasl_plain",
    "SCRAM-SHA-256": "sasl_scram",
    "SCRAM-SHA-512": "sasl_scram",
    "OAUTHBEARER": "sasl_oauthbearer",
    "GSSAPI": "sasl_gssapi",
}
_MIB = 1024 * 1024
# Measured sizes: a worker with pyarrow and a client, and the queue of a cluster's consumer (source/executor/reader.py).
_DRIVER_MIB, _WORKER_MIB, _QUEUE_MIB = 1024, 150, 32
_CGROUP = Path("/sys/fs/cgroup")


# --- Python, Java, Spark ------------------------------------------------------------------------------------------------


def check_python(_job: Job) -> Iterator[Finding]:
    """Check the Python of this process."""
    yield judge_python(sys.version_info[:2], sys.version.split()[0])


def judge_python(version: tuple[int, int], shown: str) -> Finding:
    """Judge the version of Python."""
    oldest, newest = (".".join(map(str, v)) for v in PYTHON)
    if version < PYTHON[0]:
        return error(f"Python {shown} is too old", f"use Python {oldest} to {newest}")
    if version > PYTHON[1]:
        return warning(f"Python {shown} is newer than what is tested ({oldest} to {newest})", f"use Python {newest}")
    return ok(f"Python {shown}")


def check_workers(_job: Job) -> Iterator[Finding]:
    """Check the Python that Spark starts for tasks on this machine."""
    given = os.environ.get("PYSPARK_PYTHON")
    program = given or "python3"
    origin = "PYSPARK_PYTHON" if given else "PYSPARK_PYTHON is not set"
    ask = (
        "import sys, importlib.util as u; "
        "print('%d.%d' % sys.version_info[:2], u.find_spec('dynamic_kafka') is not None, sys.executable)"
    )
    yield judge_workers(program, origin, sys.version_info[:2], *_answer([program, "-c", ask]))


def judge_workers(program: str, origin: str, here: tuple[int, int], answer: str, failure: str) -> Finding:
    """Judge the Python of Spark's workers.

    `origin` says where the program's name is from. An answer such as `3.11 True /usr/bin/python3` has its version, whether
    it finds this package, and its path; without one, `failure` says why.
    """
    remedy = f"set PYSPARK_PYTHON={sys.executable} where the query is started"
    match = re.fullmatch(r"(\d+)\.(\d+) (True|False) (.*)\n?", answer)
    if match is None:
        return error(f"Spark's tasks would run in '{program}' ({origin}), which does not start ({failure})", remedy)
    which = f"'{match[4] or program}' ({origin})"
    version = int(match[1]), int(match[2])
    if version != here:
        return error(
            f"Spark's tasks would run in {which}, Python {match[1]}.{match[2]}, but this is Python {here[0]}.{here[1]}, "
            "and Spark wants the same",
            remedy,
        )
    if match[3] == "False":
        return error(f"Spark's tasks would run in {which}, which does not have pyspark-dynamic-kafka", remedy)
    return ok(f"Spark's tasks run in {which}, Python {match[1]}.{match[2]}")


def check_java(_job: Job) -> Iterator[Finding]:
    """Check the Java that Spark starts."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    yield judge_java(program, None if program is None else _answer([program, "-version"], subprocess.STDOUT)[0])


def judge_java(program: str | None, text: str | None) -> Finding:
    """Judge Java by what `java -version` says; None if there is no Java."""
    oldest, newest = JAVA
    install = f"install Java {oldest} or {newest}, and set JAVA_HOME to it"
    if program is None:
        return error("Java was not found (JAVA_HOME is not set, and there is no java in PATH)", install)
    if not text:
        return error(f"'{program}' cannot be run", install)
    match = re.search(r'version "(?:1\.)?(\d+)([^"]*)"', text)
    if match is None:
        return error(f"'{program} -version' does not say a version", install)
    version, shown = int(match[1]), match[1] + match[2]
    if version < oldest:
        return error(f"Java {shown} ({program}) is too old for Spark 4", install)
    if version > newest:
        return warning(f"Java {shown} ({program}) is newer than what is tested ({oldest} and {newest})", install)
    return ok(f"Java {shown} ({program})")


def check_spark(_job: Job) -> Iterator[Finding]:
    """Check Spark's Python package."""
    yield judge_spark(_installed("pyspark"), os.environ.get("SPARK_HOME"))


def judge_spark(version: str | None, home: str | None) -> Finding:
    """Judge Spark by the version of the installed package `pyspark`, and SPARK_HOME."""
    oldest = ".".join(map(str, SPARK))
    if version is None:
        where = f"; SPARK_HOME is {home}" if home else ""
        return unknown(
            f"the package pyspark is not installed in this environment{where}",
            f"start queries with spark-submit of Spark {oldest} or newer, or pip install 'pyspark-dynamic-kafka[spark]'",
        )
    if _numbers(version) < SPARK:
        return error(
            f"Spark {version} is too old: streaming sources in Python need {oldest}", f"pip install 'pyspark>={oldest}'"
        )
    return ok(f"Spark {version}")


# --- the clients --------------------------------------------------------------------------------------------------------


def check_client(_job: Job) -> Iterator[Finding]:
    """Check the version of confluent-kafka."""
    import confluent_kafka

    yield judge_client(_installed("confluent-kafka"), confluent_kafka.libversion()[0])


def judge_client(version: str | None, librdkafka: str) -> Finding:
    """Judge the version of confluent-kafka."""
    oldest, limit = (".".join(map(str, v)) for v in CLIENT)
    install = f"pip install 'confluent-kafka>={oldest},<{limit}'"
    if version is None:
        return unknown(f"confluent-kafka has no version; its librdkafka is {librdkafka}", install)
    if _numbers(version) < CLIENT[0]:
        return error(f"confluent-kafka {version} is too old", install)
    if _numbers(version) >= CLIENT[1]:
        return warning(f"confluent-kafka {version} is newer than what is tested; transactions may differ", install)
    return ok(f"confluent-kafka {version} with librdkafka {librdkafka}")


def check_features(job: Job) -> Iterator[Finding]:
    """Check what librdkafka was built with."""
    from confluent_kafka import KafkaException, Producer

    missing = {}
    for feature in _FEATURES:
        try:
            # librdkafka checks this list as it is set. The name after it then stops it from making a client.
            Producer({"builtin.features": feature, "no.such.property": ""})
        except KafkaException as failure:
            text = str(failure.args[0].str())
            if "no.such.property" not in text:
                missing[feature] = text.rpartition(": ")[2]
    yield from judge_features(missing, _needed_features(job))


def judge_features(missing: Mapping[str, str], needed: Mapping[str, str]) -> Iterator[Finding]:
    """Judge the features that librdkafka lacks, with the reason, by those that clusters need, with one of these clusters."""
    there = [feature for feature in _FEATURES if feature not in missing]
    yield ok(f"librdkafka has {', '.join(there)}" + (f"; it lacks {', '.join(missing)}" if missing else ""))
    for feature, cluster in sorted(needed.items()):
        if feature in missing:
            yield error(
                f"cluster '{cluster}' needs {feature}, which this librdkafka was built without ({missing[feature]})",
                "build librdkafka and confluent-kafka with it on this machine: pip install --no-binary confluent-kafka "
                "confluent-kafka (docs/guides/security.md has the commands for Kerberos)",
            )
    if codecs := [codec for codec in _CODECS if codec in missing and codec not in needed]:
        yield warning(
            f"records compressed with {listed(codecs)} cannot be read", "install confluent-kafka from its wheel"
        )


def _needed_features(job: Job) -> dict[str, str]:
    needed = {}
    for target in job.targets:
        properties = target.properties
        protocol = properties.get("security.protocol", "PLAINTEXT").upper()
        if protocol.endswith("SSL"):
            needed["ssl"] = target.cluster
        if protocol.startswith("SASL"):
            mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI")).upper()
            if mechanism in _MECHANISMS:
                needed[_MECHANISMS[mechanism]] = target.cluster
        codec = properties.get("compression.type", properties.get("compression.codec", "")).lower()
        if codec in _CODECS:
            needed[codec] = target.cluster
    return needed


def check_kernel(_job: Job) -> Iterator[Finding]:
    """Check the native kernel."""
    from confluent_kafka import libversion

    try:
        version = kernel().__version__
    except DynamicKafkaError as problem:
        yield of_error(problem)
    else:
        yield ok(f"the native kernel {version} with librdkafka {libversion()[0]}")


# --- memory and open files ----------------------------------------------------------------------------------------------


def check_memory(job: Job) -> Iterator[Finding]:
    """Check the memory that is free, on this machine or in this container."""
    tasks = os.cpu_count() or 1
    yield judge_memory(_free_mib(), tasks, len(job.targets))


def judge_memory(free_mib: int | None, tasks: int, clusters: int) -> Finding:
    """Judge the memory that is free (None if that is not known) by what a query in local mode needs as a rule of thumb."""
    if free_mib is None:
        return unknown("the free memory is not known on this system")
    needed = _DRIVER_MIB + tasks * (_WORKER_MIB + _QUEUE_MIB * max(1, clusters))
    text = f"{free_mib} MiB are free; a query with {tasks} tasks at once needs about {needed} MiB in local mode"
    if free_mib < needed:
        return warning(text, "give it more memory, or fewer tasks at once (--master 'local[n]')")
    return ok(text)


def _free_mib() -> int | None:
    try:
        match = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    if match is None:
        return None
    free = int(match[1]) * 1024
    try:  # a container's own limit
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        if limit != "max":
            free = min(free, int(limit) - int(used))
    except (OSError, ValueError):
        pass
    return free // _MIB


def check_open_files(job: Job, brokers: Mapping[str, int]) -> Iterator[Finding]:
    """Check how many files a process may have open, by the number of brokers of each cluster that answers."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    silent = sorted(target.cluster for target in job.targets if target.cluster not in brokers)
    yield judge_open_files(None if limit == resource.RLIM_INFINITY else limit, needed_files(job, brokers), silent)


def needed_files(job: Job, brokers: Mapping[str, int]) -> int:
    """Return about how many files and sockets one process of a query has open.

    A client has a connection to each broker and each bootstrap server, and some pipes. A reading process has up to four
    clients for a cluster (one that reads and one that asks, for tasks with few records and for others), a writing one has
    one, and up to four with transactions (docs/reference/commit-log.md).
    """
    clients = max((_CLIENTS[purpose] for purpose in job.purposes), default=0)
    found = _BASE_FILES
    for target in job.targets:
        servers = len(target.properties.get("bootstrap.servers", "").split(","))
        found += clients * (brokers.get(target.cluster, 0) + servers + _CLIENT_FILES)
    return found


_CLIENTS = {"reading": 4, "writing": 1, "exactly-once": 4}
_BASE_FILES, _CLIENT_FILES = 100, 8


def judge_open_files(limit: int | None, needed: int, silent: Collection[str]) -> Finding:
    """Judge how many files a process may have open (None: any number). Of `silent` clusters, the brokers are not known."""
    if limit is None:
        return ok("a process may open any number of files")
    text = f"a process may open {limit} files, and one of this query needs about {needed}"
    remedy = f"raise the limit (ulimit -n {max(4096, 4 * needed)}, LimitNOFILE= of the service), also on the executors"
    if needed > limit:
        return error(text, remedy)
    if 2 * needed > limit:
        return warning(text, remedy)
    if silent:
        return unknown(f"{text}, without those for the clusters that do not answer: {listed(silent, 5)}")
    return ok(text)


# --- helpers ------------------------------------------------------------------------------------------------------------


def _answer(command: list[str], stderr: int = subprocess.DEVNULL) -> tuple[str, str]:
    """Return what a program that Spark would start writes, and how it ended."""
    try:
        done = subprocess.run(  # noqa: S603
            command, stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return "", type(failure).__name__
    return done.stdout, f"exit code {done.returncode}"


def _installed(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
