"""The status page as a file: self-contained, without HTML made of texts, and about fields that the status has."""

from __future__ import annotations

import re
import typing

from dynamic_kafka.observe import reports, status
from dynamic_kafka.observe.server import page


def script() -> str:
    """The page's script."""
    (found,) = re.findall(r"<script>(.*?)</script>", page().content, re.DOTALL)
    return str(found)


def test_the_page_needs_nothing_from_elsewhere() -> None:
    """No address is in it, apart from the name of SVG's namespace, and no file beside it."""
    assert set(re.findall(r"https?://[^\"' >)]+", page().content)) == {"http://www.w3.org/2000/svg"}
    assert re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?!data:)", page().content) == []
    assert "@import" not in page().content
    assert "url(" not in page().content


def test_no_text_becomes_html_or_code() -> None:
    """There is no call that could do so, and no attribute with code or style in it."""
    calls = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(|setTimeout\(\"|srcdoc"
    assert re.findall(calls, script()) == []
    assert re.findall(r"\s(?:on\w+|style)=\"", page().content) == []


def test_the_policy_allows_the_pages_own_script_and_style_only() -> None:
    """By their hashes: nothing that is added runs."""
    policy = dict(rule.split(" ", 1) for rule in page().policy.split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert re.fullmatch(r"'sha256-[\w+/]{43}='", policy["script-src"])
    assert re.fullmatch(r"'sha256-[\w+/]{43}='", policy["style-src"])
    assert "unsafe" not in page().policy


def test_the_page_reads_fields_that_the_status_has() -> None:
    """A field that is renamed in the model is renamed here, too."""
    shapes = [shape for module in (reports, status) for shape in vars(module).values() if typing.is_typeddict(shape)]
    fields = {name for shape in shapes for name in typing.get_type_hints(shape)}
    used = set(re.findall(r"\.([a-z]+(?:_[a-z]+)+)\b|\b([a-z]+(?:_[a-z]+)+):", script()))
    names = {name for pair in used for name in pair if name}
    assert len(names) > 20
    assert names <= fields
