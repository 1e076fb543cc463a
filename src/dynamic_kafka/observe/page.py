"""The status page, `page.html`, which asks for `/status.json` again and again, and the rules that a browser gets with it."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

__all__ = ["Page", "page"]


class Page(NamedTuple):
    """The page.

    Attributes:
        content: The HTML.
        policy: The Content-Security-Policy. The browser runs the page's own script and no other, asks this server and no
            other, and refuses to make HTML of text.
    """

    content: str
    policy: str


@cache
def page() -> Page:
    """Return the status page."""
    content = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")

    def allowed(tag: str) -> str:
        """Return the hashes of the page's elements of this kind."""
        texts = re.findall(rf"<{tag}>(.*?)</{tag}>", content, re.DOTALL)
        return " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in texts)

    rules = {
        "default-src": "'none'",
        "script-src": allowed("script"),
        "style-src": allowed("style"),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
    }
    return Page(content, "; ".join(f"{name} {value}" for name, value in rules.items()))
