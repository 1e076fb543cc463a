"""Java and Kafka's jars, which a test broker needs. Maven fetches the jars once into a cache folder."""

from __future__ import annotations

import fcntl
import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

from dynamic_kafka.errors import DynamicKafkaError

__all__ = ["KAFKA_VERSION", "BrokerError", "cached", "find_java", "kafka_classpath", "run_maven"]

KAFKA_VERSION = os.environ.get("KAFKA_VERSION") or "4.1.0"
"""The version of brokers that are made without one."""

_OLDEST_JAVA = 17  # Kafka 4's brokers need it
_GET_JAVA = (
    "install it with 'apt-get install openjdk-17-jre-headless' (Debian, Ubuntu; or a newer one) or "
    "'brew install --cask temurin' (macOS), or set JAVA_HOME"
)
_GET_MAVEN = "install it with 'apt-get install maven' (Debian, Ubuntu) or 'brew install maven' (macOS)"
_MAVEN_TIMEOUT_S = 900


class BrokerError(DynamicKafkaError):
    """Raised when a test broker cannot be started or stopped; the message ends with the end of the broker's log."""


def find_java() -> str:
    """Return the path of the Java to run a broker with: the one in `JAVA_HOME`, else the one on `PATH`.

    Raises:
        BrokerError: If there is no Java, or if it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME ({home})" if home else "PATH"
        raise BrokerError(f"A Kafka broker needs java, which was not found in {where}; {_GET_JAVA}")
    major = _java_major(java)
    if major is None:  # macOS has a stub where no Java is installed
        raise BrokerError(f"A Kafka broker needs java, but {java} does not report its version; {_GET_JAVA}")
    if major < _OLDEST_JAVA:
        raise BrokerError(f"A Kafka broker needs Java {_OLDEST_JAVA} or newer, but {java} is Java {major}; {_GET_JAVA}")
    return java


@functools.cache
def _java_major(java: str) -> int | None:
    try:
        answer = subprocess.run(  # noqa: S603
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):  # such as one for another processor
        return None
    # Before Java 9 the version began with "1.", as in 1.8.0_392.
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if answer.returncode == 0 and found else None


def kafka_classpath(version: str) -> str:
    """Return the class path of a broker, as `java -cp` takes it; fetch the jars if this user does not have them yet.

    Raises:
        BrokerError: If the jars are missing and Maven is missing or fails.
    """
    return f"{cached(f'kafka-{version}', functools.partial(_fetch_kafka, version))}/*"


def _fetch_kafka(version: str, scratch: Path) -> Path:
    jars = scratch / "jars"
    with resources.as_file(resources.files("dynamic_kafka.testing") / "kafka-broker.pom.xml") as pom:
        run_maven(
            scratch,
            [
                *("-f", str(pom), "dependency:copy-dependencies"),
                *(f"-Dkafka.version={version}", f"-DoutputDirectory={jars}", "-DincludeScope=runtime"),
            ],
            f"Kafka {version}",
        )
    return jars


def cached(name: str, fetch: Callable[[Path], Path]) -> Path:
    """Return a folder of the user's cache, and fill it first if it does not exist yet.

    The cache is `$XDG_CACHE_HOME` (`~/.cache` if unset)`/pyspark-dynamic-kafka`. If several processes ask at once, one
    fetches and the others wait for it.

    Args:
        name: The folder's name.
        fetch: Fills a folder below the scratch folder that it is given, and returns it.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyspark-dynamic-kafka"
    folder = cache / name
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                # Beside its final place: a rename is atomic within a file system, so the folder is always complete.
                with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=cache) as scratch:
                    fetch(Path(scratch)).rename(folder)
    return folder


def run_maven(folder: Path, arguments: Sequence[str], what: str) -> None:
    """Have Maven fetch something.

    Args:
        folder: The folder to run in; without a project of its own.
        arguments: The arguments of the command `mvn`.
        what: The thing to fetch, for errors.

    Raises:
        BrokerError: If Maven is missing or fails.
    """
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerError(f"{what} is fetched once by mvn (Maven), which is not on PATH; {_GET_MAVEN}")
    try:
        answer = subprocess.run(  # noqa: S603
            [maven, "-q", "-B", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_MAVEN_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        raise BrokerError(
            f"{maven} (Maven), which fetches {what}, cannot be run: {error.strerror}; {_GET_MAVEN}"
        ) from None
    except subprocess.TimeoutExpired:
        raise BrokerError(f"Maven did not fetch {what} within {_MAVEN_TIMEOUT_S} s") from None
    if answer.returncode != 0:
        raise BrokerError(
            f"Maven could not fetch {what} (exit code {answer.returncode}); check that its repository can be reached\n"
            f"{answer.stdout[-4000:]}"
        )
