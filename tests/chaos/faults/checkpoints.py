"""Faults of what the query remembers: checkpoints copied back, and a commit log that is gone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.declared import fault, stops
from tests.chaos.world import World


def _put_back(world: World, _: str) -> dict[str, str]:
    """Put the newest checkpoint back, which the error asks for."""
    _replace(world, world.backup("newest"))
    return {}


REWOUND = stops("CheckpointError", _put_back, "goes on with the checkpoint that fits, which the campaign has kept")


def _replace(world: World, copy: Path) -> None:
    shutil.rmtree(world.checkpoint)
    shutil.copytree(copy, world.checkpoint)


@fault(REWOUND, cheap=True)
def checkpoint_copied_back(world: World) -> Iterator[float]:
    """The query is stopped, some batches later stopped again, and gets the checkpoint of the first stop."""
    world.query.stop()
    copy = world.copy_checkpoint("backup")
    world.start()
    world.settle()
    yield 5
    world.query.stop()
    world.copy_checkpoint("newest")
    _replace(world, copy)
    world.start()
    yield 5


@fault(REWOUND)
def checkpoint_one_batch_behind(world: World) -> Iterator[float]:
    """The files of the last batch are missing in the checkpoint, as after a power cut, and more rows have come."""
    with world.feeder.quiet(*world.feeder.targets):
        world.settle()
        yield 2
        world.query.stop()
    world.copy_checkpoint("newest")
    for kind in ("offsets", "commits"):
        files = sorted((p for p in (world.checkpoint / kind).iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
        files[-1].unlink()
        (world.checkpoint / kind / f".{files[-1].name}.crc").unlink(missing_ok=True)
    world.start()
    yield 5


def _new_log(world: World, error: str) -> dict[str, str]:
    """Return what the error names: first that the log is lost, and then the batch that the new one does not know."""
    for word, default in (("sink.lost-clusters", world.first), ("sink.accept-gaps", "true")):
        if word in error:
            named = re.search(rf"{re.escape(word)}=([\w-]+)", error)
            return {word: named[1] if named else default}
    return {}


@fault(
    stops(
        "(TransactionError|CheckpointError)",
        _new_log,
        "one start with `sink.lost-clusters` and one with `sink.accept-gaps`, as nothing was in the middle",
    )
)
def commit_log_deleted(world: World) -> Iterator[float]:
    """The topic of the commit log is deleted while the query is stopped."""
    world.settle()
    world.query.stop()
    world.clusters[world.first].delete_topic(world.log_topic)
    world.start()
    yield 5
