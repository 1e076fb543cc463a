"""Clients that are kept: polled by a thread until they are used again, and never kept for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.kafka import pool as module
from dynamic_kafka.kafka.clients import BackgroundErrors, ClientSettings, ClusterClients, kept_clients, pool_key
from dynamic_kafka.kafka.pool import ClientPool, start_polling, stop_polling
from dynamic_kafka.testing import wait_until


class Client:
    """Counts how often it is polled."""

    def __init__(self, *, usable: bool = True) -> None:
        self.polled = self.closed = 0
        self.usable = usable

    def poll_idle(self) -> bool:
        """As of clients."""
        self.polled += 1
        return self.usable

    def close(self) -> None:
        """As of clients."""
        self.closed += 1


class Failing(Client):
    """Raises whenever it is polled."""

    def poll_idle(self) -> bool:
        """As of clients."""
        super().poll_idle()
        raise RuntimeError("broken")


class Clock:
    """A clock that goes when it is told."""

    now_s = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The thread polls often."""
    monkeypatch.setattr(module, "_POLL_INTERVAL_S", 0.001)
    pools = list(module._pools)
    yield
    assert not any(isinstance(client, Client) for client in module._polled.values())
    module._pools[:] = pools


# --- clients with an owner ----------------------------------------------------------------------------------------------


def test_until_it_is_taken_back() -> None:
    """Again and again, and not once more after that."""
    client, other = Client(), Client()
    start_polling(client)
    start_polling(other)
    wait_until(lambda: client.polled > 3, 20, "being polled")
    stop_polling(client)
    before, others = client.polled, other.polled
    wait_until(lambda: other.polled > others + 3, 20, "the other being polled")
    assert client.polled == before
    stop_polling(other)
    stop_polling(other)


def test_it_is_not_taken_back_in_the_middle() -> None:
    """`stop_polling` waits for a call that has begun: two threads never use a client at once."""
    entered, left, taken = threading.Event(), threading.Event(), threading.Event()

    class Slow(Client):
        def poll_idle(self) -> bool:
            entered.set()
            assert left.wait(20)
            return True

    client = Slow()
    start_polling(client)
    assert entered.wait(20)

    def take() -> None:
        stop_polling(client)
        taken.set()

    thread = threading.Thread(target=take)
    thread.start()
    assert not taken.wait(0.1)
    left.set()
    thread.join()
    assert taken.is_set()


def test_one_that_fails_does_not_end_it() -> None:
    """The others are polled on, and itself as well: its owner will meet the failure."""
    failing, other = Failing(), Client()
    start_polling(failing)
    start_polling(other)
    wait_until(lambda: failing.polled > 2 and other.polled > 2, 20, "both being polled")
    stop_polling(failing)
    stop_polling(other)
    assert failing.closed == 0


# --- pools --------------------------------------------------------------------------------------------------------------


def test_a_client_is_used_again_by_one_user_at_a_time() -> None:
    """The same key gets the same client, another key or a second user does not."""
    pool = ClientPool[Client]()
    with pool.lease("a", Client) as first, pool.lease("a", Client) as second, pool.lease("b", Client) as third:
        assert len({id(first), id(second), id(third)}) == 3
        assert len(pool) == 0
    assert len(pool) == 3
    with pool.lease("b", Client) as again:
        assert again is third
    assert {pool.take("a"), pool.take("a")} == {first, second}
    assert pool.take("a") is None
    assert "a" not in pool
    assert "b" in pool
    assert first.closed == second.closed == third.closed == 0


def test_a_client_is_polled_while_it_is_kept_only() -> None:
    """Its user polls it as it needs."""
    pool = ClientPool[Client]()
    kept, used = Client(), Client()
    pool.put("a", used)
    pool.put("b", kept)
    wait_until(lambda: used.polled > 3, 20, "being polled")
    assert pool.take("a") is used
    before, others = used.polled, kept.polled
    wait_until(lambda: kept.polled > others + 3, 20, "the other being polled")
    assert used.polled == before


def test_a_block_that_fails_closes_its_client() -> None:
    """Whatever it was that failed, also a generator that nobody reads to its end."""
    pool = ClientPool[Client]()
    clients: list[Client] = []

    def reading() -> Iterator[None]:
        with pool.lease("a", Client) as client:
            clients.append(client)
            yield

    def failing(error: type[BaseException]) -> None:
        with pool.lease("a", Client) as client:
            clients.append(client)
            raise error

    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error):
            failing(error)
    generator = reading()
    next(generator)
    generator.close()  # type: ignore[attr-defined]
    assert [client.closed for client in clients] == [1, 1, 1]
    assert len(pool) == 0


