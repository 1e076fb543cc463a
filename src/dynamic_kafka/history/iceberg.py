"""Histories of Iceberg tables: the files of one snapshot.

`history.path` is the table's name in a catalog of pyiceberg's own configuration (`catalog.namespace.table`), or the address
of a file `...metadata.json`.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from dynamic_kafka.errors import ConfigurationError, MissingDependencyError, listed
from dynamic_kafka.history.folder import Folder, ListedFile
from dynamic_kafka.history.settings import HistorySettings

__all__ = ["files_of_iceberg"]


def files_of_iceberg(_: Folder, settings: HistorySettings) -> tuple[list[ListedFile], str]:
    """Return the files of a snapshot of a table, by default of the current one, with the snapshot for people.

    Raises:
        ConfigurationError: If there is no such table or snapshot, it has no rows, or its files alone do not say what its
            rows are.
        MissingDependencyError: If pyiceberg is not installed.
    """
    table = _opened(settings.path)
    version = settings.version
    snapshot = table.current_snapshot() if version is None else table.snapshot_by_id(version)
    if snapshot is None:
        which = "no snapshot, so it has no rows" if version is None else f"no snapshot {version}; was it expired?"
        raise ConfigurationError(f"Option 'history.path': the Iceberg table '{settings.path}' has {which}")
    shown = f"snapshot {snapshot.snapshot_id} of the Iceberg table"
    _check_names(table, f"{shown} '{settings.path}'")
    tasks = list(table.scan(snapshot_id=snapshot.snapshot_id).plan_files())
    if any(task.delete_files for task in tasks):
        raise ConfigurationError(
            f"Option 'history.path': {shown} '{settings.path}' has delete files: rows that were deleted are still in its "
            "data files. Rewrite the data files (CALL system.rewrite_data_files), and name the snapshot after it"
        )
    if others := {str(task.file.file_format.value) for task in tasks} - {"PARQUET"}:
        raise ConfigurationError(
            f"Option 'history.path': {shown} '{settings.path}' has files in the format {listed(sorted(others))}. Only "
            "Parquet can be read"
        )
    if not tasks:
        raise ConfigurationError(f"Option 'history.path': {shown} '{settings.path}' has no rows")
    files = (ListedFile(_address(task.file.file_path), task.file.file_size_in_bytes, 0) for task in tasks)
    return sorted(files, key=lambda file: file.path), shown


def _opened(path: str) -> Any:
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.table import StaticTable
    except ImportError:
        raise MissingDependencyError("pyiceberg", "iceberg", "to read an Iceberg table as a history") from None
    try:
        if "/" in path:
            return StaticTable.from_metadata(path)
        catalog, _, name = path.partition(".")
        with closing(load_catalog(catalog)) as found:  # it may have connections to a database
            return found.load_table(name)
    except Exception as error:  # whatever its catalogs raise: they have no common class
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ConfigurationError(
            f"Option 'history.path': the Iceberg table '{path}' cannot be read: {reason}. Expected catalog.namespace.table "
            "with a catalog of pyiceberg's configuration (~/.pyiceberg.yaml, PYICEBERG_CATALOG__...), or the address of a "
            "metadata.json"
        ) from error


def _check_names(table: Any, shown: str) -> None:
    """Raise if a column was renamed: older files have its old name, and other columns may have had its new one."""
    names: dict[int, set[str]] = {}
    fields: dict[str, set[int]] = {}
    for schema in table.schemas().values():
        for field in schema.fields:
            names.setdefault(field.field_id, set()).add(field.name)
            fields.setdefault(field.name, set()).add(field.field_id)
    renamed = [name for of in names.values() if len(of) > 1 for name in sorted(of)]
    if renamed or (renamed := [name for name, ids in fields.items() if len(ids) > 1]):
        raise ConfigurationError(
            f"Option 'history.path': {shown} has columns that were renamed or added anew ({listed(renamed)}), so its files "
            "differ in what a name means. Copy it into a new table, and name that one"
        )


def _address(path: str) -> str:
    return f"file://{path}" if path.startswith("/") else path
