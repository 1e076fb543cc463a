"""Environments with this package, all that tests need, and another pyspark than `.venv`, which has the newest one.

They are for tests (`make test SPARK=4.0`). `.venv-spark42` is also for jars that work only with that release: Spark's own
Kafka connector (for the benchmarks) and Delta. `python scripts/spark_versions.py 4.0 -m pytest` runs its Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["ROOT", "jars", "python"]

ROOT = Path(__file__).resolve().parents[1]
_PYSPARK = {"4.0": "pyspark==4.0.5", "4.1": "pyspark==4.1.4", "4.2": "pyspark==4.2.0", "4.3": "pyspark==4.3.0"}


def python(version: str = "4.2") -> str:
    """Return the path of an environment's Python. The first call creates the environment, in a minute or two.

    Args:
        version: The version of Spark.

    Raises:
        SystemExit: If pip fails, or if the version is not known.
    """
    if version not in _PYSPARK:
        raise SystemExit(f"There is no environment for Spark {version}; known are {', '.join(_PYSPARK)}")
    venv = _venv(version)
    executable = venv / "bin" / "python"
    stamp = venv / "made-from"
    kernel = [path for path in sorted((ROOT / "native").rglob("*.rs")) if "target" not in path.parts]
    pyspark = _PYSPARK[version]
    recipe = "\n".join([pyspark, *(path.read_text() for path in [ROOT / "pyproject.toml", *kernel])])
    if not stamp.is_file() or stamp.read_text() != recipe:
        print(f"creating {venv.name} (only once) ...", file=sys.stderr, flush=True)
        _run(venv, "python -m venv", [sys.executable, "-m", "venv", str(venv)])
        pip = [str(executable), "-m", "pip", "install", "--quiet"]
        _run(venv, "pip", [*pip, "--upgrade", "pip>=25.1"])  # the first with --group
        _run(venv, "pip", [*pip, pyspark, "--editable", f"{ROOT}[avro,http,jks,rich,sql]", "--group", "dev"])
        stamp.write_text(recipe)
    return str(executable)


def jars(pom: Path) -> str:
    """Return the dependencies of a pom.xml as a value for `spark.jars`. The first call fetches them with Maven.

    Raises:
        SystemExit: If Maven is missing, or fails.
    """
    venv = _venv("4.2")
    folder = venv / "jars" / pom.parent.name / pom.stem
    stamp = folder / "made-from"
    if not stamp.is_file() or stamp.read_text() != pom.read_text():
        maven = shutil.which("mvn")
        if maven is None:
            raise SystemExit(f"mvn (Maven) is not on PATH. It is needed to fetch the jars of {pom}. Install Maven.")
        shutil.rmtree(folder, ignore_errors=True)
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        _run(venv, "mvn", [*command, "-DincludeScope=runtime"])
        stamp.write_text(pom.read_text())
    return ",".join(sorted(map(str, folder.glob("*.jar"))))


def _venv(version: str) -> Path:
    return ROOT / f".venv-spark{version.replace('.', '')}"


def _run(venv: Path, what: str, command: list[str]) -> None:
    if subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode:
        raise SystemExit(
            f"{what} failed, see its output above. {venv.name} is not complete. Run the command again to repeat this step."
        )


if __name__ == "__main__":
    executable = python(sys.argv[1])
    workers = {"PYSPARK_PYTHON": executable, "PYSPARK_DRIVER_PYTHON": executable}
    os.execve(executable, [executable, *sys.argv[2:]], {**os.environ, **workers})
