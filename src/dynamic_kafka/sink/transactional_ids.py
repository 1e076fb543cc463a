"""Transactional ids: their names, and the pool of them on a machine (Flink: TransactionNamingStrategy.POOLING).

An id is `<prefix>.dk-<host>-<number>`. Each number is a file, and the process that has locked the file owns the id. The lock
ends with the process, so the number of ids stays bounded however many workers come and go. The file's content keeps the next
process away from an id if its transaction may still be decided, or its InitProducerId may still be on its way. Rules (see
`protocol`, rule 7):

1. Only the process that holds the lock uses the id.
2. An id with a transaction of generation G is used again only by a task of a later generation: then G's transaction is
   settled. Generations are compared only within one commit log.
3. An id is left alone for ten minutes if its InitProducerId was not answered: no request lives as long.
4. After a reboot, and on another machine, the ids are different: the files may be lost then.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import tempfile
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["TransactionalId", "TransactionalIdPool", "belongs_to", "transactional_id"]

IdState = Literal["free", "starting", "ready", "used"]

_NAME = re.compile(r"(?P<prefix>.*)\.dk-[0-9a-f]{12}-[0-9]+", re.DOTALL)
_UNANSWERED_S = 600.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def transactional_id(prefix: str, host: str, number: int) -> str:
    """Return the name of the n-th id in a pool (Flink: TransactionalIdFactory).

    `host` are twelve hexadecimal digits, the same for all workers that share the pool.
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

    Args:
        name: The id.
        file: The descriptor of the locked file.
        state: `free`, `starting` while InitProducerId is not answered, then `ready`, and `used` once a transaction began.
        chain: The chain of claims of the task that used it last.
        generation: The generation of that task.
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
        os.pwrite(self.file, text.ljust(200), 0)  # always the same length: never a mixture of two

    def is_free_for(self, chain: str, generation: int) -> bool:
        """Return whether a task of this generation may use it (rule 2)."""
        return self.state != "starting" and (
            self.state == "free" or self.chain != chain or self.generation < generation
        )

    def release(self) -> None:
        """Give the id back. From then on only its file says who may use it."""
        os.close(self.file)


class TransactionalIdPool:
    """The transactional ids of one prefix on one cluster."""

    def __init__(self, prefix: str, cluster: str) -> None:
        self._prefix = prefix
        directory = Path(tempfile.gettempdir()) / f"dynamic-kafka-{os.getuid()}"
        boot = _BOOT_ID.read_text() if _BOOT_ID.exists() else ""
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
            machine = directory / "machine"
            if not machine.exists():
                new = directory / uuid.uuid4().hex
                new.write_text(new.name)
                with suppress(FileExistsError):
                    os.link(new, machine)  # whole: an empty one would be the same on every machine
                new.unlink()
            known = machine.read_text()
        except OSError:  # no place for files: ids of this process alone
            directory, known = Path(tempfile.mkdtemp(prefix="dynamic-kafka-")), uuid.uuid4().hex
        place = hashlib.sha256(f"{known}/{boot}".encode()).hexdigest()
        self._host = place[:12]
        owner = hashlib.sha256(f"{prefix}\0{cluster}".encode()).hexdigest()[:24]
        self._directory = directory / self._host / owner
        self._directory.mkdir(parents=True, exist_ok=True)

    def take(self, chain: str, generation: int) -> TransactionalId:
        """Return the first id that is free for a transaction of this generation; it is `starting` already."""
        number = 0
        while True:
            file = os.open(self._directory / str(number), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # another process holds it, or this one
                os.close(file)
            else:
                found = _read(transactional_id(self._prefix, self._host, number), file)
                if found.is_free_for(chain, generation):
                    found.write("starting", chain, generation)
                    return found
                found.release()
            number += 1


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
