"""Ask Flink to read all messages, once, and keep its rows in `format_answers.json`.

Run it as `python -m tests.flink_answers.record_formats`. It needs Maven and a JDK.
The tests compare our decoders with these answers, and do not need Flink.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from scripts.spark_versions import jars

from tests.flink_answers.avro_messages import AVRO, SCHEMAS
from tests.flink_answers.messages import serving
from tests.flink_answers.protobuf_messages import PROTO_FILES, PROTOBUF, descriptors
from tests.flink_answers.text_messages import TEXTS

__all__ = ["CASES", "FORMAT_ANSWERS"]

CASES = {**AVRO, **PROTOBUF, **TEXTS}
FORMAT_ANSWERS = Path(__file__).with_name("format_answers.json")
_HERE = Path(__file__).parent


def main() -> None:
    """Record all answers."""
    classpath = jars(_HERE / "pom.xml").replace(",", ":")
    with tempfile.TemporaryDirectory() as classes, serving(SCHEMAS) as registry:
        (compiler,) = Path(classpath.partition(":")[0]).parent.glob("protoc-*.exe")
        compiler.chmod(0o755)
        compiled = Path(classes) / "descriptors"
        compiled.write_bytes(descriptors().SerializeToString())
        command = [str(compiler), f"--descriptor_set_in={compiled}", f"--java_out={classes}"]
        subprocess.run([*command, *(path.name for path in PROTO_FILES)], check=True)
        sources = [*_HERE.glob("*.java"), *Path(classes).rglob("*.java")]
        subprocess.run(["javac", "-cp", classpath, "-d", classes, *map(str, sources)], check=True)
        requests = [
            {
                "columns": case.columns,
                "options": case.table_options(registry),
                "messages": [message.hex() for message in case.messages],
            }
            for case in CASES.values()
        ]
        java = ["java", "--add-opens", "java.base/java.util=ALL-UNNAMED", "-Xmx1g", "-XX:+UseSerialGC"]
        found = subprocess.run(
            [*java, "-cp", f"{classpath}:{classes}", "Formats"],
            input="".join(json.dumps(request) + "\n" for request in requests),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
        answers = map(json.loads, found.stdout.replace(registry, "http://registry").splitlines())
    FORMAT_ANSWERS.write_text(
        "{\n" + ",\n".join(_text(name, answer) for name, answer in zip(CASES, answers, strict=True)) + "\n}\n"
    )


def _text(name: str, answer: Any) -> str:
    """Return the answers to a case, by message, with a line for each."""
    keys = [CASES[name].key(message) for message in CASES[name].messages]
    if isinstance(answer, dict):
        return f"{_line(name)}: {_line(answer)}"
    lines = [f"{_line(key)}: {_line(row)}" for key, row in zip(keys, answer, strict=True)]
    return f"{_line(name)}: {{\n" + ",\n".join(lines) + "\n}"


def _line(found: Any) -> str:
    return json.dumps(found, ensure_ascii=False)


if __name__ == "__main__":
    main()
