"""Makes the pictures of the status page in the documents (docs/img/page-*.png), from staged cases on real brokers.

`python -m scripts.page_images`. It needs Chromium (scripts/get-observers) and Pillow, takes five minutes, and prints what
the page and the command line say in each case, for docs/guides/operations.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

import PIL.Image
from examples.monitoring.shop import Shop
from tests.browser import Browser

_ROOT = Path(__file__).parents[1]
_IMAGES = _ROOT / "docs" / "img"
_WIDTH = 1000
_COLOURS = 128
_LIMIT_S = 180


class Stage:
    """A running shop, and a browser that looks at it."""

    def __init__(self, shop: Shop, browser: Browser) -> None:
        self.shop = shop
        self._browser = browser

    def say(self, *command: str) -> None:
        """Run the command line, and print what it says."""
        print("$ dynamic-kafka", *command)
        environment = {**os.environ, "COLUMNS": "140"}
        done = subprocess.run(
            [sys.executable, "-m", "dynamic_kafka", *command],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        print(done.stdout + done.stderr, flush=True)

    def photograph(
        self,
        name: str,
        *,
        width: int = _WIDTH,
        until: str = ".charts",
        scheme: Literal["light", "dark"] = "light",
        opened: bool = False,
    ) -> None:
        """Save a picture of the page.

        Args:
            name: Its name, without `page-`.
            width: The width in pixels.
            until: The last section in the picture holds this.
            scheme: The colours.
            opened: Whether the first topic of the first cluster is opened.
        """
        browser = self._browser
        browser.screen(width, 800, scheme=scheme)
        browser.open(self.shop.url)
        browser.wait("document.querySelector('.charts')")
        if opened:
            browser.run("document.querySelector('[data-level=\"0\"]').click()")
            browser.run("document.querySelector('[data-level=\"1\"]').click()")
            browser.wait("document.querySelector('.inner')")
        browser.run("new Promise((done) => setTimeout(done, 1500))")
        end = f"[...document.querySelectorAll('section:has({until})')].at(-1).getBoundingClientRect().bottom"
        height = browser.run(f"{end} + scrollY + 14")
        path = _IMAGES / f"page-{name}.png"
        browser.screenshot(path, (0, 0, width, height))
        picture = PIL.Image.open(path).convert("RGB").quantize(_COLOURS, dither=PIL.Image.Dither.NONE)
        picture.save(path, optimize=True)
        print(path.relative_to(_ROOT), path.stat().st_size, "bytes", browser.complaints)
        print(browser.text("main"), flush=True)


def running(stage: Stage) -> None:
    """Show a query without trouble, on a wide and on a narrow screen."""
    time.sleep(45)
    stage.photograph("running", until="dl.small")
    stage.photograph("narrow", width=400, until="table")
    stage.say("lag", "--url", stage.shop.url, "--by", "topic")


def typing_error(stage: Stage) -> None:
    """Write a topic's name with a typing error into the metadata document."""
    stage.shop.describe({"eu": ["orders"], "us": ["ordres"]})
    stage.shop.wait(lambda query: any(e["level"] == "warning" for e in query["events"]), _LIMIT_S, "it warns")
    time.sleep(14)  # until it is certain that the topic does not exist
    stage.photograph("metadata-typo", until="ol")
    stage.say("streams", "-o", "metadata-service=file", "-o", f"metadata-service.path={stage.shop.metadata_file}")
    stage.shop.describe()
    time.sleep(5)


def damaged_document(stage: Stage) -> None:
    """Write a metadata document without the addresses of a cluster."""
    document = stage.shop.metadata_file.read_text()
    stage.shop.metadata_file.write_text(document.replace("bootstrapServers", "bootstrapServer", 1))
    stage.shop.wait(lambda query: query["state"] == "degraded", _LIMIT_S, "the page shows it")
    print((stage.shop.status() or {})["reason"])
    stage.say("streams", "validate", str(stage.shop.metadata_file))
    stage.shop.describe()
    stage.shop.wait(lambda query: query["state"] == "running", _LIMIT_S, "the page shows that it is repaired")


def dead_cluster(stage: Stage) -> None:
    """Stop a cluster."""
    stage.shop.brokers["us"].stop()
    stage.shop.wait(lambda query: query["state"] == "degraded", _LIMIT_S, "the page shows it")
    time.sleep(40)
    stage.photograph("dead-cluster", until="ol")
    stage.say("lag", "--url", stage.shop.url, "--by", "cluster")
    stage.say("doctor", "--bootstrap-servers", stage.shop.brokers["us"].bootstrap_servers, "--for", "reading")
    stage.shop.brokers["us"].start()
    stage.shop.wait(lambda query: query["state"] == "running", _LIMIT_S, "the page shows that it is back")


def hot_partition(stage: Stage) -> None:
    """Write most of all orders to one partition, more than are read."""
    stage.shop.orders_per_s["eu", 3] = 6000
    stage.shop.wait(lambda query: (query["sources"][0]["lag_s"] or 0) > 70, _LIMIT_S, "the query is late")
    stage.photograph("hot-partition", until="table", scheme="dark", opened=True)
    stage.say("lag", "--url", stage.shop.url, "--by", "topic")


def main() -> None:
    """Stage the cases, one after the other with one query."""
    with tempfile.TemporaryDirectory(prefix="page-images-") as folder:
        os.chdir(folder)  # so that no path of this machine is in the pictures
        Path("browser").mkdir()
        with Shop(Path()) as shop, Browser(Path(folder, "browser")) as browser:
            shop.start(maxOffsetsPerTriggerPerCluster="1000")
            shop.wait(lambda query: query["state"] == "running" and query["sinks"], _LIMIT_S, "the query runs")
            stage = Stage(shop, browser)
            for case in (running, dead_cluster, typing_error, damaged_document, hot_partition):
                print(f"\n=== {case.__name__}", flush=True)
                case(stage)


if __name__ == "__main__":
    main()
