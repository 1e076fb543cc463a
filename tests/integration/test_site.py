"""The site of the documentation in a real browser: from its folder, without a server and without a network."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Literal
from urllib.parse import quote_plus

import pytest

from tests.browser import CHROMIUM, Browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: scripts/get-observers")

ROOT = Path(__file__).parents[2]
VERSION = ".".join(version("pyspark-dynamic-kafka").split(".")[:2])
SITE = ROOT / "build" / "site" / VERSION
# A page of each kind: with pictures, included code, wide tables, long code, and text from docstrings.
PAGES = (
    "index",
    "docs/tutorials/move",
    "docs/guides/sql",
    "docs/reference/options",
    "docs/reference/python",
    "docs/explanations/performance",
)
# What users of Spark's and Flink's connectors ask most often, as they type it, and where the answer is.
QUESTIONS = {
    "failOnDataLoss": "guides/reading.html#a-batch-that-cannot-be-read-any-more-failondataloss",
    "offset out of range": "reference/errors.html#set-failondatalossfalse",
    "kafka consumer lag": "guides/reading.html#consumer-groups-committed-offsets-and-lag",
    "commit offsets": "guides/reading.html#consumer-groups-committed-offsets-and-lag",
    "startingOffsets ignored": "guides/reading.html#where-a-query-starts-and-starts-again",
    "reset offsets checkpoint": "reference/cli.html#offsets",
    "maxOffsetsPerTrigger": "guides/reading.html#how-much-a-batch-reads",
    "rate limit backpressure": "guides/reading.html#how-much-a-batch-reads",
    "minPartitions parallelism": "guides/reading.html#how-much-a-batch-reads",
    "new partitions": "guides/reading.html#new-partitions-topics-and-clusters",
    "topic deleted recreated": "guides/reading.html#a-batch-that-cannot-be-read-any-more-failondataloss",
    "json columns": "guides/reading.html#messages-as-columns",
    "schema registry avro": "guides/sql.html#columns-from-a-schema-registry",
    "idle partition watermark": "guides/event-time.html#what-holds-the-others-back",
    "duplicates after restart": "guides/writing.html#duplicates-after-a-restart",
    "ProducerFencedException": "reference/errors.html#generation-",
    "transaction timeout": "explanations/exactly-once.html#time-limits",
    "message too large": "guides/accidents.html",
    "continuous trigger": "explanations/limits.html#spark",
    "SSL handshake failed": "guides/security.html#what-is-said-if-it-is-wrong",
}
# The results of the search are in a part of the page with a root of its own.
_RESULTS = "[...document.querySelectorAll('*')].map((e) => e.shadowRoot?.textContent ?? '').join('')"
_HITS = (
    "[...document.querySelectorAll('*')].flatMap((e) => [...e.shadowRoot?.querySelectorAll('a') ?? []])"
    ".slice(0, 3).map((a) => a.href)"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser without a network, after the site is built."""
    pytest.importorskip("zensical", reason="could not import zensical: make docs")
    done = subprocess.run([sys.executable, ROOT / "scripts" / "site.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with Browser(tmp_path_factory.mktemp("browser")) as found:
        found.send("Network.enable")
        found.send(
            "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0
        )
        yield found


@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (400, "dark")])
def test_pages_fit_the_screen_in_the_colours_of_the_reader(
    browser: Browser, width: int, scheme: Literal["light", "dark"]
) -> None:
    """Nothing is loaded that is missing, and no Markdown is left as text."""
    browser.screen(width, 900, scheme=scheme)
    for page in (SITE / f"{name}.html" for name in PAGES):
        browser.open(page.as_uri())
        browser.wait(f"document.body.dataset.mdColorScheme === '{'default' if scheme == 'light' else 'slate'}'")
        assert browser.complaints == [], page
        assert not browser.run("document.documentElement.scrollWidth > innerWidth"), page
        assert not browser.run("[...document.images].some((image) => image.complete && !image.naturalWidth)"), page
        prose = browser.run(
            "[...document.querySelectorAll('article :is(p, li, td)')].map((e) => {"
            " const copy = e.cloneNode(true); copy.querySelectorAll('code, pre').forEach((c) => c.remove());"
            " return copy.textContent }).join('\\n')"
        )
        assert [sign for sign in ("**", "](", "`", "--8<--", ":::", "|---") if sign in prose] == [], page


def test_a_page_names_its_version_and_leads_to_the_others(browser: Browser) -> None:
    """The versions whose folders are kept are in a list."""
    browser.screen(1300, 900)
    browser.open((SITE / "docs" / "reference" / "cli.html").as_uri())
    browser.wait(f"document.querySelector('header a[title=\"All versions\"]').textContent === '{VERSION}'")
    browser.run("document.querySelector('header a[title=\"All versions\"]').click()")
    browser.wait(f"[...document.querySelectorAll('li a')].some((a) => a.href.endsWith('/{VERSION}/index.html'))")


@pytest.mark.parametrize("width", [1300, 400])
def test_the_search_finds_an_option(browser: Browser, width: int) -> None:
    """By its name, on a wide and on a narrow screen."""
    browser.screen(width, 900)
    browser.open((SITE / "docs" / "reference" / "cli.html").as_uri())
    browser.run("document.querySelector('.md-search__button').click()")
    browser.wait("document.activeElement.shadowRoot?.activeElement")
    browser.press(*"skip-offsets")
    browser.wait(f"{_RESULTS}.includes('A batch that cannot be read any more')")


def test_the_search_answers_common_questions(browser: Browser) -> None:
    """The answer is among the first three hits."""
    browser.screen(1300, 900)
    browser.open((SITE / "docs" / "tutorials" / "last-hour.html").as_uri())
    browser.run("document.querySelector('.md-search__button').click()")
    browser.wait("document.activeElement.shadowRoot?.activeElement")
    for question, answer in QUESTIONS.items():
        browser.run(
            "(() => { const input = document.activeElement.shadowRoot.activeElement;"
            f" input.value = '{question}'; input.dispatchEvent(new Event('input', {{bubbles: true}})) }})()"
        )
        page, _, heading = answer.partition("#")
        hit = f"/docs/{page}?h={quote_plus(question)}{'#' if heading else ''}{heading}"
        browser.wait(f"{_HITS}.some((hit) => hit.includes('{hit}'))")
