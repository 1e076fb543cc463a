"""Every order of events within larger bounds than those of the tests, for an hour: `python -m tests.model`.

Three batches and two drivers, with each kind of fault; the last of them takes 3 GB of memory. Ends with the violation, if
there is one.
"""

from __future__ import annotations

import resource
import time
from dataclasses import asdict

from tests.model.explorer import Limits, explore

BOUNDS = (
    Limits(batches=3, drivers=2, queries=2),
    Limits(batches=3, drivers=2, timeouts=1, late_timeouts=1),
    Limits(batches=3, drivers=2, late_tasks=1),
    Limits(batches=3, drivers=2, faults=1),
    Limits(batches=3, drivers=2, copies=1),
    Limits(batches=3, drivers=2, copies=1, named=True),
    Limits(batches=2, drivers=2, late_timeouts=2, epoch_steps=(1, 2), fences=True, copies=1),
    Limits(batches=2, drivers=2, two_steps=True, trims=1),
    Limits(batches=1, drivers=3, late_timeouts=2),
)


def main() -> None:
    """Explore all of them, one after the other."""
    for limits in BOUNDS:
        began = time.monotonic()
        states = explore(limits)
        bounds = ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in asdict(limits).items() if number)
        most_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"{bounds}: {states:,} states in {time.monotonic() - began:.0f} s, {most_mib} MiB", flush=True)


if __name__ == "__main__":
    main()
