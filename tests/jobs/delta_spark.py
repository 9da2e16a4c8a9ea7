"""Reads or changes a Delta table with Spark: ``python -m tests.jobs.delta_spark JARS TABLE read``, or ``change``.

A separate program, because its JVM needs Delta's jars. Prints JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.spark_sessions import local_session

_RECORD = (
    "topic, partition, offset, unix_millis(timestamp) as at, timestamp_type, hex(key) as key, hex(value) as value,"
    " transform(headers, header -> array(header.key, hex(header.value))) as headers"
)


def session(jars: Path) -> SparkSession:
    """A session with Delta."""
    return local_session(
        {
            "spark.jars": ",".join(map(str, jars.glob("*.jar"))),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.adaptive.enabled": "false",  # so that the plan has its metrics
            "spark.databricks.delta.snapshotPartitions": "2",
        }
    )


def files_read(frame: DataFrame) -> tuple[int, int]:
    """The number of rows of a frame, and of files that Spark opens for them."""
    rows = len(frame.collect())
    leaf = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    return rows, leaf.metrics().apply("numFiles").value()


def read(spark: SparkSession, table: str) -> dict[str, Any]:
    """What Spark finds in the table."""
    frame = spark.read.format("delta").load(table)
    history = spark.sql(f"describe history delta.`{table}`").select("version", "operation", "userMetadata").collect()
    versions = sorted(row["version"] for row in history)
    return {
        "records": [list(row) for row in frame.selectExpr(*_split(_RECORD)).collect()],
        "schema": frame.schema.simpleString(),
        "history": {row["version"]: row["userMetadata"] for row in history},
        "counts": [spark.read.format("delta").option("versionAsOf", at).load(table).count() for at in versions],
        "all": files_read(frame.select("offset")),
        "of pay": files_read(frame.where("topic = 'pay'").select("offset")),
        "of no date": files_read(frame.where("date < '2000-01-01'").select("offset")),
        "of offset 0": files_read(frame.where("offset = 0").select("offset")),
    }


def _split(text: str) -> list[str]:
    """Expressions at the commas that are in no parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def change(spark: SparkSession, table: str) -> dict[str, Any]:
    """Compact the table, and delete a record with a deletion vector."""
    spark.sql(f"optimize delta.`{table}`").collect()
    spark.sql(f"alter table delta.`{table}` set tblproperties ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"delete from delta.`{table}` where topic = 'orders' and partition = 0 and offset = 3")
    frame = spark.read.format("delta").load(table)
    return {"count": frame.count(), "features": sorted(_features(spark, table))}


def _features(spark: SparkSession, table: str) -> list[str]:
    return list(spark.sql(f"describe detail delta.`{table}`").collect()[0]["tableFeatures"])


if __name__ == "__main__":
    jars, table, what = sys.argv[1:]
    print(json.dumps({"read": read, "change": change}[what](session(Path(jars)), table)))
