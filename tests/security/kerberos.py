"""A real KDC (MIT's), a broker that logs users in by Kerberos, and a librdkafka with libsasl2 for its clients.

scripts/get-kerberos brings all of it, once, into the cache folder of the brokers' jars.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from dynamic_kafka.testing import KafkaBroker, wait_until
from dynamic_kafka.testing.configuration import HOST, free_ports, is_free, nodes
from dynamic_kafka.testing.jars import cached
from tests.security.ways import Way

__all__ = ["Realm", "realm"]

_SCRIPT = Path(__file__).parents[2] / "scripts" / "get-kerberos"
_CANNOT_BE_FETCHED = 3
_KRB5_CONF = """
[libdefaults]
  default_realm = EXAMPLE.COM
  dns_lookup_kdc = false
  dns_canonicalize_hostname = false
  rdns = false
  plugin_base_dir = {libraries}/krb5/plugins
[realms]
  EXAMPLE.COM = {{
    kdc = {kdc}
  }}
"""
_KDC_CONF = """
[kdcdefaults]
  kdc_listen = {kdc}
  kdc_tcp_listen = {kdc}
[realms]
  EXAMPLE.COM = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
  }}
[dbmodules]
  db_module_dir = {libraries}/krb5/plugins/kdb
[logging]
  kdc = FILE:{folder}/kdc.log
"""


@dataclass(frozen=True)
class Realm:
    """A KDC with the users `alice` and `kafka`, and a broker; both run.

    Args:
        folder: The folder of the keytabs.
        broker: The broker; its own listener for clients is in plain text.
        address: Its listener for users with a ticket.
        environment: The variables of a process that logs in. Its ticket cache is empty.
    """

    folder: Path
    broker: KafkaBroker
    address: str
    environment: Mapping[str, str]

    def properties(self, way: Way) -> dict[str, str]:
        """What a client sets for a way."""
        given = {key: value.replace("{stores}", str(self.folder)) for key, value in way.properties.items()}
        return {"bootstrap.servers": self.address, **given}

    def run(self, *command: str) -> str:
        """What a command prints that has to succeed."""
        return _run(self.environment, *command)


@contextmanager
def realm(folder: Path) -> Iterator[Realm]:
    """Start it; `folder` is an empty one."""
    brought = cached(f"kerberos-{sysconfig.get_config_var('SOABI')}", _bring)
    libraries = next((brought / "usr" / "lib").glob("*/sasl2")).parent
    port = next(free_ports())
    words = {"kdc": f"{HOST}:{port}", "folder": folder, "libraries": libraries}
    for name, text in {"krb5.conf": _KRB5_CONF, "kdc.conf": _KDC_CONF}.items():
        (folder / name).write_text(text.format(**words))
    environment = {
        **os.environ,
        "PATH": f"{brought}/usr/bin:{brought}/usr/sbin:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": str(libraries),
        "SASL_PATH": str(libraries / "sasl2"),
        "PYTHONPATH": str(brought / "site"),
        "KRB5_CONFIG": str(folder / "krb5.conf"),
        "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
        "KRB5CCNAME": f"FILE:{folder}/tickets",
    }
    _run(environment, "kdb5_util", "create", "-s", "-P", "master-key")
    for user, principal in {"alice": "alice", "kafka": f"kafka/{HOST}"}.items():
        _run(environment, "kadmin.local", "addprinc", "-randkey", principal)
        _run(environment, "kadmin.local", "ktadd", "-k", f"{folder}/{user}.keytab", principal)
    with subprocess.Popen(["krb5kdc", "-n"], env=environment, stdout=subprocess.DEVNULL) as kdc:
        try:
            wait_until(lambda: not is_free(port), 20, "the KDC")
            with _broker(folder) as (broker, address):
                yield Realm(folder, broker, address, environment)
        finally:
            kdc.kill()


@contextmanager
def _broker(folder: Path) -> Iterator[tuple[KafkaBroker, str]]:
    """Start the broker; yield it and the address of its listener for users with a ticket."""
    ports = free_ports()
    node = nodes(1, ports)[0]
    address = f"{HOST}:{next(ports)}"
    own = {"CLIENT": node.client, "INTERNAL": node.internal, "CONTROLLER": node.controller}
    listeners = [f"{name}://{HOST}:{port}" for name, port in own.items()]
    protocols = [f"{name}:PLAINTEXT" for name in own]
    module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
    given = {
        "listeners": ",".join([*listeners, f"KERBEROS://{address}"]),
        "listener.security.protocol.map": ",".join([*protocols, "KERBEROS:SASL_PLAINTEXT"]),
        "listener.name.kerberos.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.kerberos.sasl.kerberos.service.name": "kafka",
        "listener.name.kerberos.gssapi.sasl.jaas.config": (
            f'{module} keyTab="{folder}/kafka.keytab" principal="kafka/{HOST}@EXAMPLE.COM";'
        ),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={folder}/krb5.conf")
        broker = KafkaBroker(node=node, properties=given, log_dir=folder / "data").start()
    with broker:
        yield broker, address


def _bring(scratch: Path) -> Path:
    made = scratch / "kerberos"
    made.mkdir()
    done = _done(os.environ, "sh", str(_SCRIPT), str(made), sys.executable)
    if done.returncode == _CANNOT_BE_FETCHED:
        pytest.skip(f"Kerberos cannot be brought to this machine: {done.stderr[-500:]}")
    assert done.returncode == 0, done.stderr[-3000:]
    return made


def _done(environment: Mapping[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900, check=False
    )


def _run(environment: Mapping[str, str], *command: str) -> str:
    done = _done(environment, *command)
    assert done.returncode == 0, f"{command[0]} failed: {done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout
