"""What all commands have in common: the version, the options' names, and errors for programs."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.web import WebServer

from dynamic_kafka import __version__
from dynamic_kafka.__main__ import main as program
from dynamic_kafka.cli.main import main, parser_of_all
from dynamic_kafka.errors import ConfigurationError
from dynamic_kafka.observe.settings import METRICS_OPTIONS
from dynamic_kafka.options import parse_options


def parsers() -> Iterator[argparse.ArgumentParser]:
    """The parsers of all commands and their actions."""
    waiting = [parser_of_all()]
    while waiting:
        parser = waiting.pop()
        yield parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                waiting.extend(action.choices.values())


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_told(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is the first thing that support asks for."""
    with pytest.raises(SystemExit) as ended:
        main([option])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"dynamic-kafka {__version__}\n"


@pytest.mark.parametrize("words", [["--output=json", "--top", "x"], ["--output", "json", "--password=geheim"]])
def test_wrong_usage_is_json_where_json_is_asked_for(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One line, without the usage, and without a value."""
    with pytest.raises(SystemExit) as ended:
        main(["lag", *words])
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    found = json.loads(err)
    assert found["exit_code"] == 2
    assert ("--top" if "--top" in words else "--password") in found["error"]
    assert "geheim" not in err


def test_no_word_that_may_be_a_secret_is_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where a command was expected; a name that was misspelled is."""
    for word, is_shown in (("sasl.password=geheim", False), ("lagg", True)):
        with pytest.raises(SystemExit):
            main([word])
        err = capsys.readouterr().err
        assert "invalid choice" in err
        assert (word.rpartition("=")[2] in err) == is_shown


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("doctor >&-", 1, "standard output is closed"),
        ("--version > /dev/full", 1, "the output cannot be written (No space left on device)"),
    ],
)
def test_an_output_that_takes_nothing(command: str, code: int, said: str) -> None:
    """One line says so."""
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m dynamic_kafka {command}"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert said in done.stderr


def test_ctrl_c_while_a_command_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """No traceback, and the exit code of shells."""

    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "dynamic_kafka.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "dynamic_kafka.cli.main")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert program() == 130


def test_an_option_is_the_same_in_all_commands() -> None:
    """The form of the output is a table or JSON (SQL has CSV, too), and a source is called N."""
    options = [(parser.prog, action) for parser in parsers() for action in parser._actions]
    outputs = {prog: set(action.choices or ()) for prog, action in options if "--output" in action.option_strings}
    assert len(outputs) > 8
    assert all(choices - {"csv"} == {"table", "json"} for choices in outputs.values()), outputs
    sources = {action.metavar for _, action in options if "--source" in action.option_strings}
    assert sources == {"N"}


def test_an_error_is_json_where_json_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """A script need not parse words. Standard output stays that of the result."""
    assert main(["lag", "--url", "http://127.0.0.1:1", "--output", "json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    found = json.loads(err)
    assert found["exit_code"] == 1
    assert re.search(r"does not answer \((\[Errno 111\] )?Connection refused\)", found["error"])
    assert err.count("\n") == 1


def test_an_answer_that_is_nested_without_end_is_no_status(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a server sends, the error is about its answer."""
    with WebServer(lambda _: (200, {}, b"[" * 200_000)) as server:
        assert main(["lag", "--url", server.url]) == 1
    assert "does not answer with the status of queries (RecursionError); check --url" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "65536", "99999"])
def test_a_port_that_cannot_be_is_refused_by_its_option(port: str) -> None:
    """And not by a server that has ended for some reason."""
    with pytest.raises(ConfigurationError, match=r"metrics\.port.*65535"):
        parse_options({"metrics.port": port}, METRICS_OPTIONS)
