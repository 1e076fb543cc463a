"""The fault campaign: `make chaos ARGS="--minutes 5 --seed 7"`, or `python -m tests.chaos --only broker-killed`.

See docs/explanations/reliability.md, which a campaign writes. Ends with code 1 if a fault did not go as it says there.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from tests.chaos import faults as _faults  # noqa: F401  declares them
from tests.chaos import report
from tests.chaos.campaign import run_fault
from tests.chaos.declared import FAULTS, Fault, draw
from tests.chaos.report import Result
from tests.chaos.world import World


def main() -> int:
    """Run as long as the arguments say; the exit code."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="how long new faults are begun (default: 30)")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(10_000), help="of the order of faults"
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", choices=FAULTS, help="only this fault, once; repeatable"
    )
    parser.add_argument("--small", action="store_true", help="two single brokers, a local Spark, and cheap faults")
    parser.add_argument("--list", action="store_true", help="list all faults, and end")
    parser.add_argument("--fresh", action="store_true", help="forget the results of earlier campaigns")
    parser.add_argument(
        "--no-report",
        action="store_true",
        help="leave docs/explanations/reliability.md alone; results stay with the logs",
    )
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    if arguments.list:
        for fault in FAULTS.values():
            console.print(f"{fault.name:32} {fault.what}\n{'':32} Expected: {fault.outcome.words}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that Spark and the small disk end, too
    results = run(console, arguments)
    bad = [result for result in results if result.was_run and result.verdict != "ok"]
    ran = sum(result.was_run for result in results)
    console.print(f"{ran} faults, {len(bad)} not as expected", style="bold red" if bad else "bold green")
    return 1 if bad else 0


def run(console: Console, arguments: argparse.Namespace) -> list[Result]:
    """Run a campaign, and write its results after each fault."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    random.seed(arguments.seed)  # for what a fault chooses
    console.print(f"seed {arguments.seed}, logs in {folder}")
    chosen = [fault for fault in FAULTS.values() if fault.cheap or not arguments.small]
    order = iter([FAULTS[name] for name in arguments.only]) if arguments.only else draw(chosen, arguments.seed)
    results_file, page = report.RESULTS, report.REPORT
    if arguments.no_report:
        results_file, page = folder / "results.json", folder / "reliability.md"
    so_far = report.Results() if arguments.fresh else report.load(results_file)
    results: list[Result] = []
    began = time.monotonic()
    with World(folder, small=arguments.small, say=console.print) as world:
        console.print(f"the first rows are published after {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        for fault in order:
            if time.monotonic() - began > 60 * arguments.minutes:
                break
            results.append(replace(_one(console, world, fault), small=arguments.small))
            report.write(report.add(so_far, results, time.monotonic() - began), FAULTS, results_file, page)
    if not arguments.no_report and all(result.verdict == "ok" or not result.was_run for result in results):
        shutil.rmtree(folder, ignore_errors=True)
    return results


def _one(console: Console, world: World, fault: Fault) -> Result:
    began = time.monotonic()
    console.print(f"{fault.name}: {fault.what}", style="bold")

    def say(what: str) -> None:
        console.print(f"  {time.monotonic() - began:5.1f} s  {what}", markup=False)

    try:
        result = run_fault(world, fault, say)
    except Exception as error:  # noqa: BLE001  the campaign goes on
        console.print_exception()
        result = Result(
            fault.name, f"the campaign itself failed: {type(error).__name__}: {error}", rows=world.feeder.next
        )
        world.renew()
        world.wait_for_rows()
    style = "green" if result.verdict == "ok" else "yellow" if not result.was_run else "red"
    recovery = "" if result.recovery_s is None else f", recovered after {result.recovery_s} s"
    gone = f", {result.destroyed} rows destroyed" if result.destroyed else ""
    if result.verdict != "ok":
        for text in result.reports:
            say(f"reported: {text}")
    console.print(f"  {result.verdict}{recovery}{gone}; {world.feeder.next} rows so far", style=style)
    return result


if __name__ == "__main__":
    sys.exit(main())
