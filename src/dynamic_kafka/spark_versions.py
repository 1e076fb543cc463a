"""What differs between the versions of Spark that are supported. No other module asks for a version.

Spark 4.1 has no admission control for sources in Python (SPARK-55304, Spark 4.2). There `latestOffset` has no arguments, so
the reader keeps the start of the next batch itself: Spark calls `partitions` with the last offsets that it knows before
anything else, also on a restart. Limits hold for each micro-batch, but a source cannot see that a trigger ignores them.

Spark 4.0 also has no TIME, and its class for writers of streams is one for rows. But any writer that is a
`DataSourceArrowWriter` gets Arrow batches.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import pyspark
from pyspark.sql.types import StructType

from dynamic_kafka.errors import ConfigurationError

__all__ = [
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "TimeType",
    "arrow_udf",
    "has_admission_control",
    "offset_of",
    "spark_version",
    "takes_values",
    "too_old",
]

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
    from pyspark.sql.types import DataType, TimeType
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
        from pyspark.sql.types import TimeType
    except ImportError:
        from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter
        from pyspark.sql.types import AtomicType

        class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
            """Stands for Spark's class, which this version does not have."""

        class TimeType(AtomicType):
            """The same. It can be named, but no column can have it."""

            def __init__(self, precision: int = 6) -> None:
                self.precision = precision

            @classmethod
            def typeName(cls) -> NoReturn:  # noqa: N802
                """Refuse to be used with Spark or Arrow."""
                raise too_old(
                    "The type TIME", "4.2", "Use another type, such as STRING or INT, or leave the column out"
                )

    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:

        class ReadLimit:
            """Stands for Spark's class, which this version does not have."""

        class ReadAllAvailable(ReadLimit):
            """The same."""

        class ReadMaxRows(ReadLimit):
            """The same."""

            def __init__(self, max_rows: int) -> None:
                self.max_rows = max_rows

        class SupportsTriggerAvailableNow:
            """The same."""


def too_old(what: str, since: str, instead: str) -> ConfigurationError:
    """Return what is said of something that this version of Spark lacks, before anything starts."""
    return ConfigurationError(
        f"{what} needs Spark {since} or newer, and this is Spark {pyspark.__version__}. {instead}"
    )


def spark_version() -> tuple[int, int]:
    """Return the version of Spark, such as (4, 2)."""
    major, minor = map(int, re.findall(r"\d+", pyspark.__version__)[:2])
    return major, minor


def takes_values() -> bool:
    """Return whether a function over Arrow arrays takes any columns, and not only bytes."""
    return spark_version() >= (4, 1)


def arrow_udf(function: Callable[..., pa.Array], result: DataType | str) -> Callable[..., Column]:
    """Return what makes a column of other columns, by a function over Arrow arrays; see `takes_values`."""
    if not takes_values():
        return _by_pandas(function, result)
    import pyarrow as pa
    from pyspark.sql.functions import arrow_udf as udf

    # Spark evaluates the annotations, which are texts here, and cannot resolve the names in them.
    function.__annotations__ = dict.fromkeys(function.__annotations__, pa.Array)
    return udf(function, result)  # type: ignore[call-overload, no-any-return]  # the stubs do not know that


def _by_pandas(function: Callable[..., pa.Array], result: DataType | str) -> Callable[..., Column]:
    """Return the same by a function over pandas, which keep bytes as they are, and the result in Arrow."""
    import pandas as pd
    from pyspark.sql.functions import pandas_udf

    def evaluate(*columns: pd.Series) -> pd.DataFrame:
        import pyarrow as pa

        return _frame(function(*(pa.array(column, pa.binary()) for column in columns)))

    evaluate.__annotations__ = {"columns": pd.Series, "return": pd.DataFrame}
    evaluate.__name__ = function.__name__  # plans show it
    row = f"found {result}" if isinstance(result, str) else StructType().add("found", result)
    udf: Any = pandas_udf(evaluate, row)  # type: ignore[call-overload]  # the stubs do not know that
    return lambda *columns: udf(*columns)["found"]


def _frame(found: pa.Array) -> pd.DataFrame:
    """Return a column "found" that Spark takes as it is: it would change lists, maps and structs element by element."""
    import pandas as pd

    class Series(pd.Series):
        def apply(self, *_: object) -> pd.Series:  # type: ignore[override]
            return self

    class DataFrame(pd.DataFrame):
        _constructor_sliced = Series

    return DataFrame({"found": pd.arrays.ArrowExtensionArray(found)})


def has_admission_control() -> bool:
    """Return whether Spark tells a source where a batch starts, and whether the trigger wants all that is there."""
    return spark_version() >= (4, 2)


def offset_of(shown: object) -> Any:
    """Return an offset of a source as it was, of what a query's progress shows. Before Spark 4.2 that is Python's text.

    Raises:
        ValueError: If it is neither JSON nor Python's text.
    """
    if not isinstance(shown, str):
        return shown
    try:
        return json.loads(shown)
    except ValueError:
        try:
            return ast.literal_eval(shown)
        except SyntaxError as error:
            raise ValueError(str(error)) from None
