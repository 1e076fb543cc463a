"""`dynamic_kafka.register`, without Spark: when it registers the format."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from dynamic_kafka.spark.datasource import NAME, DynamicKafkaDataSource, register_format


@pytest.mark.parametrize("known", [True, False, None])
def test_the_format_is_registered_once(known: bool | None) -> None:  # noqa: FBT001
    """Not if Spark has found it by itself; with Spark Connect nobody can be asked, and it is registered."""
    manager = Mock(dataSourceExists=Mock(return_value=known))
    session: Any = SimpleNamespace(dataSource=Mock())
    if known is not None:
        session._jsparkSession = Mock(**{"sessionState.return_value.dataSourceManager.return_value": manager})
    register_format(session)
    if known is not None:
        manager.dataSourceExists.assert_called_once_with(NAME)
    if known:
        session.dataSource.register.assert_not_called()
    else:
        session.dataSource.register.assert_called_once_with(DynamicKafkaDataSource)
