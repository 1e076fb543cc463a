"""Found by Spark itself: it imports every top-level module named `pyspark_*` and takes its `DefaultSource`.

Every Spark session on the machine runs this import, so it is quick and raises nothing: an error here would hide all other
data sources in Python from Spark, too. Where the format cannot work, each use of it says why.
"""

from typing import Any, NoReturn

__all__ = ["DefaultSource"]

try:
    from dynamic_kafka.spark.datasource import DynamicKafkaDataSource as DefaultSource
except Exception as error:  # noqa: BLE001  whatever is wrong with an installation
    import pyspark

    _IS_OLD = int(pyspark.__version__.partition(".")[0]) < 4
    _NEEDS = "needs Spark 4.0 or newer, and this is" if _IS_OLD else "cannot be loaded with"
    _PROBLEM = f"format('dynamic-kafka') {_NEEDS} Spark {pyspark.__version__}: {error}"

    def _refuse(self: object, options: dict[str, str]) -> NoReturn:
        del self, options
        raise ImportError(_PROBLEM)

    def _stand_in() -> Any:
        """Return a class that Spark takes for the format; None on Spark 3, which looks for no data sources."""
        try:
            from pyspark.sql.datasource import DataSource
        except ImportError:
            return None
        methods = {"__init__": _refuse, "name": classmethod(lambda _: "dynamic-kafka")}
        return type("DynamicKafkaDataSource", (DataSource,), methods)

    DefaultSource = _stand_in()  # type: ignore[misc]  # it stands for the class
