"""Faults of logins: passwords and certificates that are replaced, in time and late."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from tests.chaos.clusters import STORES
from tests.chaos.declared import GOES_ON, fault
from tests.chaos.world import World


def _rotate_password(world: World, late_s: float) -> Iterator[float]:
    secret = world.folder / "password"
    new = f"secret-{world.feeder.next}"
    world.b.brokers[0].restart(sasl_plain={"app": new})
    yield late_s
    secret.with_suffix(".new").write_text(new)
    secret.with_suffix(".new").rename(secret)


@fault(GOES_ON, cheap=True)
def password_rotated(world: World) -> Iterator[float]:
    """A cluster gets a new password; the file that the metadata refer to gets it two seconds later."""
    yield from _rotate_password(world, 2)


@fault(GOES_ON)
def password_rotated_late(world: World) -> Iterator[float]:
    """A cluster gets a new password; the file that the metadata refer to gets it 30 seconds later."""
    yield from _rotate_password(world, 30)


@fault(GOES_ON)
def certificate_rotated(world: World) -> Iterator[float]:
    """A cluster gets a new certificate; the trust store is replaced in place five seconds later."""
    trust = world.folder / "c.pem"
    new = "broker" if trust.read_bytes() == (STORES / "peer.pem").read_bytes() else "peer"
    shutil.copy(STORES / f"{new}.p12", world.folder / "c.p12")
    world.c.brokers[0].restart()
    yield 5
    copy = trust.with_suffix(".new")
    shutil.copy(STORES / f"{new}.pem", copy)
    copy.rename(trust)
