"""Transactional ids on a machine: numbered slots, each of which belongs to one worker process at a time.

A slot is a locked file. The lock goes with the process, so the number of ids stays bounded however many workers come and go;
what the file says keeps the next process away from an id whose transaction may still be decided, or whose InitProducerId
may still be on its way. Rules (see `protocol`, rule 7):

1. Only the process that holds the lock uses the id.
2. An id with a transaction of generation G is used again only by a task of a later generation: then G's is settled. That a
   file says so counts for the same chain of claims only; in another log nothing of it can be decided.
3. An id whose InitProducerId was not answered is left alone for ten minutes: no request lives as long.
4. After a reboot, and on another machine, ids are other ones: files may be lost then.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dynamic_kafka.sink.ids import transactional_id

__all__ = ["Slot", "Slots"]

SlotState = Literal["free", "starting", "ready", "used"]

_UNANSWERED_S = 600.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass
class Slot:
    """A transactional id that this process holds.

    Args:
        name: The id.
        file: The locked file.
        state: `free`, `starting` while InitProducerId is not answered, then `ready`, and `used` once a transaction began.
        chain: Of the task that used it last.
        generation: Likewise.
    """

    name: str
    file: int
    state: SlotState = "free"
    chain: str = ""
    generation: int = 0

    def write(self, state: SlotState, chain: str, generation: int) -> None:
        """Say in the file what is about to happen, before it does."""
        self.state, self.chain, self.generation = state, chain, generation
        text = json.dumps({"state": state, "chain": chain, "generation": generation, "at": time.time()}).encode()
        os.pwrite(self.file, text.ljust(200), 0)  # always the same length: never a mixture of two

    def is_free_for(self, chain: str, generation: int) -> bool:
        """Rule 2."""
        return self.state != "starting" and (
            self.state == "free" or self.chain != chain or self.generation < generation
        )


@dataclass
class Slots:
    """The slots of one prefix on one cluster.

    Args:
        prefix: Of the transactional ids.
        cluster: The cluster's name.
    """

    prefix: str
    cluster: str
    held: list[Slot] = field(default_factory=list)

    def __post_init__(self) -> None:
        directory = Path(tempfile.gettempdir()) / f"dynamic-kafka-{os.getuid()}"
        boot = _BOOT_ID.read_text() if _BOOT_ID.exists() else ""
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
            machine = directory / "machine"
            if not machine.exists():
                new = directory / uuid.uuid4().hex
                new.write_text(new.name)
                with suppress(FileExistsError):
                    os.link(new, machine)  # whole: nobody may read an empty one, which would be the same everywhere
                new.unlink()
            known = machine.read_text()
        except OSError:  # no place for files: ids of this process alone
            directory, known = Path(tempfile.mkdtemp(prefix="dynamic-kafka-")), uuid.uuid4().hex
        place = hashlib.sha256(f"{known}/{boot}".encode()).hexdigest()
        self._host = place[:12]
        whose = hashlib.sha256(f"{self.prefix}\0{self.cluster}".encode()).hexdigest()[:24]
        self._directory = directory / self._host / whose
        self._directory.mkdir(parents=True, exist_ok=True)

    def take(self, chain: str, generation: int) -> Slot:
        """A slot for a transaction of this generation; already `starting`."""
        slot = next((s for s in self.held if s.is_free_for(chain, generation)), None) or self._lock(chain, generation)
        slot.write("starting", chain, generation)
        return slot

    def drop(self, slot: Slot) -> None:
        """Let go of a slot, as its file describes it."""
        self.held.remove(slot)
        os.close(slot.file)

    def _lock(self, chain: str, generation: int) -> Slot:
        number = 0
        while True:
            file = os.open(self._directory / str(number), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # another process has it, or this one
                os.close(file)
            else:
                slot = _read(transactional_id(self.prefix, self._host, number), file)
                if slot.is_free_for(chain, generation):
                    self.held.append(slot)
                    return slot
                os.close(file)
            number += 1


def _read(name: str, file: int) -> Slot:
    text = os.pread(file, 200, 0).strip()
    if not text:
        return Slot(name, file)
    try:
        found = json.loads(text)
        unanswered = found["state"] == "starting" and time.time() - found["at"] < _UNANSWERED_S
        begun = found["state"] in ("used", "starting")
        state: SlotState = "starting" if unanswered else "used" if begun else "free"
        return Slot(name, file, state, found["chain"], found["generation"])
    except (ValueError, KeyError, TypeError):
        return Slot(name, file, "starting")  # damaged: left alone
