"""The result of a check."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

__all__ = ["Finding", "Result", "error", "note", "of_error", "ok", "unknown", "warning"]


class Result(StrEnum):
    """The result of a check."""

    OK = "ok"
    NOTE = "note"
    """Look at it. Often nothing has to be done."""
    WARNING = "warning"
    """The query runs, but something may go wrong later."""
    ERROR = "error"
    """The query does not run, or not as its options say."""
    UNKNOWN = "unknown"
    """It could not be found out."""


class Finding(NamedTuple):
    """The finding of a check: what was found, what to do, and where it is. `remedy` and `where` may be empty."""

    result: Result
    what: str
    remedy: str = ""
    where: str = ""


def ok(what: str, where: str = "") -> Finding:
    """Return a finding that is all right."""
    return Finding(Result.OK, what, where=where)


def note(what: str, remedy: str, where: str = "") -> Finding:
    """Return a finding to look at, for which often nothing has to be done."""
    return Finding(Result.NOTE, what, remedy, where)


def warning(what: str, remedy: str, where: str = "") -> Finding:
    """Return a finding that may cause trouble later."""
    return Finding(Result.WARNING, what, remedy, where)


def error(what: str, remedy: str, where: str = "") -> Finding:
    """Return a finding that has to be repaired."""
    return Finding(Result.ERROR, what, remedy, where)


def of_error(problem: Exception) -> Finding:
    """Return what an error says: our errors have a semicolon between what is wrong and what to do."""
    what, _, remedy = str(problem).partition("\n")[0].rpartition("; ")
    return error(what, remedy) if what else error(remedy, "correct the options or the metadata")


def unknown(what: str, remedy: str = "") -> Finding:
    """Return a finding for what could not be found out."""
    return Finding(Result.UNKNOWN, what, remedy)
