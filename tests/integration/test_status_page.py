"""The status page in a real browser, from the real server, with what the model says of staged queries."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, Protocol

import pytest

from dynamic_kafka.observe.model import Model
from dynamic_kafka.observe.place import process, read_place
from dynamic_kafka.observe.reports import ClusterReport
from dynamic_kafka.observe.server import MetricsServer
from dynamic_kafka.testing import wait_until
from tests.browser import CHROMIUM, Browser
from tests.observed import cluster, serving, source, worker
from tests.staged import HOSTILE, STATES, running

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: scripts/get-observers")

_OPEN_TOPIC = (
    "document.querySelector('[data-level=\"0\"]').click(), document.querySelector('[data-level=\"1\"]').click()"
)

# The least contrast between a text and what is behind it, with the text: WCAG asks for 4.5.
_LEAST_CONTRAST = """(() => {
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const linear = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => [r, g, b].map((c) => linear(c / 255))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    const color = channels(getComputedStyle(element).backgroundColor);
    return color.length < 4 || color[3] === 1 ? color : ground(element.parentElement);
  };
  const all = [...document.querySelectorAll("body *")].filter((element) =>
    element.checkVisibility() && [...element.childNodes].some((node) => node.nodeType === 3 && node.nodeValue.trim()));
  const contrasts = all.map((element) => {
    const [a, b] = [light(channels(getComputedStyle(element).color)), light(ground(element))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), element.textContent];
  });
  return contrasts.sort(([a], [b]) => a - b)[0];
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for all tests of this file; each opens its own page."""
    with Browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


Serve = Callable[[Model], MetricsServer]
"""Starts a server with a model."""


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers, and stop them at the end."""
    with ExitStack() as stack:
        yield lambda model: stack.enter_context(serving(model))


def now_ms() -> int:
    """The time."""
    return int(time.time() * 1000)


class Show(Protocol):
    """Shows a staged query."""

    def __call__(self, state: str, width: int = 1100, scheme: Literal["light", "dark"] = "light") -> Browser:
        """Return the browser, which shows it."""
        ...


@pytest.fixture
def show(browser: Browser, serve: Serve) -> Show:
    """Show a staged query in the browser."""

    def shown(state: str, width: int = 1100, scheme: Literal["light", "dark"] = "light") -> Browser:
        browser.screen(width, 800, scheme=scheme)
        browser.open(f"http://127.0.0.1:{serve(STATES[state](now_ms())).port}/")
        browser.wait("document.querySelector('.state')")
        return browser

    return shown


@pytest.mark.parametrize(
    ("state", "headline", "reason"),
    [
        ("running", "running", "the metadata service has answered"),
        ("dead-cluster", "degraded", "Cluster 'orders-us' does not answer"),
        ("waits-for-a-dead-cluster", "degraded", "Nothing is read of the other clusters"),
        ("hot-partition", "running behind", "cluster orders-eu, topic orders, partition 37 of 160."),
        ("newly-hot-partition", "running behind", "old: cluster orders-eu, topic orders, partition 37 of 160."),
        ("each-half-minute", "running", "the metadata service has answered"),
        ("metadata-mistake", "degraded", "bootstrapServers: Field required"),
        ("typing-error", "running", "topic 'ordres' does not exist"),
        ("failed", "failed", "offsets 1200 to 1499 were deleted"),
        ("silent", "silent", "has not reported for 3"),
        ("starting", "starting", "Nothing is known"),
    ],
)
def test_the_state_and_its_reason_come_first(show: Show, state: str, headline: str, reason: str) -> None:
    """They are large, at the top, announced by screen readers, and the title of the tab begins with the state."""
    page = show(state)
    assert page.text(".state h2").lower() == headline
    assert reason in page.text(".state")
    assert page.run("document.querySelector('main').firstElementChild.matches('.state[role=status]')")
    assert page.run("parseFloat(getComputedStyle(document.querySelector('.state h2')).fontSize)") >= 24
    assert page.run("document.title").startswith(headline)
    assert page.complaints == []


def test_the_end_of_patience_is_told(show: Show) -> None:
    """How many failures of the metadata service are tolerated, and when the query ends if they go on."""
    text = show("metadata-mistake").text("main")
    assert "Tolerated in a row: 30. If it goes on failing, the query ends in " in text
    assert "Tolerated in a row: 30. One more ends the query." in show("typing-error").text("main")


