"""The demo: Prometheus watches a query, a Kafka cluster stops, an alert fires, and all is well again.

`make observe` runs it in less than two minutes. The address of the status page is printed at the beginning: open it and look
on. With `--keep` all keeps running until Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from examples.monitoring.prometheus import HOW_TO_INSTALL, Prometheus, find_prometheus
from examples.monitoring.shop import Shop
from rich.console import Console

_CALM_S = 12.0
_ALERT = "DynamicKafkaClusterUnreachable"
_LIMIT_S = 120.0


def main() -> int:
    """Run the demo. Return 0 if the alert fired and went, and each order became one invoice."""
    parser = argparse.ArgumentParser(description="Watch a query with Prometheus while a Kafka cluster stops.")
    parser.add_argument("--keep", action="store_true", help="go on until Ctrl-C, to look around")
    arguments = parser.parse_args()
    console = Console(highlight=False)
    if find_prometheus() is None:
        console.print(HOW_TO_INSTALL, markup=False)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    log = Path(tempfile.mkstemp(prefix="monitoring-demo-", suffix=".log")[1])
    os.dup2(os.open(log, os.O_WRONLY), 2)  # Spark's and librdkafka's warnings
    ok = False
    try:
        with tempfile.TemporaryDirectory(prefix="monitoring-demo-") as scratch:
            ok = _run(console, Path(scratch), keep=arguments.keep)
    except KeyboardInterrupt:
        console.print("Stopped. All has ended.")
        ok = True
    except Exception as error:  # noqa: BLE001  # one line for the user, the rest is in the log
        traceback.print_exc()
        first_line = str(error).partition("\n")[0]
        text = f"The demo failed: {first_line}. All of it is in {log}"
        console.print(text, style="bold red", markup=False, soft_wrap=True)
    if ok:
        log.unlink()
    return 0 if ok else 1


def _run(console: Console, scratch: Path, *, keep: bool) -> bool:
    began = time.monotonic()

    def say(text: str, style: str = "") -> None:
        console.print(f"{time.monotonic() - began:4.0f} s  {text}", style=style, markup=False, soft_wrap=True)

    say("Starting two Kafka clusters and Spark")
    with Shop(scratch) as shop, Prometheus(scratch, [f"127.0.0.1:{shop.port}"]) as prometheus:
        shop.start()
        shop.wait(lambda query: query["state"] == "running" and query["sources"], _LIMIT_S, "the query runs")
        say(
            f"The query copies orders to invoices. Status page: {shop.url}  Prometheus: {prometheus.url}/alerts", "bold"
        )
        time.sleep(_CALM_S)
        say(f"{prometheus.value('sum(dynamic_kafka_source_records_total)') or 0:,.0f} orders read, says Prometheus")

        shop.brokers["us"].stop()
        say("The cluster 'us' is stopped", "yellow")
        status = shop.wait(_shows_a_dead_cluster, _LIMIT_S, "the page shows it")
        say(f"The page says: {status['state']}. {status['reason']}")
        fired = _await_alert(prometheus, "firing")
        say(f"Alert {_ALERT} fires: {fired}", "bold red")

        if keep:
            say("All keeps running until Ctrl-C")
            while True:
                time.sleep(1)
        shop.brokers["us"].start()
        say("The cluster 'us' is started again", "yellow")
        _await_alert(prometheus, None)
        say("The alert is gone", "green")
        shop.stop_writing()
        status = shop.wait(lambda query: _invoices(query) >= shop.written, _LIMIT_S, "all orders are invoices")
        ok = _invoices(status) == shop.written
        say(f"{shop.written:,} orders written, {_invoices(status):,} invoices", "bold green" if ok else "bold red")
        return ok


def _shows_a_dead_cluster(query: dict[str, Any]) -> bool:
    """Return whether the page names the stopped cluster. A busy machine may show other problems for a moment."""
    return query["state"] == "degraded" and str(query["reason"]).startswith("Cluster 'us'")


def _invoices(query: dict[str, Any]) -> int:
    return sum(sink["records"] for sink in query["sinks"])


def _await_alert(prometheus: Prometheus, state: str | None) -> str:
    """Wait until the alert is in a state, or is gone, and return its summary."""
    deadline = time.monotonic() + _LIMIT_S
    while True:
        alert = prometheus.alerts().get(_ALERT)
        if (alert["state"] if alert else None) == state:
            return str(alert["annotations"]["summary"]) if alert else ""
        if time.monotonic() > deadline:
            raise TimeoutError(f"The alert {_ALERT} is {alert and alert['state']} and not {state}")
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
