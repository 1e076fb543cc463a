"""A second environment, `.venv-spark42`: pyspark 4.2 and this package, for jars that work only with that release.

Such jars are Spark's own Kafka connector (for the benchmarks) and Delta. `.venv` has the newest pyspark.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["ROOT", "jars", "python"]

ROOT = Path(__file__).resolve().parents[1]
_VENV = ROOT / ".venv-spark42"
_PYTHON = _VENV / "bin" / "python"
_PYSPARK = "pyspark==4.2.0"


def python() -> str:
    """Return the path of the environment's Python. The first call creates the environment, in a minute or two.

    Raises:
        SystemExit: If pip fails.
    """
    stamp = _VENV / "made-from"
    kernel = [path for path in sorted((ROOT / "native").rglob("*.rs")) if "target" not in path.parts]
    recipe = "\n".join([_PYSPARK, *(path.read_text() for path in [ROOT / "pyproject.toml", *kernel])])
    if not stamp.is_file() or stamp.read_text() != recipe:
        print(f"creating {_VENV.name} (only once) ...", file=sys.stderr, flush=True)
        _run("python -m venv", [sys.executable, "-m", "venv", str(_VENV)])
        install = [str(_PYTHON), "-m", "pip", "install", "--quiet", _PYSPARK, "--editable"]
        _run("pip", [*install, f"{ROOT}[avro,rich,delta]"])
        stamp.write_text(recipe)
    return str(_PYTHON)


def jars(pom: Path) -> str:
    """Return the dependencies of a pom.xml as a value for `spark.jars`. The first call fetches them with Maven.

    Raises:
        SystemExit: If Maven is missing, or fails.
    """
    folder = _VENV / "jars" / pom.parent.name / pom.stem
    stamp = folder / "made-from"
    if not stamp.is_file() or stamp.read_text() != pom.read_text():
        maven = shutil.which("mvn")
        if maven is None:
            raise SystemExit(f"mvn (Maven) is not on PATH. It is needed to fetch the jars of {pom}. Install Maven.")
        shutil.rmtree(folder, ignore_errors=True)
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        _run("mvn", [*command, "-DincludeScope=runtime"])
        stamp.write_text(pom.read_text())
    return ",".join(sorted(map(str, folder.glob("*.jar"))))


def _run(what: str, command: list[str]) -> None:
    if subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode:
        raise SystemExit(
            f"{what} failed, see its output above. {_VENV.name} is not complete. Run the command again to repeat this step."
        )