def test_clusters_are_shown_worst_first_with_the_reason(show: Show) -> None:
    """The one that does not answer is the first, and its error is below it."""
    page = show("dead-cluster")
    rows = page.run("[...document.querySelectorAll('[data-level=\"0\"]')].map((button) => button.textContent)")
    assert rows == ["orders-us", "orders-ap", "orders-eu"]
    assert page.text("tbody tr").count("unknown") == 2, "how far behind it is"
    assert "Nothing is read of the other clusters" not in page.text(".state")
    reason = page.text("tbody tr:nth-child(2)")
    assert re.match(r"For 2 min( \d+ s)?: Cluster 'orders-us' does not answer: Connect to", reason), reason


def test_a_hot_partition_is_named(show: Show) -> None:
    """If one partition of many has most of what is to be read, the state says so without a click."""
    page = show("hot-partition")
    page.wait("document.querySelector('.state').innerText.includes('Partition 37 of topic orders')")
    assert "has 99 % of the topic's records behind" in page.text(".state")


def test_partitions_are_shown_when_a_topic_is_opened(show: Show) -> None:
    """The worst is the first of a hundred, the others follow on demand, and another click closes them."""
    asked = "performance.getEntriesByType('resource').some((entry) => entry.name.includes('topic='))"
    page = show("running")
    assert not page.run(asked)
    page.run(_OPEN_TOPIC)
    page.wait("document.querySelector('.inner')")
    assert page.run(asked)
    page = show("hot-partition")
    page.run(_OPEN_TOPIC)
    page.wait("document.querySelector('.inner')")
    rows = "document.querySelectorAll('.inner tbody tr').length"
    assert page.text(".inner tbody tr").split()[:2] == ["37", "216,000"]
    assert page.run(rows) == 100
    assert page.text(".more") == "Show the other 60 partitions"
    page.run("document.querySelector('.more').click()")
    assert page.run(rows) == 160
    page.run("document.querySelector('[data-level=\"1\"]').click()")
    assert page.run(rows) == 0


def test_names_and_errors_are_text_and_never_html(show: Show) -> None:
    """Wherever a text comes from, it is shown as it is, and no element is made of it."""
    page = show("hostile")
    page.run(_OPEN_TOPIC)
    page.wait("document.querySelector('.inner')")
    for place in ("nav", ".state", "tbody", "ol", "section[data-key^=sink]", "section[data-key^=details]"):
        assert HOSTILE in page.text(place), place
    assert page.run("document.querySelectorAll('main script, main img, main iframe, header script').length") == 0
    assert page.run(
        "[...document.querySelectorAll('nav a')].every((link) => link.getAttribute('href').startsWith('#'))"
    )
    assert page.complaints == []


def test_the_policy_lets_only_the_page_run(show: Show, serve: Serve) -> None:
    """An added script does not run, text does not become HTML, and no other server is asked."""
    page = show("running")
    page.run("""(() => {
      const script = document.createElement("script");
      try { script.textContent = "window.hacked = true"; document.body.append(script); } catch (error) { /* refused */ }
    })()""")
    assert page.run("window.hacked") is None
    assert (
        page.run("(() => { try { document.body.innerHTML = 'x'; return 'done' } catch { return 'refused' } })()")
        == "refused"
    )
    other = serve(running(now_ms()))
    asked = page.run(f"fetch('http://127.0.0.1:{other.port}/status.json', {{mode: 'no-cors'}}).then(() => 1, () => 0)")
    assert asked == 0


@pytest.mark.parametrize("state", STATES)
def test_a_narrow_screen_shows_all_without_scrolling_sideways(show: Show, state: str) -> None:
    """At 400 pixels, also with topics and partitions open."""
    page = show(state, width=400)
    assert page.run("document.documentElement.scrollWidth") == 400
    if page.run("document.querySelectorAll('[data-level=\"0\"]').length"):
        page.run(_OPEN_TOPIC)
        page.wait("document.querySelector('.inner')")
        assert page.run("document.documentElement.scrollWidth") == 400
        hidden = "[...document.querySelectorAll('td')].filter((cell) => cell.scrollWidth > cell.clientWidth + 1).length"
        assert page.run(hidden) == 0


