"""Histories of Delta tables: the files of one version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError
from dynamic_kafka.history.folder import Folder, ListedFile
from dynamic_kafka.history.settings import HistorySettings

__all__ = ["address_of", "files_of_delta", "rows_of"]

_HADOOPS_NAMES = ("s3a://", "s3n://")


def files_of_delta(folder: Folder, settings: HistorySettings) -> tuple[list[ListedFile], str]:
    """Return the files of a version of a table, by default of the newest one, with the version for people.

    Raises:
        ConfigurationError: If there is no such table or version, it has no rows, or its files alone do not say what its rows
            are.
        MissingDependencyError: If deltalake is not installed.
    """
    import pyarrow as pa

    table = _opened(folder.location, settings.version)
    shown = f"version {table.version()} of the Delta table"
    _check(table, f"{shown} '{folder.location}'")
    files = [
        ListedFile(unquote(action["path"]), action["size_bytes"], 0, _texts(action.get("partition") or {}))
        for action in pa.table(table.get_add_actions()).to_pylist()
    ]
    if not files:
        raise ConfigurationError(
            f"Option 'history.path': {shown} '{folder.location}' has no rows. Name another version with history.version, or "
            "leave the options of the history out"
        )
    return sorted(files, key=lambda file: file.path), shown


def address_of(location: str) -> str:
    """Return the address of a table as deltalake knows it."""
    return f"s3://{location[6:]}" if location.startswith(_HADOOPS_NAMES) else location


def rows_of(table: Any) -> dict[str, int | None]:
    """Return the paths of a table's files, with the number of rows if the table knows it."""
    import pyarrow as pa

    actions = pa.table(table.get_add_actions()).to_pylist()
    return {unquote(action["path"]): action.get("num_records") for action in actions}


def _opened(location: str, version: int | None) -> Any:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError
    except ImportError:
        raise MissingDependencyError("deltalake", "deltalake", "to read a Delta table as a history") from None
    try:
        return DeltaTable(address_of(location), version=version)
    except TableNotFoundError:
        raise ConfigurationError(
            f"Option 'history.path': '{location}' is no Delta table. Correct the path, or history.format"
        ) from None
    except (DeltaError, OSError, ValueError) as error:
        which = "the" if version is None else f"version {version} of the"
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(
            f"Option 'history.path': {which} Delta table '{location}' cannot be read ({reason}). Is history.version one "
            "that its log still has?"
        ) from error


def _check(table: Any, shown: str) -> None:
    """Raise if the rows of a version are not just those in its files, by the names in them."""
    mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mapping != "none":
        raise ConfigurationError(
            f"Option 'history.path': {shown} has column mapping ({mapping}), so its files have other names of columns. Copy "
            "it into a table without column mapping, and name that one"
        )
    features = table.protocol().reader_features or ()
    if "deletionVectors" in features and any(batch.num_rows for batch in table.deletion_vectors()):
        raise ConfigurationError(
            f"Option 'history.path': {shown} has deletion vectors: rows that were deleted are still in its files. Run "
            "REORG TABLE ... APPLY (PURGE), and name the version after it"
        )


def _texts(values: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in values.items()}
