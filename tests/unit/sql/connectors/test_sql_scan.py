"""How a table's columns are made, and which values the kernel decodes while it fetches them."""

from __future__ import annotations

import logging
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import utils
from tests.unit.sql.tables.test_sql_options import table

from dynamic_kafka.formats.expressions import without_call_sites
from dynamic_kafka.sql.connectors.scan import _check_drift
from dynamic_kafka.sql.queries.catalog import Catalog
from dynamic_kafka.sql.session.config import TableConfig
from dynamic_kafka.sql.tables.table import KafkaTable

OPTIONS = {
    "connector": "kafka",
    "topic": "t",
    "properties.bootstrap.servers": "h:9092",
    "key.format": "json",
    "key.fields": "id",
    "value.format": "json",
}


def session(**conf: str) -> Any:
    """A Spark session with a setting."""
    return SimpleNamespace(conf=SimpleNamespace(get=lambda name: conf.get(name.rpartition(".")[2])))


def test_a_setting_is_the_idle_timeout_of_tables_without_one() -> None:
    """`SET 'table.exec.source.idle-timeout'`; 0, Flink's default, is the default of the option."""
    config = TableConfig(session(), lambda: None)
    environment: Any = SimpleNamespace(config=config)
    plain, own = table(OPTIONS), table(OPTIONS | {"scan.watermark.idle-timeout": "5 s"})
    for value, expected in (("30 s", "30 s"), ("0", None)):
        config.set("table.exec.source.idle-timeout", value)
        of_plain, of_own = (Catalog.with_defaults(environment, found) for found in (plain, own))
        assert isinstance(of_plain, KafkaTable)
        assert isinstance(of_own, KafkaTable)
        assert of_plain.source.get("scan.watermark.idle-timeout") == expected
        assert of_own.source["scan.watermark.idle-timeout"] == "5 s"


def test_a_drift_of_more_than_the_delay_of_the_table_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The table's watermark says how late rows may be."""
    columns = "id BIGINT, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
    found = table(OPTIONS, columns)
    with caplog.at_level(logging.WARNING):
        _check_drift(found, None)
        _check_drift(found, 5_000)
        assert not caplog.records
        _check_drift(found, 5_001)
    assert "5001 ms, which is more than the delay of its watermark (5 SECOND)" in caplog.text


def test_columns_of_a_table_have_no_call_sites_and_those_of_the_user_keep_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark's own function says so, and its state is as before, also after an error."""
    for before in (True, False):
        monkeypatch.setattr(utils, "_enable_debugging_cache", before)
        with suppress(KeyError), without_call_sites():
            raise KeyError
        assert utils.is_debugging_enabled() == before
        with without_call_sites():
            assert not utils.is_debugging_enabled()
        assert utils.is_debugging_enabled() == before
