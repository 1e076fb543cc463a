"""Transactional ids: their names, and the pool of them on a machine (Flink: TransactionNamingStrategy.POOLING).

An id is `<prefix>.dk-<host>-<number>`. Each number is a file, and the process that has locked the file owns the id. The lock
ends with the process, so the number of ids stays bounded however many workers come and go. The file's content keeps the next
process away from an id if its transaction may still be decided, or its InitProducerId may still be on its way. Rules (see
`protocol`, rule 7):

1. Only the process that holds the lock uses the id. A file that was deleted under its lock is no lock.
2. An id with a transaction of generation G is used again only by a task of a later generation: then G's transaction is
   settled. Generations are compared only within one commit log.
3. An id is left alone for ten minutes if its InitProducerId was not answered: no request lives as long.
4. After a reboot, on another machine or in another container, and for another cluster, the ids are different: the files may
   be lost then, or copied.

So there are as many ids as transactions of one batch, each of which is a task on one cluster, and one more for each worker.
The next batch uses the same ones.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import socket
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.filesystems import make_private, own_folder

__all__ = ["TransactionalId", "TransactionalIdPool", "belongs_to", "transactional_id"]

IdState = Literal["free", "starting", "ready", "used"]

_log = logging.getLogger(__name__)

_NAME = re.compile(r"(?P<prefix>.*)\.dk-[0-9a-f]{12}-[0-9]+", re.DOTALL)
_UNANSWERED_S = 600.0
_NO_ROOM = errno.ENOSPC, errno.EDQUOT
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def transactional_id(prefix: str, host: str, number: int) -> str:
    """Return the name of the n-th id in a pool (Flink: TransactionalIdFactory).

    `host` are twelve hexadecimal digits, the same for all workers that share the pool, and different for each cluster.
    """
    return f"{prefix}.dk-{host}-{number}"


def belongs_to(prefix: str, name: str) -> bool:
    """Return whether a transactional id has this very prefix: `orders` does not own the ids of `orders-eu`.

    Names are read from the right, so that a prefix that looks like an id is not taken for another one.
    """
    match = _NAME.fullmatch(name)
    return match is not None and match["prefix"] == prefix


@dataclass
class TransactionalId:
    """A transactional id that this process holds.

    `file` is the descriptor of the locked file. The state is `free`, `starting` while InitProducerId is not answered, then
    `ready`, and `used` once a transaction began. Chain of claims and generation are those of the task that used it last.
    """

    name: str
    file: int
    state: IdState = "free"
    chain: str = ""
    generation: int = 0

    def write(self, state: IdState, chain: str, generation: int) -> None:
        """Write into the file what is about to happen, before it does."""
        self.state, self.chain, self.generation = state, chain, generation
        text = json.dumps({"state": state, "chain": chain, "generation": generation, "at": time.time()}).encode()
        with _writable("the file of a transactional id"):
            os.pwrite(self.file, text.ljust(200), 0)  # always the same length: never a mixture of two

    def is_free_for(self, chain: str, generation: int) -> bool:
        """Return whether a task of this generation may use it (rule 2)."""
        return self.state != "starting" and (
            self.state == "free" or self.chain != chain or self.generation < generation
        )

    def is_locked(self) -> bool:
        """Return whether the lock still counts: if its file was deleted, another process can make and lock a new one."""
        return os.fstat(self.file).st_nlink > 0

    def release(self) -> None:
        """Give the id back. From then on only its file says who may use it."""
        os.close(self.file)


class TransactionalIdPool:
    """The transactional ids of one prefix on one cluster."""

    def __init__(self, prefix: str, cluster: str) -> None:
        self._prefix, self._cluster = prefix, cluster
        self._open()

    def _open(self) -> None:
        """Find the folder of the ids. It is another one if somebody has deleted the folder of all of them."""
        folder, machine = _machine()
        boot = _BOOT_ID.read_text() if _BOOT_ID.exists() else ""
        place = "\0".join((machine, boot, socket.gethostname(), self._cluster))
        self._host = hashlib.sha256(place.encode()).hexdigest()[:12]
        owner = hashlib.sha256(f"{self._prefix}\0{self._cluster}".encode()).hexdigest()[:24]
        self._directory = folder / self._host / owner
        with _writable(f"the folder '{self._directory}'"):
            self._directory.mkdir(parents=True, exist_ok=True)
        self._generation = ("", 0)
        self._next = 0

    def take(self, chain: str, generation: int) -> TransactionalId:
        """Return the first id that is free for a transaction of this generation; it is `starting` already.

        Raises:
            ConfigurationError: If the folder for temporary files cannot lock files, or has no room.
        """
        if self._generation != (chain, generation):  # else what was not free before is not free now
            self._generation, self._next = (chain, generation), 0
        while True:
            number, self._next = self._next, self._next + 1
            if (file := self._lock(number)) is not None:
                found = _read(transactional_id(self._prefix, self._host, number), file)
                try:
                    if found.is_free_for(chain, generation):
                        found.write("starting", chain, generation)
                        return found
                except BaseException:
                    found.release()
                    self._next = number
                    raise
                found.release()

    def _lock(self, number: int) -> int | None:
        """Return the locked file of an id; None if another process holds it, or this one."""
        while True:
            path = self._directory / str(number)
            try:
                with _writable(f"the file '{path}'"):
                    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            except FileNotFoundError:  # the folder was deleted
                self._open()
                continue
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                return None
            except OSError as error:
                os.close(file)
                raise ConfigurationError(
                    f"The file '{path}' cannot be locked ({error.strerror}), so transactional ids cannot be shared out; set "
                    "TMPDIR for the executors to a folder on a local disk"
                ) from error
            if os.fstat(file).st_nlink > 0:
                return file
            os.close(file)  # deleted between the two calls


def _machine() -> tuple[Path, str]:
    """Return the folder of this user's ids on this machine, and the random name that was given to it."""
    folder = own_folder()
    try:
        make_private(folder)
        machine = folder / "machine"
        if not machine.exists():
            new = folder / uuid.uuid4().hex
            try:
                new.write_text(new.name)
                with suppress(FileExistsError):
                    os.link(new, machine)  # whole: an empty one would be the same on every machine
            finally:
                new.unlink(missing_ok=True)
        return folder, machine.read_text()
    except OSError as error:
        with _writable(f"the folder '{folder}'"):
            if error.errno in _NO_ROOM:
                raise
            own = Path(tempfile.mkdtemp(prefix="dynamic-kafka-"))
        _log.warning(
            "The folder '%s' cannot be used (%s), so this process has transactional ids of its own, which no other process "
            "uses again; remove the folder, or set TMPDIR to another one",
            folder,
            error.strerror or error,
        )
        return own, uuid.uuid4().hex


@contextmanager
def _writable(what: str) -> Iterator[None]:
    """Turn the error of a full disk into one that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise ConfigurationError(
            f"Transactional ids need a file each, and {what} in '{tempfile.gettempdir()}' cannot be written "
            f"({error.strerror}); free space there, or set TMPDIR for the executors to a folder with some"
        ) from error


def _read(name: str, file: int) -> TransactionalId:
    text = os.pread(file, 200, 0).strip()
    if not text:
        return TransactionalId(name, file)
    try:
        found = json.loads(text)
        unanswered = found["state"] == "starting" and time.time() - found["at"] < _UNANSWERED_S
        begun = found["state"] in ("used", "starting")
        state: IdState = "starting" if unanswered else "used" if begun else "free"
        return TransactionalId(name, file, state, found["chain"], found["generation"])
    except (ValueError, KeyError, TypeError):
        return TransactionalId(name, file, "starting")  # damaged: left alone
