"""Where both contenders run: one environment with pyspark 4.2 and this package, and the jars of the rival, by Maven."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["ROOT", "contender_environment", "prepare"]

ROOT = Path(__file__).resolve().parents[1]
_VENV = ROOT / ".venv-bench"
_PYTHON = _VENV / "bin" / "python"
_JARS = _VENV / "jars"
_POM = ROOT / "benchmarks" / "pom.xml"
_PYSPARK = "pyspark==4.2.0"  # the release of the rival's jar


def prepare() -> None:
    """Make the environment and fetch the jars, if that was not done before.

    Raises:
        SystemExit: If pip or Maven fails; says which.
    """
    stamp = _VENV / "made-from"
    recipe = f"{_PYSPARK}\n{_POM.read_text()}\n{(ROOT / 'pyproject.toml').read_text()}"
    if stamp.is_file() and stamp.read_text() == recipe:
        return
    print(f"making {_VENV.name} (once) ...", flush=True)
    _run("python -m venv", [sys.executable, "-m", "venv", str(_VENV)])
    _run("pip", [str(_PYTHON), "-m", "pip", "install", "--quiet", _PYSPARK, "--editable", f"{ROOT}[sql,avro]"])
    maven = shutil.which("mvn")
    if maven is None:
        raise SystemExit("The rival's jars are fetched by mvn (Maven), which is not on PATH; install Maven")
    command = [maven, "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies", f"-DoutputDirectory={_JARS}"]
    _run("mvn", command)
    stamp.write_text(recipe)


def contender_environment() -> tuple[str, str]:
    """The Python that contenders run with, and the rival's jars as `spark.jars` takes them."""
    return str(_PYTHON), ",".join(sorted(map(str, _JARS.glob("*.jar"))))


def _run(what: str, command: list[str]) -> None:
    if subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode:
        raise SystemExit(f"{what} failed (above), so the environment of the benchmarks is not complete")