def test_the_one_unused_for_longest_goes() -> None:
    """If there are more than the capacity, whatever their keys."""
    pool = ClientPool[Client](capacity=2)
    first, second, third = Client(), Client(), Client()
    pool.put("a", first)
    pool.put("a", second)
    with pool.lease("a", Client) as used:
        assert used is second
    pool.put("b", third)
    assert (first.closed, second.closed, third.closed) == (1, 0, 0)
    assert len(pool) == 2


def test_as_many_as_were_leased_at_once_are_kept() -> None:
    """Twice: a task that reads 100 clusters would log in to most of them anew in each batch, however few may be kept."""
    pool, made = ClientPool[Client](capacity=2), list[Client]()

    def make() -> Client:
        made.append(Client())
        return made[-1]

    for _ in range(3):
        with ExitStack() as leased:
            for key in range(20):
                leased.enter_context(pool.lease(key, make))
    assert len(made) == len(pool) == 20


def test_one_that_takes_long_keeps_nobody_else_waiting() -> None:
    """Such as one that asks a token service which hangs: clients of other clusters are taken and given back meanwhile."""
    begun, end = threading.Event(), threading.Event()

    class Slow(Client):
        def poll_idle(self) -> bool:
            begun.set()
            return end.wait(20)

    slow, fast = ClientPool[Client](), ClientPool[Client]()
    slow.put("k", Slow())
    fast.put("k", Client())
    assert begun.wait(20)
    with fast.lease("k", Client):
        assert not end.is_set()
    end.set()
    assert isinstance(slow.take("k"), Slow)


def test_five_minutes_without_use() -> None:
    """A kept client is closed by the thread; each use begins the time anew."""
    clock = Clock()
    pool = ClientPool[Client](clock=clock)
    unused, used = Client(), Client()
    pool.put("unused", unused)
    pool.put("used", used)
    clock.now_s = 299
    with pool.lease("used", Client) as client:
        assert client is used
    polled = unused.polled
    wait_until(lambda: unused.polled > polled + 3, 20, "being polled")
    assert (unused.closed, used.closed) == (0, 0)
    clock.now_s = 300
    wait_until(lambda: unused.closed, 20, "the end of the one that is not used")
    assert used.closed == 0
    clock.now_s = 599
    wait_until(lambda: used.closed, 20, "the end of the other")
    assert len(pool) == 0
    assert (unused.closed, used.closed) == (1, 1)


def test_a_client_that_is_too_old_is_not_taken() -> None:
    """Also if the thread has not come to it yet."""
    clock = Clock()
    pool = ClientPool[Client](idle_limit_s=10, clock=clock)
    module._pools.remove(pool)  # from the thread's eyes
    old = Client()
    pool.put("a", old)
    clock.now_s = 10
    assert pool.take("a") is None
    assert old.closed == 1


@pytest.mark.parametrize("client", [Client(usable=False), Failing()])
def test_one_that_has_failed_is_closed_at_once(client: Client) -> None:
    """By the thread: a refused login must not be repeated for five minutes."""
    pool = ClientPool[Client]()
    other = Client()
    pool.put("other", other)
    pool.put("a", client)
    wait_until(lambda: client.closed, 20, "its end")
    wait_until(lambda: other.polled > 3, 20, "being polled")
    assert (client.closed, other.closed) == (1, 0)


def test_one_that_has_failed_meanwhile_is_not_taken() -> None:
    """It is polled once more before it is handed out."""
    pool = ClientPool[Client]()
    module._pools.remove(pool)  # from the thread's eyes
    failed, good = Client(usable=False), Client()
    pool.put("a", good)
    pool.put("a", failed)
    assert pool.take("a") is good
    assert failed.closed == 1


def test_a_shared_client_stays_in_the_pool() -> None:
    """All users have the same one at once; each use begins the time anew."""
    clock = Clock()
    pool = ClientPool[Client](clock=clock)
    client = pool.share("a", Client)
    clock.now_s = 299
    assert pool.share("a", Client) is client
    clock.now_s = 598
    assert pool.share("a", Client) is client
    assert len(pool) == 1
    clock.now_s = 898
    assert pool.share("a", Client) is not client
    wait_until(lambda: client.closed, 20, "the end of the first one")


