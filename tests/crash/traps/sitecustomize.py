"""Traps in the sink's processes: Python imports this at its start where PYTHONPATH names this folder.

`SINK_TRAPS` names a folder. A file `<point>` there arms a trap: the first process that comes to the point renames it to
`<point>.hit`, which then holds its process id, and waits until that is gone; whoever set the trap may kill, stop or look at
anything meanwhile. If the file said `kill`, the process kills itself at once instead.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_FOLDER = os.environ.get("SINK_TRAPS", "")
_LONGEST_S = 300.0
_Function = Callable[..., Any]


def _reach(point: str) -> None:
    armed, mine, hit = (Path(_FOLDER, f"{point}{end}") for end in ("", f".{os.getpid()}", ".hit"))
    try:
        armed.rename(mine)  # only one process gets it
    except FileNotFoundError:
        return
    kills = mine.read_text() == "kill"
    mine.write_text(str(os.getpid()))
    mine.rename(hit)
    if kills:
        os.kill(os.getpid(), signal.SIGKILL)
    deadline = time.monotonic() + _LONGEST_S
    while hit.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def _around(owner: Any, name: str, before: str = "", after: str = "") -> None:
    """Reach points before and after a function; `{status}` is that of a record for the commit log, or `pointer`."""
    function: _Function = getattr(owner, name)

    @functools.wraps(function)
    def around(*args: Any, **more: Any) -> Any:
        status = getattr(getattr(args[1], "state", None), "status", "pointer") if name == "append" else ""
        if before:
            _reach(before.format(status=status))
        result = function(*args, **more)
        if after:
            _reach(after.format(status=status))
        return result

    setattr(owner, name, around)


def _count_ends(committer: Any) -> None:
    """`end-1` is before the first cluster is asked to commit, `end-2` before the second one; `abort` before aborts."""
    end: _Function = committer._end
    client: _Function = committer._client

    @functools.wraps(end)
    def counting(self: Any, transactions: Any, *, commit: bool) -> None:
        if not commit:
            _reach("abort")
        self._ends = 0 if commit else None
        try:
            end(self, transactions, commit=commit)
        finally:
            self._ends = None

    @functools.wraps(client)
    def counted(self: Any, cluster: str) -> Any:
        if getattr(self, "_ends", None) is not None:
            self._ends += 1
            _reach(f"end-{self._ends}")
        return client(self, cluster)

    committer._end, committer._client = counting, counted


def _committer(module: Any) -> None:
    _around(module.Committer, "claim", "claim-before", "claim-after")
    _around(module.Committer, "commit", "commit-before", "commit-after")
    _count_ends(module.Committer)


TRAPS: dict[str, Callable[[Any], None]] = {
    "writer": lambda module: _around(module, "flush", "task-before-flush", "task-after-flush"),
    "transactional_producers": lambda module: _around(module.TransactionalProducers, "prepare", "", "task-prepared"),
    # InitProducerId comes next.
    "transactional_ids": lambda module: _around(module.TransactionalIdPool, "take", "", "task-slot-taken"),
    "log.commit_log": lambda module: _around(module.CommitLog, "append", "{status}-before", "{status}-after"),
    "committer": _committer,
}
"""By module of `dynamic_kafka.sink`, what sets its traps."""


class _Finder(MetaPathFinder):
    """Has modules of the sink fitted with traps as soon as they are imported."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """As `importlib` says."""
        name = fullname.removeprefix("dynamic_kafka.sink.")
        if name == fullname or name not in TRAPS:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def run_and_set(module: ModuleType) -> None:
            run(module)
            TRAPS[name](module)

        spec.loader.exec_module = run_and_set  # type: ignore[method-assign]
        return spec


sys.path[:] = [
    path for path in sys.path if not path.endswith("/pyspark.zip")
]  # as tests/spark/site/sitecustomize.py does
if _FOLDER:
    sys.meta_path.insert(0, _Finder())
