"""One Apache Kafka broker as a child process: KRaft, broker and controller in one, a cluster of its own."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from dynamic_kafka.testing.helpers import wait_until
from dynamic_kafka.testing.jars import BrokerError, find_java, kafka_classpath

__all__ = ["BrokerError", "KafkaBroker"]

_HOST = "127.0.0.1"  # not localhost: some clients then try ::1 first, and complain
# Below the ports that systems give to outgoing connections: none of those can take a broker's while it is down.
_PORTS = range(20_000, 32_000)
_PORT_ATTEMPTS = 5
_START_TIMEOUT_S = 60
_STOP_TIMEOUT_S = 20
_ADMIN_TIMEOUT_S = 15
_LOG_TAIL_BYTES = 4000

# Java's start is most of a test broker's life: the quick compiler and the smallest collector.
_SMALL_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class KafkaBroker:
    """A Kafka cluster of one broker, in a child process that never outlives this one.

    Needs Java 17 or newer (`JAVA_HOME` or `PATH`), and Maven once, to fetch Kafka's jars. It is up in about 3 s.
    The child is killed with this process, also when that is killed by SIGKILL. Not for several threads at once.

    Its listeners are named CLIENT (`bootstrap_servers`), INTERNAL (the broker itself and this object; always in plain
    text) and CONTROLLER. So `properties` can change the clients' security without touching ports, for example to TLS:
    `{"listener.security.protocol.map": "CLIENT:SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "listener.name.client.ssl.keystore.location": ...}`. For SASL with passwords, `sasl_plain` is all it takes. With an
    authorizer, make `User:ANONYMOUS` a super user: that is who comes by INTERNAL.

    Args:
        port: Where clients connect; None takes a free one at the first start and then keeps it.
        properties: The broker's properties; they win over the defaults, which are small and quick.
        log_dir: A folder for data, configuration and the broker's log, kept when the broker is closed; a folder used
            before goes on with its data. None is a temporary one.
        heap: The JVM's heap, as in `1g`, for benchmarks; the JVM then also compiles fully. None is a small, quick JVM.
        sasl_plain: User to password; clients must then log in by SASL_PLAINTEXT with the mechanism PLAIN.

    Example:
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
    ) -> None:
        self._port = port
        self._properties = dict(properties or {})
        self._folder = log_dir
        self._is_temporary = log_dir is None
        self._jvm = (f"-Xms{heap}", f"-Xmx{heap}") if heap else _SMALL_JVM
        self._sasl_plain = dict(sasl_plain or {})
        self._internal = ""
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._java_pid = 0

    def __repr__(self) -> str:
        address = f"{_HOST}:{self._port}" if self._port else "no port yet"
        return f"KafkaBroker({address}, {'running' if self.is_running else 'not running'})"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect, as `host:port`; the same over restarts.

        Raises:
            BrokerError: If the broker has no port yet: it was made without one and never started.
        """
        if self._port is None:
            raise BrokerError("The broker has no port before its first start; call start(), or give it a port")
        return f"{_HOST}:{self._port}"

    @property
    def is_running(self) -> bool:
        """Whether the process is there, paused or not."""
        return self._watchdog is not None and self._watchdog.poll() is None

    def client_properties(self, user: str | None = None) -> dict[str, str]:
        """What a client needs to connect, by Java's property names.

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
                "sasl.jaas.config": _plain_login_module(login),
            }
        return properties

    def start(self) -> Self:
        """Start the broker and wait until it answers; nothing happens if it runs.

        Raises:
            BrokerError: If Java or Maven is missing, or if the broker does not answer within 60 s; with the end of its
                log.
        """
        if self.is_running:
            return self
        self._release()
        if self._port is not None and not _is_free(self._port):
            raise BrokerError(f"The broker's port {self._port} is in use; stop who has it, or choose another one")
        for attempts_left in reversed(range(_PORT_ATTEMPTS)):
            free = _free_ports()
            client, internal, controller = self._port or next(free), next(free), next(free)
            try:
                self._launch(client, internal, controller)
            except BrokerError as error:
                # Somebody else took one of the ports between our look and the broker's start.
                if attempts_left and "Address already in use" in str(error):
                    continue
                raise
            self._port = client
            break
        return self

    def stop(self) -> None:
        """Shut the broker down in order (SIGTERM; after 20 s SIGKILL). Its data stay; `start` goes on with them."""
        if not self.is_running:
            return
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a paused process handles no signal before
        assert self._watchdog is not None
        try:
            self._watchdog.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
        self._release()

    def kill(self) -> None:
        """Let the broker die at once (SIGKILL), as in a crash. Its data stay; `start` goes on with them."""
        self._signal(signal.SIGKILL)
        self._release()

    def restart(self, *, sasl_plain: Mapping[str, str] | None = None) -> None:
        """Stop it if it runs, and start it on the same port with the same data.

        Args:
            sasl_plain: The users and passwords from now on; None keeps them as they are.
        """
        self.stop()
        if sasl_plain is not None:
            self._sasl_plain = dict(sasl_plain)
        self.start()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): connections stay open, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop the broker for good, and remove its data if they are temporary."""
        if not self._is_temporary:
            self.stop()
            return
        self.kill()  # nobody will read what an orderly shutdown would save
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until each of its partitions has a leader.

        Args:
            name: The topic.
            partitions: How many partitions it has.
            config: The topic's configuration.

        Raises:
            confluent_kafka.KafkaException: If the broker refuses, as when the topic exists.
            TimeoutError: If it is not there within 15 s.
        """
        admin = self._admin()
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin.create_topics([new])[name].result(_ADMIN_TIMEOUT_S)

        def has_leaders() -> bool:
            topic = admin.list_topics(name, timeout=_ADMIN_TIMEOUT_S).topics[name]
            return len(topic.partitions) == partitions and all(p.leader >= 0 for p in topic.partitions.values())

        wait_until(has_leaders, _ADMIN_TIMEOUT_S, f"leaders of topic '{name}'")

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until the broker does not list it any more.

        Raises:
            confluent_kafka.KafkaException: If the broker refuses, as when there is no such topic.
            TimeoutError: If it is still listed after 15 s.
        """
        admin = self._admin()
        admin.delete_topics([name])[name].result(_ADMIN_TIMEOUT_S)
        wait_until(
            lambda: name not in admin.list_topics(timeout=_ADMIN_TIMEOUT_S).topics,
            _ADMIN_TIMEOUT_S,
            f"the end of topic '{name}'",
        )

    def _admin(self) -> AdminClient:
        # One for each use: a client that is kept would complain on standard error whenever the broker is down.
        return AdminClient({"bootstrap.servers": self._internal, "log_level": 0})

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running:
            os.kill(self._java_pid, number)

    def _release(self) -> None:
        """Wait for the end of a process that ends, and let go of it."""
        if self._watchdog is not None:
            self._watchdog.wait()
            for pipe in (self._watchdog.stdin, self._watchdog.stdout):
                assert pipe is not None
                pipe.close()
            self._watchdog = None

    def _launch(self, client: int, internal: int, controller: int) -> None:
        java, classpath = find_java(), kafka_classpath()
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="kafka-broker-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "server.properties"
        config.touch(mode=0o600)  # it may hold passwords
        config.write_text(_as_properties(self._configuration(client, internal, controller)), encoding="ascii")
        command = [java, *self._jvm, "-XX:-UsePerfData", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command += ["-Dorg.slf4j.simpleLogger.showDateTime=true", "-cp", classpath]
        log = self._folder / "broker.log"
        with log.open("ab") as output:
            log_start = output.tell()
            if not (self._folder / "data" / "meta.properties").exists():
                cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
                storage_tool = [*command, "kafka.tools.StorageTool", "format", "--config", str(config)]
                storage_tool.append(f"--cluster-id={cluster_id}")
                subprocess.run(storage_tool, stdout=output, stderr=output, timeout=_START_TIMEOUT_S, check=False)  # noqa: S603
            scratch = str(self._folder) if self._is_temporary else ""
            watchdog = [sys.executable, "-I", "-S", str(Path(__file__).with_name("watchdog.py"))]
            self._watchdog = subprocess.Popen(  # noqa: S603
                [*watchdog, str(os.getpid()), scratch, *command, "kafka.Kafka", str(config)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                process_group=0,  # Ctrl-C in a terminal is for the test run, not for its brokers
            )
        assert self._watchdog.stdout is not None
        self._java_pid = int(self._watchdog.stdout.readline() or 0)
        self._internal = f"{_HOST}:{internal}"
        try:
            self._await_answer(client)
        except BaseException as error:
            self.kill()
            if not isinstance(error, BrokerError):
                raise
            tail = log.read_bytes()[log_start:][-_LOG_TAIL_BYTES:].decode(errors="replace")
            raise BrokerError(f"{error}; the end of its log:\n{tail}") from None

    def _await_answer(self, client_port: int) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            if not self.is_running:
                raise BrokerError(f"The broker on port {client_port} ended while it was starting")
            try:
                socket.create_connection((_HOST, client_port), timeout=1).close()
                if self._admin().list_topics(timeout=2).brokers:
                    return
            except (OSError, KafkaException):
                pass  # not yet
            if time.monotonic() > deadline:
                raise BrokerError(f"The broker on port {client_port} did not answer within {_START_TIMEOUT_S} s")
            time.sleep(0.05)


def _free_ports() -> Iterator[int]:
    """Ports that nobody listens on, in random order."""
    return (port for port in random.sample(_PORTS, len(_PORTS)) if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As Kafka does: a port whose last connections are still winding down is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
        return True
