"""`dynamic_kafka.register`, without Spark: when it registers the format."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from dynamic_kafka.spark.datasource import NAME, DynamicKafkaDataSource, activate, register_format


@pytest.mark.parametrize("known", [True, False, None])
def test_the_format_is_registered_once(known: bool | None) -> None:  # noqa: FBT001
    """Not if Spark has found it by itself; with Spark Connect nobody can be asked, and it is registered."""
    manager = Mock(dataSourceExists=Mock(return_value=known))
    session: Any = SimpleNamespace(dataSource=Mock(), conf=Mock())
    if known is not None:
        session._jsparkSession = Mock(**{"sessionState.return_value.dataSourceManager.return_value": manager})
    register_format(session)
    if known is not None:
        manager.dataSourceExists.assert_called_once_with(NAME)
    if known:
        session.dataSource.register.assert_not_called()
    else:
        session.dataSource.register.assert_called_once_with(DynamicKafkaDataSource)
    session.conf.set.assert_not_called()


def test_a_session_becomes_the_active_one() -> None:
    """Of the thread that calls, in the JVM; with Spark Connect there is none."""
    session = Mock()
    activate(session)
    session._get_j_spark_session_class.return_value.setActiveSession.assert_called_once_with(session._jsparkSession)
    activate(SimpleNamespace())  # type: ignore[arg-type]
