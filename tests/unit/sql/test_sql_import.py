"""SQL needs one minor version of sqlglot, which the extra `sql` installs."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from dynamic_kafka import sql
from dynamic_kafka.errors import ConfigurationError, MissingDependencyError

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_without_sqlglot_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no part of the core: another package of the same environment may need another version."""

    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(sql, "version", version)
    with pytest.raises(MissingDependencyError, match=r"sqlglot is needed for SQL, .* 'pyspark-dynamic-kafka\[sql\]'"):
        sql._check_sqlglot()


def test_another_version_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of one from the inside of a parser."""
    monkeypatch.setattr(sql, "version", lambda _: "30.3.1")
    with pytest.raises(ConfigurationError, match=r"SQL needs sqlglot 30\.\d+, and 30\.3\.1 is installed here"):
        sql._check_sqlglot()


def test_the_version_is_that_of_the_extra() -> None:
    """And of the environment of the tests."""
    assert set(re.findall(r"sqlglot~=(\d+\.\d+)\.", PYPROJECT.read_text())) == {sql._SQLGLOT}
