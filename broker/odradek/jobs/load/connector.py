"""Finds Spark's Kafka connector, which is not part of PySpark: in a directory, in PySpark's own, or in a Maven repository.

Runs in the driver, before Spark starts.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from odradek.jobs.load.errors import INSTALL, LoadError
from odradek.jobs.load.frames import KAFKA, PYTHON

AUTO = "auto"
READERS = (AUTO, KAFKA, PYTHON)
_ARTIFACT = "spark-sql-kafka-0-10_2.13"
_CENTRAL = "https://repo1.maven.org/maven2/"
_PROBE_S = 5
#: Settings of Spark with which its users choose a Maven repository themselves.
_IVY = ("spark.jars.packages", "spark.jars.ivySettings", "spark.jars.repositories")


def find(reader: str, jars: str | None, settings: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Choose how Spark reads.

    :param reader: AUTO, KAFKA or PYTHON. :param jars: the directory of the connector and its dependencies, or None
    :param settings: those of the user for Spark
    :returns: KAFKA or PYTHON, and the settings of Spark for it
    :raises LoadError: the connector cannot be found, or the directory has no connector
    """
    if jars is not None and reader == PYTHON:
        raise LoadError(f"--connector-jars {jars} is for --reader kafka, and --reader is python: name one of them")
    if jars is not None:
        return KAFKA, {"spark.jars": ",".join(_jars_in(Path(jars)))}
    if reader == PYTHON:
        return PYTHON, {}
    coordinate, own = _of_pyspark()
    if own or "spark.jars" in settings:
        return KAFKA, {}
    if any(key in settings for key in _IVY):
        named = settings.get("spark.jars.packages")
        return KAFKA, {"spark.jars.packages": ",".join(filter(None, (named, coordinate)))}
    if _in_ivy_cache(coordinate) or _reachable(_CENTRAL):
        return KAFKA, {"spark.jars.packages": coordinate}
    reason = f"{urlsplit(_CENTRAL).hostname} cannot be reached"
    if reader == KAFKA:
        raise LoadError(
            f"--reader kafka: Spark's Kafka connector ({coordinate}) is not installed, and {reason}: name the directory of its"
            " jars with --connector-jars, or a repository with --conf spark.jars.repositories=URL, or use --reader python"
        )
    return PYTHON, {}


def _jars_in(directory: Path) -> list[str]:
    found = sorted(str(path.absolute()) for path in directory.glob("*.jar"))
    if not any(_ARTIFACT in Path(path).name for path in found):
        problem = "has no" if directory.is_dir() else "is no directory with"
        raise LoadError(f"--connector-jars {directory}: {problem} {_ARTIFACT}-VERSION.jar")
    return found


def _of_pyspark() -> tuple[str, bool]:
    """The Maven coordinate of the connector, and whether its jar is among those of PySpark."""
    try:
        import pyspark
    except ImportError as error:
        raise LoadError(f"PySpark is missing ({error}): {INSTALL}") from None
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    return f"org.apache.spark:{_ARTIFACT}:{pyspark.__version__}", any((home / "jars").glob(f"{_ARTIFACT}-*.jar"))


def _in_ivy_cache(coordinate: str) -> bool:
    group, artifact, version = coordinate.split(":")
    return any(Path.home().glob(f".ivy2*/jars/{group}_{artifact}-{version}.jar"))


def _reachable(url: str) -> bool:
    try:
        with urlopen(Request(url, method="HEAD"), timeout=_PROBE_S):
            return True
    except (URLError, OSError):
        return False
