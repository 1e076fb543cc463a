"""A script that runs a command which cannot outlive the process that asked for it. Not for import.

Usage: `python watchdog.py ASKER_PID SCRATCH_DIR COMMAND...`. It prints the command's process id and waits for its end.
When the asking process ends, also by SIGKILL, the command is killed and SCRATCH_DIR is removed (empty means none).

PR_SET_PDEATHSIG on the command itself is not enough: it fires when the *thread* that started the command ends, and only
Linux has it. Here it only guards against the death of this process, and the main thread lives as long as the process.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.5


def main(asker_pid: int, scratch_dir: str, command: list[str]) -> int:
    """Run the command to its end and return its exit code, as a shell reports it."""
    child = subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509  # no thread runs yet
    )
    orphaned = threading.Event()
    threading.Thread(target=_watch, args=(asker_pid, child, orphaned), daemon=True).start()
    sys.stdout.write(f"{child.pid}\n")
    sys.stdout.flush()
    code = child.wait()
    if orphaned.is_set() and scratch_dir:
        shutil.rmtree(scratch_dir, ignore_errors=True)
    return code if code >= 0 else 128 - code


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _watch(asker_pid: int, child: subprocess.Popen[bytes], orphaned: threading.Event) -> None:
    # Nothing is ever written to our standard input: it becomes readable when the asking process has ended. If that one
    # has forked, a child may still hold the other end, so the parent's id is checked too.
    while os.getppid() == asker_pid:
        if select.select([sys.stdin], [], [], _POLL_S)[0]:
            break
    orphaned.set()
    child.kill()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