@pytest.mark.parametrize("state", ["dead-cluster", "running", "failed"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read_in_both_schemes(show: Show, state: str, scheme: Literal["light", "dark"]) -> None:
    """All of them have the contrast that WCAG's level AA asks for, and dark is dark."""
    page = show(state, scheme=scheme)
    contrast, text = page.run(_LEAST_CONTRAST)
    assert contrast >= 4.5, text
    ground = page.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert max(ground) < 40 if scheme == "dark" else min(ground) > 230


def test_everything_can_be_reached_by_keyboard_and_keeps_the_focus(show: Show) -> None:
    """Tab and Enter open a cluster and a topic; the updates of the page do not take the focus away."""
    page = show("hot-partition")

    def tab_to(selector: str) -> None:
        for _ in range(30):
            page.press("Tab")
            if page.run(f"document.activeElement.matches('{selector}')"):
                return
        raise AssertionError(f"Tab does not reach {selector}")

    tab_to("nav a")
    tab_to("[data-plot]")
    before = page.text("figcaption")
    page.press("ArrowLeft", "ArrowLeft")
    page.wait(
        f"document.querySelector('figcaption').innerText !== {json.dumps(before)}"
    )  # the value at an earlier time
    tab_to('[data-level="0"]')
    page.press("Enter")
    tab_to('[data-level="1"]')
    page.press(" ")
    page.wait("document.querySelector('.inner')")
    drawn = page.text("#pulse")
    page.wait(f"document.querySelector('#pulse').textContent !== '{drawn}'")
    assert page.run("document.activeElement.matches('[data-level=\"1\"][aria-expanded=true]')")
    outline = page.run("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "one sees where the focus is"


def test_everything_has_a_name_for_screen_readers(show: Show) -> None:
    """Buttons, links, tables, charts and regions."""
    page = show("dead-cluster")
    page.run(_OPEN_TOPIC)
    page.wait("document.querySelector('.inner')")
    nodes = page.send("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "link", "table", "img", "image", "region", "navigation", "list", "status"}
    found = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n["ignored"]]
    assert {"button", "link", "table", "region"} <= {role for role, _ in found}
    assert [role for role, name in found if role in roles and not name] == []
    assert any(re.match(r"Time behind: \d", name) for _, name in found), "a chart tells its value"


def test_another_query_can_be_chosen(show: Show) -> None:
    """By a link, which can be sent to a colleague."""
    page = show("several")
    links = page.run("[...document.querySelectorAll('nav a')].map((link) => link.innerText)")
    assert [link.split() for link in links] == [["fraud", "degraded"], ["billing", "running"], ["search", "running"]]
    assert page.text(".state h2") == "Degraded", "the worst one is shown"
    assert page.run("location.hash") == "#query=fraud"
    page.run("document.querySelectorAll('nav a')[2].click()")
    page.wait("document.querySelector('.state h2').textContent === 'running'")
    assert page.run("location.hash") == "#query=search"
    assert page.run("document.querySelector('[aria-current]').textContent").startswith("search")
    page.open(page.run("location.href"))
    page.wait("document.querySelector('[aria-current]')?.textContent.startsWith('search')")


def test_a_query_that_the_driver_does_not_know_is_not_replaced_by_another(show: Show) -> None:
    """A link of yesterday: the page says so, offers the others, and chooses none of them."""
    page = show("several")
    page.run("location.hash = 'query=yesterday'")
    page.wait("document.querySelector('.state h2').textContent === 'not known'")
    assert "yesterday is not known to this driver, which has been watched since" in page.text(".state").lower()
    assert page.run("document.querySelectorAll('main > *').length") == 1
    assert page.run("document.querySelectorAll('nav a').length") == 3
    assert page.run("document.querySelectorAll('[aria-current]').length") == 0
    assert page.run("document.title") == "not known: yesterday"


def test_a_query_that_gets_its_name_while_it_is_shown_is_followed(browser: Browser, serve: Serve) -> None:
    """Its workers tell the name with its first batch. The address names it from then on."""
    browser.screen(1100, 800)
    at_ms = now_ms()
    model = Model(at_ms)
    model.report(source(cluster(seen_ms=at_ms)), at_ms)
    browser.open(f"http://127.0.0.1:{serve(model).port}/")
    browser.wait("location.hash === '#query=orders'")
    model.report(worker(query_id="id-1", name="nightly"), at_ms)
    browser.wait("location.hash === '#query=nightly'")
    assert browser.text(".state h2") != "not known"


def test_what_is_not_known_is_called_unknown(show: Show) -> None:
    """Of a query that is silent no number is shown as if it were of now, and no service is said to answer."""
    page = show("silent")
    shown = page.run(
        "Object.fromEntries([...document.querySelectorAll('section[data-key^=figures] dl div')].map((d) => "
        "[d.querySelector('dt').textContent, d.querySelector('dd').textContent]))"
    )
    unknown = ("Read per second", "Records behind", "Time behind", "Last record", "Clusters reading")
    assert {name: shown[name] for name in unknown} == dict.fromkeys(unknown, "unknown")
    assert "metadata service unknown" in page.text("section[data-key=discovery]")
    assert "metadata service answered" in show("running").text("section[data-key=discovery]")


def test_a_long_error_is_shown_by_its_beginning(browser: Browser, serve: Serve) -> None:
    """And as a whole after a click, as far as the server keeps it."""
    browser.screen(1100, 800)
    at_ms = now_ms()
    model = Model(at_ms)
    error = "no broker answers. " * 6000
    model.report(source(cluster(seen_ms=at_ms, state="unreachable", reason=error)), at_ms)
    browser.open(f"http://127.0.0.1:{serve(model).port}/")
    browser.wait("document.querySelector('.state')")
    assert len(browser.text(".state")) < 600
    browser.run("document.querySelector('.state [data-text]').click()")
    browser.wait("document.querySelector('.state').innerText.includes('114000 characters')")
    assert browser.complaints == []


class ServerProcess:
    """The metrics server as a process, as a driver has it, on a port that it keeps.

    Args:
        folder: Where it writes its address.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "place.json"
        self._process: subprocess.Popen[bytes] | None = None
        self._sequence = 0
        self._token = ""
        self.port = 0

    def start(self) -> None:
        """Start it."""
        of = process()
        arguments = ["127.0.0.1", str(self.port), "", str(of.pid), of.started, str(self._file)]
        self._process = subprocess.Popen([sys.executable, "-m", "dynamic_kafka.observe", *arguments])
        place = wait_until(lambda: read_place(self._file), 20, "the server's address")
        assert place is not None
        self.port, self._token = place["port"], place["token"]

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._file.unlink()

    def report(self, of_cluster: ClusterReport) -> None:
        """Report a source with one cluster."""
        self._sequence += 1
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        content = json.dumps(source(of_cluster | {"seen_ms": now_ms()}, sequence=self._sequence, time_ms=now_ms()))
        connection.request("POST", "/report", content, {"Authorization": f"Bearer {self._token}"})
        assert connection.getresponse().status == 200
        connection.close()


@pytest.mark.slow
def test_the_page_is_live_and_says_when_the_server_is_gone(browser: Browser, tmp_path: Path) -> None:
    """It draws what is new without reloading, keeps what it knew with its age, and goes on when the server is back."""
    reading, died = cluster("orders-us"), cluster("orders-us", state="unreachable", reason="No broker answers")
    server = ServerProcess(tmp_path)
    server.start()
    try:
        server.report(reading)
        browser.screen(1100, 800)
        browser.open(f"http://127.0.0.1:{server.port}/")
        browser.wait("document.querySelector('.state h2')?.textContent.startsWith('running')")
        browser.run("window.loaded = 1")
        server.report(died)
        browser.wait("document.querySelector('.state h2').textContent === 'degraded'")
        server.kill()
        browser.wait("document.querySelector('.state h2').textContent === 'no answer'")
        browser.wait(
            "/Last seen [1-9.]+ s ago, at [0-9]+:[0-9]+:[0-9]+, when it was degraded/.test(document.body.innerText)"
        )
        assert "No broker answers" in browser.text("tbody")
        assert browser.run("document.title") == "no answer: orders"
        server.start()
        browser.wait("document.body.innerText.includes('No query has reported yet')")
        server.report(reading)
        browser.wait("document.querySelector('.state h2')?.textContent.startsWith('running')")
        assert browser.run("window.loaded") == 1, "the page was not reloaded"
    finally:
        server.kill()
