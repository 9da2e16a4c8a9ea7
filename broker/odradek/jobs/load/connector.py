"""Finds Spark's Kafka connector, which is not part of PySpark: in a directory, in PySpark's own, or in a Maven repository.

Runs in the driver, before Spark starts.
"""

import hashlib
import http.client
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

from odradek.jobs.load.errors import INSTALL, LoadError
from odradek.jobs.load.frames import KAFKA, PYTHON

AUTO = "auto"
READERS = (AUTO, KAFKA, PYTHON)
_ARTIFACT = "spark-sql-kafka-0-10_2.13"
_CENTRAL = "https://repo1.maven.org/maven2/"
_TIMEOUT_S = 10
#: Settings of Spark with which its users choose a Maven repository themselves.
_IVY = ("spark.jars.packages", "spark.jars.ivySettings", "spark.jars.repositories")
PYSPARK = "4.0.0"
"""The version of PySpark whose connector can be downloaded."""
JARS = {
    "org/apache/spark/spark-sql-kafka-0-10_2.13/4.0.0/spark-sql-kafka-0-10_2.13-4.0.0.jar":
        "33a3b8b04df4a2e43c9d5bf8ca5972936a1ac662f2714e014d00ef6f27468bf3",
    "org/apache/spark/spark-token-provider-kafka-0-10_2.13/4.0.0/spark-token-provider-kafka-0-10_2.13-4.0.0.jar":
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    "org/apache/kafka/kafka-clients/3.9.0/kafka-clients-3.9.0.jar":
        "15c1e137f2c2c94398e27abc4060a03b6bde10bf9fac15e8f70c02320b202f18",
    "org/apache/commons/commons-pool2/2.12.0/commons-pool2-2.12.0.jar":
        "6d3bd18df8410f3e31b031aca582cc109342358a62a2759ebd0c4cdf30d06f8b",
}  # fmt: skip
"""The connector and what PySpark does not have of its dependencies: paths in a Maven repository, and the SHA-256 of each."""


def find(reader: str, jars: str | None, settings: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Choose how Spark reads.

    :param reader: AUTO, KAFKA or PYTHON. :param jars: the directory of the connector and its dependencies, or None
    :param settings: those of the user for Spark
    :returns: KAFKA or PYTHON, and the settings of Spark for it
    :raises LoadError: the connector cannot be found, the directory has no connector, or a jar has another checksum than it
        should have
    """
    if jars is not None and reader == PYTHON:
        raise LoadError(f"--connector-jars {jars} is for --reader kafka, and --reader is python: name one of them")
    if jars is not None:
        return KAFKA, {"spark.jars": ",".join(_jars_in(Path(jars)))}
    if reader == PYTHON:
        return PYTHON, {}
    version, own = _of_pyspark()
    coordinate = f"org.apache.spark:{_ARTIFACT}:{version}"
    if own or "spark.jars" in settings:
        return KAFKA, {}
    if any(key in settings for key in _IVY):
        named = settings.get("spark.jars.packages")
        return KAFKA, {"spark.jars.packages": ",".join(filter(None, (named, coordinate)))}
    try:
        return KAFKA, {"spark.jars": ",".join(_downloaded(version))}
    except (OSError, http.client.HTTPException) as error:
        if reader == AUTO:
            return PYTHON, {}
        raise LoadError(
            f"--reader kafka: Spark's Kafka connector ({coordinate}) is not installed, and cannot be downloaded from"
            f" {urlsplit(_CENTRAL).hostname}: {error}; name the directory of its jars with --connector-jars, or a repository"
            " with --conf spark.jars.repositories=URL, or use --reader python"
        ) from None


def _downloaded(version: str) -> list[str]:
    """The paths of the connector's jars, which are downloaded once for each user. Raises OSError, HTTPException, LoadError."""
    if version != PYSPARK:
        raise OSError(f"the checksums of its jars are known for PySpark {PYSPARK} only, and this is {version}")
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    directory = Path(cache) / "odradek" / f"spark-connector-{version}"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return [str(_jar(directory / path.rpartition("/")[2], path, checksum)) for path, checksum in JARS.items()]


def _jar(file: Path, path: str, checksum: str) -> Path:
    """A jar with this checksum, downloaded if it is not there."""
    try:
        _check(file.read_bytes(), checksum, str(file))
    except FileNotFoundError:
        with urlopen(_CENTRAL + path, timeout=_TIMEOUT_S) as response:
            data: bytes = response.read()
        _check(data, checksum, _CENTRAL + path)
        new = file.with_name(f"{file.name}.{os.getpid()}")
        new.write_bytes(data)
        new.replace(file)
    return file


def _check(data: bytes, checksum: str, place: str) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != checksum:
        raise LoadError(
            f"{place} has the SHA-256 {found}, and should have {checksum}: do not use it; delete the file if it is a local one,"
            " and ask who changed it"
        )


def _jars_in(directory: Path) -> list[str]:
    found = sorted(str(path.absolute()) for path in directory.glob("*.jar"))
    if not any(_ARTIFACT in Path(path).name for path in found):
        problem = "has no" if directory.is_dir() else "is no directory with"
        raise LoadError(f"--connector-jars {directory}: {problem} {_ARTIFACT}-VERSION.jar")
    return found


def _of_pyspark() -> tuple[str, bool]:
    """The version of PySpark, and whether the jar of the connector is among its own."""
    try:
        import pyspark
    except ImportError as error:
        raise LoadError(f"PySpark is missing ({error}): {INSTALL}") from None
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    return pyspark.__version__, any((home / "jars").glob(f"{_ARTIFACT}-*.jar"))
