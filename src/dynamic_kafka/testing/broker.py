"""An Apache Kafka broker in a child process: a node with KRaft, that is broker and controller."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Self

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dynamic_kafka.testing.configuration import (
    HOST,
    Node,
    as_properties,
    broker_configuration,
    free_ports,
    is_free,
    kafka_uuid,
    nodes,
    plain_login_module,
)
from dynamic_kafka.testing.helpers import wait_until
from dynamic_kafka.testing.jars import KAFKA_VERSION, BrokerError, cached, find_java, kafka_classpath

__all__ = ["BrokerError", "KafkaBroker", "admin_client"]

_PORT_ATTEMPTS = 5
_START_TIMEOUT_S = 60
_STOP_TIMEOUT_S = 20
_ADMIN_TIMEOUT_S = 15
_LOG_TAIL_BYTES = 4000
_FEATURES, _CLASSES = "bootstrap.checkpoint", "classes.jsa"  # files of the template of a folder

# The broker's own word that all its listeners are open and that the controllers let clients in: Kafka's
# KafkaBroker.STARTED_MESSAGE. A connection to its ports proves less: another process may hold one of them, and Kafka
# ends a moment later.
_STARTED = b"Kafka Server started"
_SHOWN = "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info"

# Java's start is most of a test broker's life: the quick compiler and the smallest collector.
_SMALL_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class KafkaBroker:
    """A Kafka cluster of one broker, or one of a `KafkaCluster`, in a child process that never outlives this one.

    It needs Java 17 or newer (`JAVA_HOME` or `PATH`), and Maven once, to fetch Kafka's jars. It starts in about 2 s. The
    child is killed when this process ends, also when this process is killed by SIGKILL. The object is not thread-safe.

    Its listeners are named CLIENT (`bootstrap_servers`), INTERNAL (for the broker itself and this object, always in plain
    text) and CONTROLLER. So `properties` can change the clients' security without touching ports, for example to TLS:
    `{"listener.security.protocol.map": "CLIENT:SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "listener.name.client.ssl.keystore.location": ...}`. For SASL with passwords, `sasl_plain` is enough. With an
    authorizer, make `User:ANONYMOUS` a super user: it is the principal of the INTERNAL listener.

    Args:
        port: The port for clients; None takes a free one at the first start and then keeps it.
        properties: The broker's properties. They win over the defaults, which suit a small and quick broker.
        log_dir: A folder for data, configuration and the broker's log, kept when the broker is closed. A folder that a
            broker used before keeps its data; one that a broker uses now is refused. None is a temporary folder.
        heap: The JVM's heap, as in `1g`, for benchmarks; the JVM then also compiles fully. None is a small, quick JVM.
        sasl_plain: User to password. If given, clients must log in by SASL_PLAINTEXT with the mechanism PLAIN.
        version: Kafka's version, 3.9 or newer; None is the environment variable `KAFKA_VERSION`, or else 4.1.0.
        node: Its place in a cluster of several brokers, which `KafkaCluster` gives it.

    Examples:
        >>> with KafkaBroker(properties={"log.retention.ms": "1000"}) as broker:  # doctest: +SKIP
        ...     broker.create_topic("orders", partitions=4)
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        log_dir: Path | None = None,
        heap: str | None = None,
        sasl_plain: Mapping[str, str] | None = None,
        version: str | None = None,
        node: Node | None = None,
    ) -> None:
        self._port = port if node is None else node.client
        self._version = version or KAFKA_VERSION
        self._node = node
        self._properties = dict(properties or {})
        self._folder = log_dir
        self._is_temporary = log_dir is None
        self._jvm = (f"-Xms{heap}", f"-Xmx{heap}") if heap else _SMALL_JVM
        self._sasl_plain = dict(sasl_plain or {})
        self.internal_address = f"{HOST}:{node.internal}" if node else ""
        """The address of its listener INTERNAL, once it was started."""
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._java_pid = 0

    def __repr__(self) -> str:
        address = f"{HOST}:{self._port}" if self._port else "no port yet"
        return f"KafkaBroker({address}, {'running' if self.is_running else 'not running'})"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, as `host:port`; restarts keep it.

        Raises:
            BrokerError: If the broker was created without a port and has not been started yet.
        """
        if self._port is None:
            raise BrokerError("The broker has no port before its first start; call start(), or give it a port")
        return f"{HOST}:{self._port}"

    @property
    def is_running(self) -> bool:
        """Return whether the process exists, paused or not."""
        return self._watchdog is not None and self._watchdog.poll() is None

    def client_properties(self, user: str | None = None) -> dict[str, str]:
        """Return the properties that a client needs to connect, by Java's names.

        Args:
            user: One of `sasl_plain`; None is its first. Without `sasl_plain` there is no login.
        """
        properties = {"bootstrap.servers": self.bootstrap_servers}
        if self._sasl_plain:
            user = user or next(iter(self._sasl_plain))
            login = {"username": user, "password": self._sasl_plain[user]}
            properties |= {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": plain_login_module(login),
            }
        return properties

    def start(self) -> Self:
        """Start the broker and wait until it has started; do nothing if it is running.

        Raises:
            BrokerError: If Java or Maven is missing, or if the broker does not start within 60 s. The message ends with
                the end of the broker's log.
        """
        if self.is_running:
            return self
        self._release()
        if self._port is not None and not is_free(self._port):
            raise BrokerError(
                f"The broker's port {self._port} is in use; stop the process that uses it, or choose another port"
            )
        first_start = self._folder is None
        try:
            self._start()
        except BaseException:
            if first_start:
                self.close()  # leaves no temporary folder behind
            raise
        return self

    def _start(self) -> None:
        for attempts_left in reversed(range(_PORT_ATTEMPTS)):
            node = self._node or nodes(1, free_ports(), self._port)[0]
            try:
                self._launch(node)
            except BrokerError as error:
                # Another process took one of the ports between our check and the broker's start. Ports that are
                # given cannot be replaced, but what took one may be gone by the next attempt.
                if attempts_left and "Address already in use" in str(error):
                    continue
                raise
            self._port = node.client
            return

    def stop(self) -> None:
        """Shut the broker down in order (SIGTERM, after 20 s SIGKILL). Its data stay, and `start` uses them again."""
        if not self.is_running:
            return
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a paused process does not handle signals until then
        assert self._watchdog is not None
        try:
            self._watchdog.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
        self._release()

    def kill(self) -> None:
        """Kill the broker at once (SIGKILL), as in a crash. Its data stay, and `start` uses them again."""
        self._signal(signal.SIGKILL)
        self._release()

    def restart(self, *, sasl_plain: Mapping[str, str] | None = None) -> None:
        """Stop the broker if it is running, and start it on the same port with the same data.

        Args:
            sasl_plain: The users and passwords from now on; None keeps them as they are.
        """
        self.stop()
        if sasl_plain is not None:
            self._sasl_plain = dict(sasl_plain)
        self.start()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): connections stay open, nothing is answered.

        Return when all threads of the process have stopped: some can go on for milliseconds after the signal.
        """
        self._signal(signal.SIGSTOP)
        wait_until(self._is_frozen, _STOP_TIMEOUT_S, "the broker's threads to stop")

    def resume(self) -> None:
        """Let a paused process go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop the broker for good, and remove its data if they are temporary."""
        if not self._is_temporary:
            self.stop()
            return
        self.kill()  # the data are removed next: an orderly shutdown would save them for nothing
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until each of its partitions has a leader.

        Args:
            name: The topic.
            partitions: The number of partitions.
            config: The topic's configuration.

        Raises:
            confluent_kafka.KafkaException: If the broker refuses, for example because the topic exists.
            TimeoutError: If the topic is not ready within 15 s.
        """
        admin = admin_client(self.internal_address)
        new = NewTopic(name, num_partitions=partitions, config=dict(config or {}))  # with the brokers' replication
        _await_answer(admin.create_topics([new])[name], f"to create topic '{name}'")

        def has_leaders() -> bool:
            topic = admin.list_topics(name, timeout=_ADMIN_TIMEOUT_S).topics[name]
            return len(topic.partitions) == partitions and all(p.leader >= 0 for p in topic.partitions.values())

        wait_until(has_leaders, _ADMIN_TIMEOUT_S, f"leaders of topic '{name}'")

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until the broker no longer lists it.

        Raises:
            confluent_kafka.KafkaException: If the broker refuses, for example because the topic does not exist.
            TimeoutError: If the broker still lists it after 15 s.
        """
        admin = admin_client(self.internal_address)
        _await_answer(admin.delete_topics([name])[name], f"to delete topic '{name}'")
        wait_until(
            lambda: name not in admin.list_topics(timeout=_ADMIN_TIMEOUT_S).topics,
            _ADMIN_TIMEOUT_S,
            f"the end of topic '{name}'",
        )

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running:
            os.kill(self._java_pid, number)

    def _is_frozen(self) -> bool:
        """Return whether all threads have stopped. Systems without /proc do not tell, and are believed."""
        try:
            stats = [path.read_text() for path in Path(f"/proc/{self._java_pid}/task").glob("*/stat")]
        except (FileNotFoundError, ProcessLookupError):  # a thread has just ended
            return not self.is_running
        return all(stat.rpartition(")")[2].split()[0] in "TZX" for stat in stats)

    def _release(self) -> None:
        """Wait for the end of a process that is ending, and close its pipes."""
        if self._watchdog is not None:
            self._watchdog.wait()
            for pipe in (self._watchdog.stdin, self._watchdog.stdout):
                assert pipe is not None
                pipe.close()
            self._watchdog = None

    def _launch(self, node: Node) -> None:
        java, classpath = find_java(), kafka_classpath(self._version)
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="kafka-broker-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        data, config, log = self._folder / "data", self._folder / "server.properties", self._folder / "broker.log"
        arguments = [*self._jvm, "-XX:-UsePerfData", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        arguments += [_SHOWN, "-Dorg.slf4j.simpleLogger.showDateTime=true", "-cp", classpath]
        make = functools.partial(_run_storage_tool, java, arguments)
        template = cached(f"kafka-{self._version}-formatted", make)
        with _locked(self._folder) as lock, log.open("ab") as output:
            configuration = broker_configuration(data, node, sasl_plain=self._sasl_plain)
            config.touch(mode=0o600)  # it may hold passwords
            config.write_text(as_properties(configuration | self._properties), encoding="ascii")
            log_start = output.tell()
            try:
                if not (data / "meta.properties").exists():
                    _format(data, node, template)
                start = [java, f"-XX:SharedArchiveFile={template / _CLASSES}", *arguments, "kafka.Kafka", str(config)]
                self._spawn(start, output, lock)
                self._await_start(node, log, log_start)
            except BrokerError as error:
                self.kill()
                tail = log.read_bytes()[log_start:][-_LOG_TAIL_BYTES:].decode(errors="replace")
                raise BrokerError(f"{error}; the end of its log:\n{tail}") from None
            except BaseException:
                self.kill()
                raise
        self.internal_address = f"{HOST}:{node.internal}"

    def _spawn(self, command: list[str], output: IO[bytes], lock: IO[bytes]) -> None:
        watchdog = [sys.executable, "-I", "-S", str(Path(__file__).with_name("watchdog.py"))]
        scratch = str(self._folder) if self._is_temporary else ""
        self._watchdog = subprocess.Popen(  # noqa: S603
            [*watchdog, str(os.getpid()), scratch, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            pass_fds=[lock.fileno()],  # the folder is locked until the watchdog ends, which is after the broker
            process_group=0,  # Ctrl-C in a terminal is for the test run, not for its brokers
        )
        assert self._watchdog.stdout is not None
        first_line = self._watchdog.stdout.readline()
        if not first_line:
            raise BrokerError("The broker's process could not be started")
        self._java_pid = int(first_line)

    def _await_start(self, node: Node, log: Path, log_start: int) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while _STARTED not in log.read_bytes()[log_start:]:
            if not self.is_running:
                raise BrokerError(f"The broker on port {node.client} ended while it was starting")
            if time.monotonic() > deadline:
                raise BrokerError(f"The broker on port {node.client} did not start within {_START_TIMEOUT_S} s")
            time.sleep(0.05)


def _locked(folder: Path) -> IO[bytes]:
    """Lock a folder for one broker, until all processes that have the file have closed it."""
    lock = (folder / ".lock").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise BrokerError(
            f"The broker's folder {folder} is used by another broker; stop that one, or choose another log_dir"
        ) from None
    return lock


def _format(data: Path, node: Node, template: Path) -> None:
    """Make the folder of a node's data, as Kafka's storage tool makes it; the name of the cluster comes last."""
    data.mkdir(exist_ok=True)
    shutil.copy(template / _FEATURES, data)
    identity = {
        "version": "1",
        "cluster.id": node.cluster_id,
        "node.id": str(node.node_id),
        "directory.id": kafka_uuid(),
    }
    unfinished = data / "meta.properties.new"
    unfinished.write_text(as_properties(identity), encoding="ascii")
    unfinished.rename(data / "meta.properties")


def _run_storage_tool(java: str, arguments: list[str], scratch: Path) -> Path:
    """Make a template of formatted folders, and an archive of classes, with which the same Java starts sooner."""
    data, config = scratch / "data", scratch / "server.properties"
    (node,) = nodes(1, iter(range(1, 4)))
    config.write_text(as_properties(broker_configuration(data, node, sasl_plain={})), encoding="ascii")
    tool = [java, f"-XX:ArchiveClassesAtExit={data / _CLASSES}", *arguments, "kafka.tools.StorageTool", "format"]
    tool += ["--config", str(config), f"--cluster-id={node.cluster_id}"]
    done = subprocess.run(  # noqa: S603
        tool, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_START_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        tail = done.stdout[-_LOG_TAIL_BYTES:].decode(errors="replace")
        raise BrokerError(f"Kafka's storage tool failed, so no broker's folder can be formatted:\n{tail}")
    return data


def _await_answer(answer: Future[None], what: str) -> None:
    try:
        answer.result(_ADMIN_TIMEOUT_S)
    except TimeoutError:
        raise TimeoutError(
            f"The broker has not answered within {_ADMIN_TIMEOUT_S} s {what}; look into its log, or restart it"
        ) from None


def admin_client(address: str) -> AdminClient:
    """Return an admin client that logs nothing."""
    # One for each use: a client that is kept would log errors to standard error whenever the broker is down.
    return AdminClient({"bootstrap.servers": address, "log_level": 0})
