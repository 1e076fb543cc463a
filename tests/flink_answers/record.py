"""Ask Flink all of `cases`, once, and keep its answers in `answers.json`: `python -m tests.flink_answers.record`.

It needs Maven and a JDK. The tests compare our SQL on Spark with these answers, and do not need Flink.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from scripts.spark_versions import jars

from tests.flink_answers.cases import EXPRESSIONS, QUERIES, ROWS, ZONES
from tests.flink_answers.corpus import CORPUS, TABLES, values, views

__all__ = ["ANSWERS", "CORPUS_ANSWERS"]

ANSWERS = Path(__file__).with_name("answers.json")
CORPUS_ANSWERS = Path(__file__).with_name("corpus_answers.json")
_POM = Path(__file__).with_name("pom.xml")


def main() -> None:
    """Record all answers."""
    classpath = jars(_POM).replace(",", ":")
    with tempfile.TemporaryDirectory() as classes:
        source = str(Path(__file__).with_name("Recorder.java"))
        subprocess.run(["javac", "-cp", classpath, "-d", classes, source], check=True)
        command = ["java", "--add-opens", "java.base/java.util=ALL-UNNAMED", "-Xmx1500m", "-XX:+UseSerialGC"]
        with subprocess.Popen(
            [*command, "-cp", f"{classpath}:{classes}", "Recorder"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as flink:
            _line(flink)
            known: dict[str, Any] = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
            answers = {zone: _of_zone(flink, zone, known.get(zone, {})) for zone in ZONES}
            _record_corpus(flink)
            assert flink.stdin is not None
            flink.stdin.close()
    ANSWERS.write_text(_text(answers) + "\n")


def _text(found: dict[str, Any]) -> str:
    """Return JSON with a line for each answer."""
    if found.keys() & {"values", "rows", "error"}:
        return json.dumps(found, ensure_ascii=False)
    lines = (f"{json.dumps(key, ensure_ascii=False)}: {_text(value)}" for key, value in found.items())
    return "{\n" + ",\n".join(lines) + "\n}"


def _line(flink: subprocess.Popen[str]) -> str:
    assert flink.stdout is not None
    line = flink.stdout.readline()
    if not line:
        raise SystemExit("Flink has ended")
    return line


def _ask(flink: subprocess.Popen[str], sql: str, zone: str) -> dict[str, Any]:
    assert flink.stdin is not None
    flink.stdin.write(json.dumps({"sql": sql, "zone": zone}) + "\n")
    flink.stdin.flush()
    found: dict[str, Any] = json.loads(_line(flink))
    return found


def _of_zone(flink: subprocess.Popen[str], zone: str, known: dict[str, Any]) -> dict[str, Any]:
    expressions: dict[str, Any] = {}
    for group, listed in EXPRESSIONS.items():
        if zone != ZONES[0] and group != "times":
            continue
        before = known.get("expressions", {}).get(group, {})
        answers = {expression: before[expression] for expression in listed if expression in before}
        asked = [expression for expression in listed if expression not in answers]
        for first in range(0, len(asked), 20):
            answers |= _together(flink, asked[first : first + 20], ROWS[group], zone)
        expressions[group] = {expression: answers[expression] for expression in listed}
        print(zone, group, len(listed), sum("error" in answer for answer in expressions[group].values()), flush=True)
    before = known.get("queries", {})
    wanted = QUERIES if zone == ZONES[0] else {}
    queries = {sql: before[sql] if sql in before else _ask(flink, text, zone) for sql, text in wanted.items()}
    return {"expressions": expressions, "queries": queries}


def _record_corpus(flink: subprocess.Popen[str]) -> None:
    """Keep the answers to the corpus, by the text of each query. A run that is interrupted goes on with the next one."""
    known = json.loads(CORPUS_ANSWERS.read_text()) if CORPUS_ANSWERS.exists() else {}
    known = {sql: known[sql] for sql in CORPUS.values() if sql in known}
    asked = [sql for sql in CORPUS.values() if sql not in known]
    for statement in [*map(values, TABLES), *views()] if asked else ():
        answer = _ask(flink, statement, ZONES[0])
        if "error" in answer:
            raise SystemExit(f"{answer['error']}: {statement}")
    for sql in asked:
        known[sql] = _ask(flink, sql, ZONES[0])
        CORPUS_ANSWERS.write_text(_text({sql: known[sql] for sql in CORPUS.values() if sql in known}) + "\n")
    print("corpus", len(known), sum("error" in answer for answer in known.values()), flush=True)


def _together(flink: subprocess.Popen[str], listed: list[str], rows: str, zone: str) -> dict[str, Any]:
    """Ask for several expressions in one job; if that fails, for each half."""
    if not listed:
        return {}
    found = _ask(flink, f"SELECT id, {', '.join(listed)} FROM {rows}", zone)
    if "error" not in found:
        ordered = sorted(found["rows"], key=lambda row: int(row[0]))
        return {
            expression: {"type": found["types"][i], "values": [row[i] for row in ordered]}
            for i, expression in enumerate(listed, 1)
        }
    if len(listed) == 1:
        return {listed[0]: found}
    half = len(listed) // 2
    return _together(flink, listed[:half], rows, zone) | _together(flink, listed[half:], rows, zone)


if __name__ == "__main__":
    main()
