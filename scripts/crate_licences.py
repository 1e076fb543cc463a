"""Writes native/LICENSES.txt: the crates that are built into the native kernel, with the licences and notices to pass on.

`--check` says if the file is old. The crates are those that Cargo.lock names, for Linux on x86-64, with their sources as
cargo has fetched them. Of a crate with a choice of licences, Apache-2.0 is chosen: the project's own LICENSE has its text.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[1] / "native"
TARGET = NATIVE / "LICENSES.txt"
_PLATFORM = "x86_64-unknown-linux-gnu"
_HEADING = """\
The native kernel of pyspark-dynamic-kafka is built from these crates. Where a licence offers Apache-2.0, that is chosen, and
its text is the file LICENSE of the project. The other texts, and all notices, follow. Made by scripts/crate_licences.py.
"""


def bundled() -> Iterator[Path]:
    """Yield the folders of the crates of others that are built into the kernel, by name and version."""
    command = ["cargo", "tree", "--locked", "--offline", "-e", "normal", "--prefix", "none", "--target", _PLATFORM]
    tree = subprocess.run(command, cwd=NATIVE, check=True, stdout=subprocess.PIPE, text=True).stdout
    registry = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo") / "registry" / "src"
    for name, version in sorted({(line.split()[0], line.split()[1]) for line in tree.splitlines() if "(/" not in line}):
        yield next(registry.glob(f"*/{name}-{version.removeprefix('v')}"))


def document() -> str:
    """Return the text of native/LICENSES.txt."""
    lines, texts = [], []
    for folder in bundled():
        package = tomllib.loads((folder / "Cargo.toml").read_text())["package"]
        name, licence = f"{package['name']} {package['version']}", package["license"]
        lines.append(f"{name}: {licence}")
        choice = licence == "Apache-2.0" or ("Apache-2.0" in licence.split(" OR ") and " AND " not in licence)
        kinds = ("NOTICE",) if choice else ("NOTICE", "LICENSE", "COPYING")
        files = [path for path in sorted(folder.iterdir()) if path.name.upper().startswith(kinds)]
        others = [path for path in files if "Apache License" not in path.read_text()[:300]]
        texts += [f"{'=' * 80}\n{name}, {path.name}\n\n{path.read_text().strip()}\n" for path in others]
    return "\n".join([_HEADING, *lines, "", *texts])


if __name__ == "__main__":
    if "--check" not in sys.argv:
        TARGET.write_text(document())
    elif TARGET.read_text() != document():
        sys.exit("native/LICENSES.txt is old: run scripts/crate_licences.py")