def test_closing_some() -> None:
    """Those that are meant, and all of them by default; one that cannot be closed does not keep the others."""

    class Stuck(Client):
        def close(self) -> None:
            super().close()
            raise RuntimeError("stuck")

    pool = ClientPool[Client]()
    clients = [Stuck(), Client(), Client()]
    for client in clients:
        pool.put("a", client)
    pool.close(lambda client: client is clients[1])
    assert [client.closed for client in clients] == [0, 1, 0]
    pool.close()
    assert [client.closed for client in clients] == [1, 1, 1]
    assert len(pool) == 0


SCRIPT = """
    import os, sys, time
    from dynamic_kafka.kafka import pool as module
    from dynamic_kafka.kafka.pool import ClientPool, start_polling

    module._POLL_INTERVAL_S = 0.001

    class Client:
        def __init__(self, name):
            self.name, self.polls = name, 0

        def poll_idle(self):
            self.polls += 1
            return True

        def close(self):
            print(f"{self.name} closed by {'parent' if os.getpid() == parent else 'child'}", flush=True)

        def __del__(self):
            print(f"{self.name} dropped by {'parent' if os.getpid() == parent else 'child'}", flush=True)

    parent = os.getpid()
    pool = ClientPool()
    pool.put("a", Client("first"))
    owned = Client("owned")
    start_polling(owned)
"""


def run(script: str) -> list[str]:
    """Run it after SCRIPT, and return what it prints."""
    code = textwrap.dedent(SCRIPT) + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def test_the_end_of_the_process_closes_what_is_kept() -> None:
    """Not the clients that somebody owns."""
    assert run("")[0] == "first closed by parent"


def test_a_forked_process_leaves_its_parents_clients_alone() -> None:
    """It neither uses nor closes nor drops them; its own pool is empty, works, and has a thread."""
    said = run("""
        child = os.fork()
        if child == 0:
            del owned
            assert pool.take("a") is None
            assert len(pool) == 0
            own = Client("second")
            pool.put("a", own)
            deadline = time.monotonic() + 20
            while own.polls < 3:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            assert pool.take("a") is own
            pool.put("a", own)
            sys.exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        print("child ended")
    """)
    by_child, by_parent = said[: said.index("child ended")], said[said.index("child ended") + 1 :]
    assert "second closed by child" in by_child
    assert not any(line.startswith(("first", "owned")) for line in by_child)
    assert by_parent[0] == "first closed by parent"


def test_a_fork_while_a_client_is_polled() -> None:
    """The child does not wait for a lock that a thread of its parent holds."""
    said = run("""
        class Slow(Client):
            def poll_idle(self):
                self.polls += 1
                time.sleep(1)
                return True

        slow = Slow("slow")
        pool.put("slow", slow)
        while not slow.polls:
            time.sleep(0.001)
        child = os.fork()
        if child == 0:
            began = time.monotonic()
            pool.put("a", Client("second"))
            print(time.monotonic() - began < 0.5, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    """)
    assert said[0] == "True"


# --- keys and errors ----------------------------------------------------------------------------------------------------


def test_a_changed_secret_is_another_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """References are looked up each time; purpose, cluster, properties and what else is given make a difference, too."""
    secret = tmp_path / "password"
    properties = {"sasl.password": f"${{file:{secret}}}", "sasl.username": "${env:KAFKA_USER}"}
    monkeypatch.setenv("KAFKA_USER", "me")
    secret.write_text("old")
    first = pool_key("read", "east", properties, "group")
    assert pool_key("read", "east", dict(reversed(properties.items())), "group") == first
    others = [
        pool_key("write", "east", properties, "group"),
        pool_key("read", "west", properties, "group"),
        pool_key("read", "east", {**properties, "client.id": "x"}, "group"),
        pool_key("read", "east", properties, "other"),
        pool_key("read", "east", properties),
    ]
    secret.write_text("new")
    others.append(pool_key("read", "east", properties, "group"))
    monkeypatch.setenv("KAFKA_USER", "you")
    others.append(pool_key("read", "east", properties, "group"))
    assert len({first, *others}) == 8
    secret.unlink()
    with pytest.raises(ConfigurationError, match=r"sasl\.password"):
        pool_key("read", "east", properties, "group")


