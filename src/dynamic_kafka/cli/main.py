"""The program `dynamic-kafka`: its arguments become a command, and an error becomes one line and an exit code.

A command is a module with `add_to(commands)`, which adds its parser. The parser sets `run`, a function from the arguments to
an exit code, and `show_warnings` if the user should see the package's warnings. A new command gets an entry in `_COMMANDS`.
"""

from __future__ import annotations

import argparse
import errno
import io
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import NoReturn

from dynamic_kafka.cli import archive, doctor, tail
from dynamic_kafka.cli.lag import command as lag
from dynamic_kafka.cli.offsets import command as offsets
from dynamic_kafka.cli.output import complain, printable_lines, warn
from dynamic_kafka.cli.sql import command as sql
from dynamic_kafka.cli.streams import command as streams
from dynamic_kafka.cli.transactions import command as transactions
from dynamic_kafka.errors import ConfigurationError, DynamicKafkaError, SqlError

__all__ = ["FAILED", "OK", "USAGE", "main"]

_log = logging.getLogger(__name__)

OK, FAILED, USAGE = 0, 1, 2
"""Exit codes: success (also if there was nothing to do), failure, wrong usage."""
_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)

_COMMANDS = (doctor, lag, streams, offsets, archive, tail, sql, transactions)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: The arguments without the program's name; by default those of this process.

    Returns:
        The exit code: 0 for success, 1 for a failure, 2 for wrong usage.

    Raises:
        SystemExit: After `--help` (0), or if the arguments cannot be parsed (2).
    """
    if sys.stdout is None:
        complain("standard output is closed, so nothing can be shown; open it, or give it a file")
        return FAILED
    try:
        args = _parsed(sys.argv[1:] if arguments is None else arguments)
    except OSError as error:  # of the version, if that is asked for
        return _without_output(error)
    log, handler = logging.getLogger("dynamic_kafka"), logging.NullHandler()
    if args.debug:
        shown = logging.StreamHandler()
        shown.setFormatter(_Escaped("%(asctime)s %(name)s %(message)s"))
        logging.basicConfig(handlers=[shown])
        log.setLevel(logging.DEBUG)
    elif getattr(args, "show_warnings", False):
        handler = _Warnings(logging.WARNING)
    if isinstance(sys.stdout, io.TextIOWrapper):  # its own encoding may lack a character of a name or a row
        sys.stdout.reconfigure(encoding=None if sys.stdout.isatty() else "utf-8", errors="backslashreplace")
    log.addHandler(handler)  # without any handler, Python writes warnings to standard error
    try:
        return _run(args)
    finally:
        log.removeHandler(handler)


def parser_of_all() -> argparse.ArgumentParser:
    """Return the parser of all commands, from which the table in docs/reference/cli.md is made, too."""
    parser = _Parser(prog="dynamic-kafka", description="Tools for Spark queries on Kafka.", allow_abbrev=False)
    parser.add_argument("-V", "--version", action=_Version, help="show the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_to(commands)
    return parser


class _UsageError(Exception):
    """The arguments cannot be parsed: with the parser of the command, and the reason."""


class _Parser(argparse.ArgumentParser):
    """Leaves it to `_parsed` how an error is shown."""

    def error(self, message: str) -> NoReturn:
        # Some values are secrets, and this one is in a wrong place.
        raise _UsageError(self, re.sub(r"(invalid choice): '.*[^\w-].*' \(", r"\1 (", message, flags=re.DOTALL))


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = parser_of_all()
    try:
        args, unknown = parser.parse_known_args(words)
        if unknown:  # argparse's own message would repeat values, which may be secrets
            options = [word.partition("=")[0] for word in unknown if word.startswith("-")]
            parser.error(
                f"unknown options {', '.join(options)}; see --help" if options else "too many words; see --help"
            )
    except _UsageError as error:
        parser, message = error.args
        if "--output=json" in words or ("--output", "json") in pairwise(words):
            parser.exit(USAGE, _json_of(message, USAGE))
        argparse.ArgumentParser.error(parser, message)
    return args


class _Version(argparse.Action):
    """The option --version. The version is looked up only when somebody asks for it: that takes 50 ms."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:  # noqa: A002
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from dynamic_kafka import __version__

        sys.stdout.write(f"{parser.prog} {__version__}\n")
        parser.exit(OK)


class _Warnings(logging.NullHandler):
    """A handler that shows each warning of the package in one line."""

    def handle(self, record: logging.LogRecord) -> bool:
        warn(" ".join(record.getMessage().split()))
        return True


class _Escaped(logging.Formatter):
    """Escapes what other programs have written, also in the errors of a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(super().format(record))


def _run(args: argparse.Namespace) -> int:
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT  # as in shells
    except Exception as error:  # noqa: BLE001  (users see one line for any error)
        # Commands word their own errors of files, so this one is about the output.
        if isinstance(error, OSError) and error.errno in _OUTPUT_ERRORS:
            return _without_output(error)
        _log.debug("The command fails", exc_info=True)
        known = isinstance(error, DynamicKafkaError)
        text = str(error) if isinstance(error, SqlError) else str(error).partition("\n")[0]
        if isinstance(error, ModuleNotFoundError) and error.name == "pyspark":
            text = "this command needs PySpark, which is not installed here: pip install 'pyspark-dynamic-kafka[spark]'"
        elif not known:
            text = f"unexpected {type(error).__name__}: {text}; --debug shows where, please report it"
        code = USAGE if isinstance(error, ConfigurationError) else FAILED
        if getattr(args, "output", "") == "json":
            sys.stderr.write(_json_of(text, code))
        else:
            complain(text)
        return code
    return code


def _json_of(text: str, code: int) -> str:
    return json.dumps({"error": text, "exit_code": code}) + "\n"


def _without_output(error: OSError) -> int:
    """Say that the output cannot be written. A pipe that nobody reads any more (`head`) needs no words."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python tries again when the process ends
    if error.errno != errno.EPIPE:
        complain(
            f"the output cannot be written ({error.strerror}), so a part of it is missing; choose another place for it"
        )
    return FAILED
