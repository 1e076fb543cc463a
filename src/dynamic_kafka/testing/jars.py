"""What a broker needs from outside Python: Java, and Kafka's jars, which Maven fetches once into a cache folder."""

from __future__ import annotations

import fcntl
import functools
import os
import re
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path

from dynamic_kafka.errors import DynamicKafkaError

__all__ = ["KAFKA_VERSION", "BrokerError", "find_java", "kafka_classpath"]

KAFKA_VERSION = "4.1.0"

_OLDEST_JAVA = 17  # Kafka 4's brokers need it
_GET_JAVA = (
    "install it with 'apt-get install openjdk-17-jre-headless' (Debian, Ubuntu; or a newer one) or "
    "'brew install --cask temurin' (macOS), or point JAVA_HOME at one"
)
_GET_MAVEN = "install it with 'apt-get install maven' (Debian, Ubuntu) or 'brew install maven' (macOS)"
_MAVEN_TIMEOUT_S = 900


class BrokerError(DynamicKafkaError):
    """A test broker cannot be started, or does not do what it was told; the message ends with the broker's log."""


def find_java() -> str:
    """The Java to run a broker with: the one in `JAVA_HOME`, else the one on `PATH`.

    Raises:
        BrokerError: If there is none, or if it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME ({home})" if home else "PATH"
        raise BrokerError(f"A Kafka broker needs java, which is not in {where}; {_GET_JAVA}")
    major = _java_major(java)
    if major is None:  # macOS has a stub for those who have no Java
        raise BrokerError(f"A Kafka broker needs java, and {java} does not tell its version; {_GET_JAVA}")
    if major < _OLDEST_JAVA:
        raise BrokerError(f"A Kafka broker needs Java {_OLDEST_JAVA} or newer, and {java} is Java {major}; {_GET_JAVA}")
    return java


@functools.cache
def _java_major(java: str) -> int | None:
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    # Before Java 9 the version began with "1.", as in 1.8.0_392.
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if answer.returncode == 0 and found else None


def kafka_classpath() -> str:
    """The class path of a broker, as `java -cp` takes it; fetches the jars if this user has never had them.

    The jars are kept in `$XDG_CACHE_HOME` (`~/.cache` if unset)`/pyspark-dynamic-kafka/kafka-<version>`. Several
    processes may ask at once: one fetches, the others wait for it.

    Raises:
        BrokerError: If the jars are not there yet and Maven is missing or fails.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyspark-dynamic-kafka"
    jars = cache / f"kafka-{KAFKA_VERSION}"
    if not jars.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f"{jars.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not jars.is_dir():
                _fetch(jars)
    return f"{jars}/*"


def _fetch(jars: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerError(f"A Kafka broker's jars are fetched once by mvn (Maven), which is not on PATH; {_GET_MAVEN}")
    pom = resources.files("dynamic_kafka.testing") / "kafka-broker.pom.xml"
    # Beside its final place: a rename is atomic within a file system, so a folder of that name is always complete.
    with (
        tempfile.TemporaryDirectory(prefix=f"{jars.name}-", dir=jars.parent) as scratch,
        resources.as_file(pom) as pom_file,
    ):
        fetched = Path(scratch, "jars")
        command = [maven, "-q", "-B", "-f", str(pom_file), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={fetched}", "-DincludeScope=runtime"]
        try:
            answer = subprocess.run(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_MAVEN_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BrokerError(f"Maven did not fetch Kafka {KAFKA_VERSION} within {_MAVEN_TIMEOUT_S} s") from None
        if answer.returncode != 0:
            raise BrokerError(
                f"Maven could not fetch Kafka {KAFKA_VERSION} (exit code {answer.returncode}); "
                f"check that its repository can be reached\n{answer.stdout[-4000:]}"
            )
        fetched.rename(jars)
