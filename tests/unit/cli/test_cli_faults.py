"""The commands with full disks, damaged checkpoints and files that are none: each error says what, where, and what to do."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.commands import runner
from tests.unit.cli.test_cli_offsets import FIRST, QUERY, SECOND, Folder, document, offset_file

from dynamic_kafka.cli.main import main
from dynamic_kafka.cli.output import write_text
from dynamic_kafka.errors import ConfigurationError

SECRET = "hunter2-SECRET"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A checkpoint of two finished batches."""
    found = Folder(tmp_path / "checkpoint")
    found.batch(0, FIRST)
    found.batch(1, SECOND)
    return found


def run(arguments: Sequence[str], *, stdout: int = subprocess.PIPE, disk_bytes: int = -1) -> tuple[int, str]:
    """Run the program in a process of its own; its exit code, and what it wrote to standard error.

    Args:
        arguments: Its arguments.
        stdout: Where it writes to.
        disk_bytes: The most bytes that it can write to a file; below 0 for no limit.
    """

    def limit() -> None:
        if disk_bytes >= 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (disk_bytes, disk_bytes))

    done = subprocess.run(
        [sys.executable, "-B", "-m", "dynamic_kafka", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
        check=False,
    )
    return done.returncode, done.stderr


# --- full disks ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_an_output_that_cannot_be_written_is_a_failure(folder: Folder) -> None:
    """Else a script would take half a table for all of it."""
    full = os.open("/dev/full", os.O_WRONLY)
    code, error = run(["offsets", "export", str(folder.path)], stdout=full)
    os.close(full)
    assert code == 1
    assert error == (
        "dynamic-kafka: error: the output cannot be written (No space left on device), so a part of it is missing; choose "
        "another place for it\n"
    )


def test_a_pipe_that_nobody_reads_ends_the_command(folder: Folder) -> None:
    """As with head, without a word."""
    reading, writing = os.pipe()
    os.close(reading)
    assert run(["offsets", "show", str(folder.path)], stdout=writing) == (1, "")
    os.close(writing)


def test_a_change_that_does_not_fit_on_the_disk_changes_nothing(folder: Folder) -> None:
    """The error names the file; also of a batch that is replaced, whose checksum stays."""
    before = folder.files()
    code, error = run(["offsets", "set", str(folder.path), "eu/orders/0:3", "--execute"], disk_bytes=10)
    assert code == 1
    assert "positions.txt cannot be written: File too large" in error
    assert folder.files() == before
    folder.batch(2, document({("orders", 0): (15, 15), ("orders", 1): (20, 20)}), finished=False)
    before = folder.files()
    fits = max(len(offset_file(SECOND)), 600)
    code, error = run(
        ["offsets", "rename-cluster", str(folder.path), "eu", "e" * 800, "--execute", "--force"], disk_bytes=fits
    )
    assert code == 1
    assert f"{folder.path}/offsets/2 cannot be written: File too large" in error
    assert folder.files() == before


def test_an_export_that_does_not_fit_leaves_the_last_one(folder: Folder, tmp_path: Path) -> None:
    """A file is replaced only by a whole one."""
    exported = tmp_path / "positions.txt"
    exported.write_text("eu/orders/0:1\n")
    code, error = run(["offsets", "export", str(folder.path), "--file", str(exported)], disk_bytes=10)
    assert code == 2
    assert f"--file '{exported}' cannot be written (File too large); name another place, or make room" in error
    assert exported.read_text() == "eu/orders/0:1\n"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_an_export_to_a_place_that_is_no_file(tmp_path: Path) -> None:
    """A folder is an error, and a device is written to."""
    with pytest.raises(ConfigurationError, match=r"--file '.*' cannot be written \(Is a directory\)"):
        write_text(tmp_path, "x", "--file")
    write_text(Path(os.devnull), "x", "--file")
    assert not Path(os.devnull).is_file()


# --- damaged checkpoints ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A checkpoint whose files are damaged again and again."""
    return Folder(tmp_path_factory.mktemp("damaged"))


@given(
    path=st.sampled_from(["offsets/1", "commits/1", "metadata"]),
    at=st.integers(0, 600),
    bytes_=st.binary(max_size=3),
    is_cut=st.booleans(),
)
def test_a_damaged_file_is_an_error_that_names_it(
    damaged: Folder, path: str, at: int, bytes_: bytes, *, is_cut: bool
) -> None:
    """Cut or overwritten anywhere. What looks whole all the same is shown."""
    damaged.batch(0, FIRST)
    damaged.batch(1, SECOND)
    file = damaged.path / path
    data = file.read_bytes()
    at = min(at, len(data))
    file.write_bytes(data[:at] + bytes_ + (b"" if is_cut else data[at + len(bytes_) :]))
    errors = io.StringIO()
    with redirect_stderr(errors), redirect_stdout(io.StringIO()):
        for action in (["show"], ["set", "eu/orders/0:3"], ["export"]):
            assert main(["offsets", action[0], str(damaged.path), *action[1:]]) in (0, 1, 2)
    said = errors.getvalue()
    assert "unexpected" not in said
    for line in said.splitlines():
        assert str(damaged.path) in line or "eu" in line


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_a_checkpoint_with_endless_brackets(folder: Folder, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Python's parser of JSON gives up in its own way."""
    folder.write("offsets/1", f"v1\n{{}}\n{text}")
    code, _, error = runner(capsys, "offsets")("show", str(folder.path), "--source", "0")
    assert code == 1
    assert f"{folder.path}/offsets/1 is damaged: the offset of source 0 is not JSON" in error


def test_a_checkpoint_with_an_endless_file(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """It is not read into memory."""
    with (folder.path / "offsets/1").open("wb") as file:
        file.truncate(10 * 2**30)
    code, _, error = runner(capsys, "offsets")("show", str(folder.path))
    assert code == 1
    assert f"{folder.path}/offsets/1 is damaged: it has more than 128 MiB" in error


# --- files that are none ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["folder", "missing", "sparse", "binary"])
@pytest.mark.parametrize("use", ["import", "diff", "options", "validate", "streams", "sql"])
def test_a_file_that_is_none(
    folder: Folder, tmp_path: Path, use: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder, 10 GB of nothing, or bytes: the error names it."""
    path = tmp_path / "given"
    if kind == "folder":
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(b"\xff\xfe" + os.urandom(100))
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(10 * 2**30)
    given = str(path)
    command, *arguments = {
        "import": ["offsets", "import", str(folder.path), given],
        "diff": ["offsets", "diff", str(folder.path), given],
        "options": ["doctor", "--options-file", given],
        "validate": ["streams", "validate", given],
        "streams": ["streams", "-o", "metadata-service=file", "-o", f"metadata-service.path={given}"],
        "sql": ["sql", "-f", given],
    }[use]
    code, _, error = runner(capsys, command)(*arguments)
    assert code in (1, 2)
    assert given in error
    assert "unexpected" not in error


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("", "The address is empty"),
        ("memory://", "'memory://' names no file or folder"),
        ("nosuchscheme://x/y", "'nosuchscheme://x/y' cannot be opened"),
        ("hdfs://nowhere:9000/x", "cannot be opened: .* \\(pyarrow needs JAVA_HOME, HADOOP_HOME"),
    ],
)
def test_an_address_that_names_no_folder(location: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty one is what a script gives if a variable is not set; it is not the folder that it runs in."""
    code, _, error = runner(capsys, "offsets")("show", location)
    assert code == 2
    assert re.search(message, error)


def test_a_wrong_option_shows_no_value(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """It may be a secret in the wrong place."""
    for command, *arguments in (
        ["offsets", "show", str(folder.path), f"--pasword={SECRET}"],
        ["offsets", "reset", str(folder.path), "--to", "earliest", "--property", SECRET],
        ["lag", str(folder.path), "-o", f"kafka.sasl.pasword={SECRET}"],
        ["tail", "--bootstrap-servers", "a:1", "--topic", "t", "--property", f"sasl.pasword={SECRET}"],
        ["doctor", "--bootstrap-servers", "a:1", "--property", SECRET],
        ["streams", "-o", f"metadata-service.auth-heder={SECRET}"],
        ["lag", "--url", f"http://me:{SECRET}@127.0.0.1:1"],
        ["lag", "--url", f"http://127.0.0.1:{SECRET}"],
    ):
        code, out, error = runner(capsys, command)(*arguments)
        assert code == 2, (command, error)
        assert error
        assert SECRET not in out + error
    assert json.loads((folder.path / "metadata").read_text()) == {"id": QUERY}


@pytest.mark.parametrize(
    "command",
    [
        "lag CHECKPOINT",
        "offsets reset CHECKPOINT --to earliest",
        "offsets translate CHECKPOINT --from eu --to us -o kafka.bootstrap.servers=a:1 -o subscribe=t",
        "streams -o kafka.bootstrap.servers=a:1 -o subscribe=t",
        "streams --diff CHECKPOINT -o kafka.bootstrap.servers=a:1 -o subscribe=t",
        "streams validate STREAMS",
        "tail --bootstrap-servers a:1 --topic t",
        "doctor --bootstrap-servers a:1",
        "transactions list --bootstrap-servers a:1 --prefix p",
    ],
)
def test_each_command_that_connects_takes_a_file_of_properties(
    command: str, folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One with a wrong name is an error, which does not show the value."""
    streams, properties = tmp_path / "streams.yaml", tmp_path / "client.properties"
    streams.write_text("- {streamId: s, clusterMetadataList: [{clusterId: c, bootstrapServers: 'c:1', topics: [t]}]}")
    properties.write_text(f"sasl.pasword={SECRET}\n")
    name, *arguments = command.replace("CHECKPOINT", str(folder.path)).replace("STREAMS", str(streams)).split()
    code, out, error = runner(capsys, name)(*arguments, "--properties-file", str(properties))
    assert code in (1, 2)
    assert "sasl.pasword" in out + error
    assert SECRET not in out + error
