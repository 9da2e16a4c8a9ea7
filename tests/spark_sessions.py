"""The Spark session of a test's process, with settings for the few records of tests.

The JVM of the first session stays until the process ends, and later sessions use it. So all of them are made here: with other
options of Java, the first test would slow down all others of the process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    # The second compiler and the parallel collector need more CPU time than they save.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.python.authenticate.socketTimeout": "300s",  # for a slow machine
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
}


def local_session(settings: Mapping[str, str]) -> SparkSession:
    """A session with two threads and these settings. The caller stops it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    for key, value in {**_SETTINGS, **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
