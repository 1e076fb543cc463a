"""The demo: a year of flights on clusters that are added and removed, read by one query that never restarts.

The flights that left New York City's three airports in 2013 are replayed to real Kafka brokers, one cluster for each
airport, while a Spark query aggregates their delays by carrier from the stream `flights`:

* It begins with the clusters of EWR and JFK.
* After a third of the year, LGA's cluster is started and added to the metadata file. LGA's earlier flights are written at
  once.
* After two thirds, EWR's topic moves to LGA's cluster. Some of EWR's producers still write to the old cluster for a while.
  It is drained, and switched off when the query no longer reads it.

At the end, every carrier's count and mean delay are compared with the values that pandas computes from the file, and every
flight must have been read exactly once. Run it with `python examples/flights/main.py`. It needs Java 17 or newer.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NoReturn

import pandas as pd
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from clusters import Clusters
from delays import Delays, read_flights, spark_session, start_query
from departures import AIRPORTS, load_departures
from display import Display
from replay import Replay
from verdict import judge

_JOIN_AT, _MOVE_AT = 0.33, 0.64  # shares of the year; EWR's last producer moves at departures.MOVED_AT
_LIMIT_S = 170
_CLEANING_LIMIT_S = 30
_CATCHING_UP_S = 30.0
_POLL_S = 0.1


def main() -> int:
    """Run the demo. Return 0 only if every flight was counted exactly once."""
    parser = argparse.ArgumentParser(description="Replay a year of flights on Kafka clusters that come and go.")
    parser.add_argument("--speed", type=float, default=5000, metavar="N", help="flights per second (default: 5000)")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N flights of the year")
    arguments = parser.parse_args()

    console = Console()
    log = Path(tempfile.mkstemp(prefix="flights-demo-", suffix=".log")[1])
    ok = stopped = False
    try:
        with _stderr_to(log):
            console.print(f"Starting two Kafka brokers and Spark. Their warnings go to {log}", soft_wrap=True)
            ok = _run(console, load_departures(arguments.limit), arguments.speed)
    except KeyboardInterrupt:
        stopped = True
        console.print("Stopped. All brokers and Spark have ended.")
    except Exception as error:  # noqa: BLE001  # one line for the user, the rest is in the log
        console.print(f"The demo failed: {error}", style="bold red", markup=False, highlight=False)
    if ok or stopped:
        log.unlink()
    else:
        console.print(f"The log of Spark and the Kafka clients is in {log}", soft_wrap=True)
    return 0 if ok else 1


def _run(console: Console, departures: pd.DataFrame, speed: float) -> bool:
    """Set everything up, run the story, compare, and clean up. Return whether all results are correct."""
    with ExitStack() as stack:
        stack.callback(signal.alarm, 0)
        try:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flights-demo-")))
            clusters = stack.enter_context(closing(Clusters(AIRPORTS, scratch / "streams.yaml")))
            with ThreadPoolExecutor(2) as pool:
                starting = [pool.submit(clusters.create, name, f"flights-{name}") for name in ("ewr", "jfk")]
                spark = stack.enter_context(spark_session(scratch))
                for started in starting:
                    started.result()
            clusters.describe({"ewr": ["flights-ewr"], "jfk": ["flights-jfk"]})
            _end_by_signals()
            delays = Delays()
            query = start_query(
                read_flights(spark, clusters.metadata_file, startingOffsets="earliest"), scratch / "checkpoint", delays
            )
            stack.callback(query.stop)
            replay = stack.enter_context(closing(Replay(departures, speed)))
            with Display(console, departures, replay, delays, query) as display:
                _story(clusters, replay, query, delays, display)
            took_s = replay.elapsed_s
            restarts = len({progress.runId for progress in query.recentProgress}) - 1
        finally:
            _limit_cleaning()
    verdict = judge(departures, replay.acknowledged, delays)
    console.print(*verdict.tables(), sep="\n")
    console.print(
        f"{replay.total:,} flights, {len(verdict.clusters)} clusters, {verdict.lost:,} lost, {verdict.twice:,} twice, "
        f"{restarts} restarts, {took_s:.0f} s",
        style="bold green" if verdict.ok and restarts == 0 else "bold red",
        highlight=False,
    )
    return verdict.ok and restarts == 0


def _story(clusters: Clusters, replay: Replay, query: StreamingQuery, delays: Delays, display: Display) -> None:
    """Change the clusters while the query runs."""

    def wait(condition: Callable[[], bool], limit_s: float = _LIMIT_S) -> None:
        deadline = time.monotonic() + limit_s
        while not condition() and time.monotonic() < deadline:
            if not query.isActive:
                raise RuntimeError(f"The query ended: {query.exception()}")
            replay.check()
            time.sleep(_POLL_S)

    def write(cluster: str, topic: str) -> None:
        replay.open(cluster, topic, clusters.bootstrap_servers(cluster))

    write("ewr", "flights-ewr")
    write("jfk", "flights-jfk")
    replay.start()

    wait(lambda: replay.share >= _JOIN_AT)
    display.say("starting LGA's cluster")
    clusters.create("lga", "flights-lga")
    clusters.describe({"ewr": ["flights-ewr"], "jfk": ["flights-jfk"], "lga": ["flights-lga"]})
    write("lga", "flights-lga")
    display.say("LGA's cluster is in the metadata file; its earlier flights are written now")

    wait(lambda: replay.share >= _MOVE_AT)
    clusters.create("lga", "flights-ewr")
    clusters.describe({"jfk": ["flights-jfk"], "lga": ["flights-ewr", "flights-lga"]})
    write("lga", "flights-ewr")
    display.say("EWR's topic has moved to LGA's cluster; some producers still write to the old cluster")
    wait(lambda: display.state("ewr") == "retained" and not replay.writes_to("ewr"))
    clusters.switch_off("ewr")
    display.say("EWR's cluster was drained and is switched off")

    wait(lambda: replay.finished)
    wait(lambda: delays.by_cluster().total() >= replay.total, _CATCHING_UP_S)
    query.processAllAvailable()  # a record that is read twice would arrive now


def _end_by_signals() -> None:
    """Make Ctrl-C, SIGTERM and the time limit raise in the main thread, in place of Spark's own handlers."""

    def too_late(*_: object) -> NoReturn:
        raise TimeoutError(f"it did not finish within {_LIMIT_S} s")

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(_LIMIT_S)


def _limit_cleaning() -> None:
    """Ignore signals during the cleaning up. If it hangs, the process is killed, and the brokers with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_CLEANING_LIMIT_S)


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Write standard error to a file, also that of child processes, because a warning would damage the live screen."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


if __name__ == "__main__":
    sys.exit(main())