def test_a_key_store_replaced_in_place_is_another_key(tmp_path: Path) -> None:
    """Also if a link is moved, as mounted secrets are replaced: the file's contents are part of the clients."""
    for number in (1, 2):
        (tmp_path / f"v{number}").mkdir()
        (tmp_path / f"v{number}" / "ca.pem").write_text(f"certificate {number}")
    mounted = tmp_path / "mounted"
    mounted.symlink_to(tmp_path / "v1")
    properties = {"ssl.truststore.location": str(mounted / "ca.pem")}
    keys = {pool_key("read", "east", properties)}
    assert pool_key("read", "east", properties) in keys
    mounted.unlink()
    mounted.symlink_to(tmp_path / "v2")
    keys.add(pool_key("read", "east", properties))
    (tmp_path / "v2" / "ca.pem").write_text("in place")
    keys.add(pool_key("read", "east", properties))
    assert len(keys) == 3


def test_a_task_waits_for_a_secret_that_is_missing_for_a_moment(tmp_path: Path) -> None:
    """It is about to be replaced. Where Spark does not repeat tasks, an error would end the query."""
    secret = tmp_path / "password"
    properties = {"sasl.password": f"${{file:{secret}}}"}
    writer = threading.Timer(0.3, lambda: secret.write_text("new"))
    writer.start()
    with kept_clients("test", "east", properties) as clients:
        assert not clients.is_outdated()
    writer.join()


def test_clients_are_outdated_once_a_secret_is_replaced(tmp_path: Path) -> None:
    """A file that is missing for a moment is no new secret yet."""
    secret = tmp_path / "password"
    secret.write_text("old")
    clients = ClusterClients({"sasl.password": f"${{file:{secret}}}"})
    assert not clients.is_outdated()
    clients._config("admin", ClientSettings())
    assert not clients.is_outdated()
    secret.unlink()
    assert not clients.is_outdated()
    assert not clients.renew_if_outdated()
    secret.write_text("new")
    assert clients.is_outdated()
    assert clients.renew_if_outdated()
    clients._config("admin", ClientSettings())
    assert not clients.is_outdated()


def test_background_errors() -> None:
    """The last one counts, but that no broker is left does not hide why."""
    errors = BackgroundErrors()
    for code, text, last in (
        (KafkaError._ALL_BROKERS_DOWN, "all down", "all down"),
        (KafkaError._TRANSPORT, "refused", "refused"),
        (KafkaError._ALL_BROKERS_DOWN, "all down", "refused"),
    ):
        errors.note(KafkaError(code, text))
        assert (errors.last, errors.authentication_failed) == (last, False)
    errors.note(KafkaError(KafkaError._SSL, "certificate verify failed"))
    assert (errors.authentication_failed, errors.tls_failed, errors.verdict) == (True, True, "fails the TLS handshake")
    errors.note(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    errors.note(KafkaError(KafkaError._ALL_BROKERS_DOWN, "all down"))
    assert (errors.last, errors.authentication_failed) == ("wrong password", True)
    assert (errors.tls_failed, errors.verdict) == (False, "refuses the login")
    errors.note(KafkaError(KafkaError._TRANSPORT, "refused"))
    assert (errors.last, errors.authentication_failed) == ("refused", True)
    errors.clear()
    errors.note(KafkaError(KafkaError._ALL_BROKERS_DOWN, "all down"))
    assert (errors.last, errors.authentication_failed) == ("all down", False)


def test_librdkafkas_log_is_for_debugging() -> None:
    """Its lines are debug lines in every process that makes a client."""
    code = """
        import logging, sys
        logging.basicConfig(level=logging.{level}, stream=sys.stdout, format="%(levelname)s %(message)s")
        import dynamic_kafka.kafka.clients
        logging.getLogger("dynamic_kafka.librdkafka").error("broker down")
    """
    for level, said in (("INFO", ""), ("DEBUG", "DEBUG broker down\n")):
        script = textwrap.dedent(code.format(level=level))
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ
        )
        assert done.stdout == said


def test_a_dead_connection_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks waits 10 s for an answer, who transfers records 30 s like Java's clients. The user's value wins."""
    made: dict[str, str] = {}

    def note(role: str) -> Callable[[dict[str, str]], None]:
        return lambda config: made.update({role: config["socket.timeout.ms"]})

    for role, name in (("consumer", "Consumer"), ("admin", "AdminClient"), ("producer", "Producer")):
        monkeypatch.setattr(f"dynamic_kafka.kafka.clients.{name}", note(role))
    for properties, expected in (
        ({}, {"consumer": "30000", "admin": "10000", "producer": "30000"}),
        ({"socket.timeout.ms": "7000"}, dict.fromkeys(("consumer", "admin", "producer"), "7000")),
    ):
        clients = ClusterClients({"bootstrap.servers": "127.0.0.1:1", **properties})
        for role in expected:
            getattr(clients, role)
        assert made == expected
