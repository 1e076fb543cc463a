"""A real PostgreSQL as a child process, in a temporary folder, with logical replication."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

from dynamic_kafka.testing import wait_until
from dynamic_kafka.testing.configuration import HOST, free_ports

__all__ = ["Postgres"]

_SUPERUSER = "postgres"
_DEADLINE_S = 60


class Postgres:
    """A server with one empty database, `database`. It is removed with its data at the end of the `with` block.

    PostgreSQL refuses to run as root. For root it runs as the user `postgres`, or as `nobody` if that user does not exist.

    Raises:
        RuntimeError: If PostgreSQL is not installed, or does not start. The message says what to do, or ends with the
            server's log.
    """

    database = "postgres"

    def __init__(self) -> None:
        self._bin = _find_bin()
        self._user = _unprivileged_user()
        self._folder = Path()
        self._server: subprocess.Popen[bytes] | None = None
        self.host = HOST
        self.port = 0

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="debezium-postgres-"))
        try:
            if self._user is not None:
                shutil.chown(self._folder, self._user)
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown does not wait for sessions
            try:
                self._server.wait(_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def execute(self, sql: str) -> str:
        """Run statements, each in a transaction of its own unless they begin one.

        Returns:
            What they print: a line for each row, values separated by `|`.

        Raises:
            RuntimeError: If a statement fails. The error has the server's message.
        """
        command = [str(self._bin / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        command += ["-h", HOST, "-p", str(self.port), "-U", _SUPERUSER, "-d", self.database]
        done = subprocess.run(command, input=sql, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"PostgreSQL refused a statement: {done.stderr.strip()}")
        return done.stdout.strip()

    def _start(self) -> None:
        data, log = self._folder / "data", self._folder / "server.log"
        as_user: dict[str, Any] = {}
        if self._user is not None:
            as_user = {"user": self._user, "group": pwd.getpwnam(self._user).pw_gid, "extra_groups": []}
        initdb = [str(self._bin / "initdb"), "-D", str(data), "-U", _SUPERUSER, "-A", "trust"]
        initdb += ["-E", "UTF8", "--locale=C", "--no-sync"]
        made = subprocess.run(
            initdb, cwd=self._folder, capture_output=True, text=True, timeout=_DEADLINE_S, check=False, **as_user
        )
        if made.returncode != 0:
            raise RuntimeError(f"initdb failed: {made.stderr.strip()}")
        self.port = next(free_ports())
        server = [str(self._bin / "postgres"), "-D", str(data), "-p", str(self.port), "-h", HOST, "-k", ""]
        for setting in ("wal_level=logical", "fsync=off", "timezone=UTC"):
            server += ["-c", setting]
        with log.open("wb") as output:
            self._server = subprocess.Popen(server, cwd=self._folder, stdout=output, stderr=output, **as_user)
        try:
            wait_until(self._answers, _DEADLINE_S, "PostgreSQL to answer")
        except (TimeoutError, RuntimeError) as error:
            raise RuntimeError(
                f"PostgreSQL does not start ({error}). The end of its log:\n{log.read_text()[-4000:]}"
            ) from None

    def _answers(self) -> bool:
        assert self._server is not None
        if self._server.poll() is not None:
            raise RuntimeError("the server ended")
        ready = [str(self._bin / "pg_isready"), "-q", "-h", HOST, "-p", str(self.port)]
        return subprocess.run(ready, timeout=_DEADLINE_S, check=False).returncode == 0


def _find_bin() -> Path:
    # Debian keeps the programs of each version in their own folder, which is not on PATH.
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("initdb")
    if found:
        return found[-1].parent
    if on_path is None:
        raise RuntimeError("PostgreSQL 10 or newer is needed. Install it with 'apt-get install postgresql' (Debian).")
    return Path(on_path).resolve().parent


def _unprivileged_user() -> str | None:
    if os.geteuid() != 0:
        return None
    users = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in users else "nobody"
