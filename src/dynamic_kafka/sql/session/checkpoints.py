"""The folders of checkpoints. They are looked at through Spark, which may reach what this process does not reach."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from dynamic_kafka.files import open_files
from dynamic_kafka.sql.session.config import TableConfig
from dynamic_kafka.sql.session.connect import is_connect

__all__ = ["checkpoint_of", "exists", "has_begun", "numbers_in"]


def checkpoint_of(spark: SparkSession, config: TableConfig, name: str) -> str | None:
    """Return the folder of a job's checkpoint, which need not exist; None if no setting says where checkpoints are."""
    folder = config.get("execution.checkpointing.dir")
    if folder is not None:
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
        if plain != name:  # of two jobs with one folder, Spark would stop the first without an error
            plain += f"-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        return f"{folder.rstrip('/')}/{plain}"
    of_session = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    return f"{of_session.rstrip('/')}/{name}" if of_session else None


def has_begun(spark: SparkSession, checkpoint: str) -> bool:
    """Return whether a query has been started with a checkpoint."""
    return exists(spark, f"{checkpoint}/metadata")


def exists(spark: SparkSession, path: str) -> bool:
    """Return whether there is a file or a folder."""
    try:
        return bool(spark.read.format("text").load(path).columns)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return False
        raise


def numbers_in(spark: SparkSession, log: str) -> list[int] | None:
    """Return the numbers of the micro-batches in a folder of Spark, such as `offsets`; None if there is no such folder.

    Spark's file sources do not show what is in `_spark_metadata`, so they are not asked.

    Raises:
        CheckpointError: In Spark Connect, if this process cannot reach the folder.
    """
    if not exists(spark, log):
        return None
    names = (name.removesuffix(".compact") for name in _names_in(spark, log))
    return [int(name) for name in names if name.isdigit()]


def _names_in(spark: Any, folder: str) -> list[str]:
    if is_connect(spark):
        return open_files(folder).names("")
    path = spark._jvm.org.apache.hadoop.fs.Path(folder)
    files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).listStatus(path)
    return [str(file.getPath().getName()) for file in files]
