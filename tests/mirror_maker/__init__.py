"""A real MirrorMaker 2 in a child process, which copies topics from one broker to another."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dynamic_kafka.testing import KafkaBroker
from dynamic_kafka.testing.jars import KAFKA_VERSION, cached, find_java, run_maven

_POM = Path(__file__).with_name("pom.xml")


@contextmanager
def mirror_maker(source: KafkaBroker, target: KafkaBroker, topics: str, folder: Path, **more: str) -> Iterator[None]:
    """Copy topics while the `with` block runs; the clusters are called `a` and `b`.

    Args:
        source: The broker to copy from.
        target: The broker to copy to.
        topics: The topics, as a regular expression.
        folder: A folder for its configuration and its log.
        more: Further properties; `_` in a name stands for `.`.
    """
    jars = cached(f"mirror-maker-{KAFKA_VERSION}", functools.partial(_fetch, KAFKA_VERSION))
    properties = {
        "clusters": "a,b",
        "a.bootstrap.servers": source.bootstrap_servers,
        "b.bootstrap.servers": target.bootstrap_servers,
        "a->b.enabled": "true",
        "b->a.enabled": "false",
        "a->b.topics": topics,
        "replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "config.storage.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "emit.heartbeats.enabled": "false",
        "dedicated.mode.enable.internal.rest": "false",
        "offset.lag.max": "10",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    path = folder / "mirror-maker.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    command = [find_java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    with (folder / "mirror-maker.log").open("wb") as log:
        child = subprocess.Popen(
            [*command, "org.apache.kafka.connect.mirror.MirrorMaker", str(path)], stdout=log, stderr=log
        )
        try:
            yield
        finally:
            child.kill()
            child.wait(20)


def _fetch(version: str, scratch: Path) -> Path:
    jars = scratch / "jars"
    run_maven(
        scratch,
        [
            *("-f", str(_POM), "dependency:copy-dependencies"),
            *(f"-Dkafka.version={version}", f"-DoutputDirectory={jars}", "-DincludeScope=runtime"),
        ],
        f"MirrorMaker {version}",
    )
    return jars
