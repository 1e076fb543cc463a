"""Build the site of the documentation: the pages and the files that they link, at their paths in the repository.

So a link from one file to another is right in the repository and in the site, and no page is written for only one of
them. Neither the build nor the site needs a network. Warnings are errors: links to pages and headings that do not
exist, names that the API reference does not find, and anything that a browser would load from elsewhere.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "build" / "pages"
SITES = ROOT / "build" / "site"
VERSION = tomllib.loads((ROOT / "native" / "Cargo.toml").read_text())["package"]["version"]
SITE = SITES / ".".join(VERSION.split(".")[:2])
_BUILT = ROOT / "build" / "built-site"
_LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
_ELSEWHERE = re.compile(
    r"""<(?:script|img|iframe|link rel="(?:stylesheet|icon|preload)")[^>]+(?:src|href)="?https?:[^>]*>"""
)


def files() -> set[Path]:
    """Return the pages, and what they link: pictures, programs and the like."""
    pages = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")}
    linked = {(page.parent / link).resolve() for page in pages for link in _LINK.findall(page.read_text())}
    return pages | {path for path in linked if path.is_file()} | set((ROOT / "docs" / "assets").iterdir())


def list_versions(sites: Path) -> None:
    """Write the page to which each page's version leads: the folders of versions, the newest first."""
    found = sorted((path.name for path in sites.iterdir() if path.is_dir()), key=lambda v: [*map(int, v.split("."))])
    links = "".join(f'<li><a href="{name}/index.html">{name}</a>' for name in reversed(found))
    head = '<!doctype html><meta name="viewport" content="width=device-width"><title>dynamic_kafka</title>'
    (sites / "index.html").write_text(f"{head}<h1>dynamic_kafka</h1>\n<ul>{links}</ul>\n")


def main() -> int:
    """Build the site, and return 1 if anything is wrong."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for path in files():
        copy = PAGES / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        return 1
    shutil.rmtree(SITE, ignore_errors=True)
    SITES.mkdir(exist_ok=True)
    _BUILT.rename(SITE)
    list_versions(SITES)
    loaded = [f"{page}: {tag}" for page in SITE.rglob("*.html") for tag in _ELSEWHERE.findall(page.read_text())]
    print(*loaded or [f"The first page: {SITE / 'index.html'}"], sep="\n")
    return bool(loaded)


if __name__ == "__main__":
    sys.exit(main())
