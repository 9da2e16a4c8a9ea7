"""The formats of a version's files: what differs between them is behind `Output`. Runs in the driver."""

from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from odradek.jobs.load.commit_log import Commit, DataFile, VersionDirectory
from odradek.jobs.load.errors import INSTALL_DELTA, LoadError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odradek.jobs.load.summary import Summary

PARQUET, DELTA = "parquet", "delta"
FORMATS = (PARQUET, DELTA)


class Output(Protocol):
    """How the files of a version become visible to readers together with the commit that names them."""

    def recover(self, version: VersionDirectory) -> Commit | None:
        """Finish what a run that died had committed, and remove the rest. Returns the newest commit. Raises LoadError."""

    def commit(self, version: VersionDirectory, begun: Commit) -> Commit:
        """Make a commit and its files, which are in staging, part of the output. Returns the commit as it was written.

        :raises LostRaceError: another run committed first. :raises LoadError: the output cannot be written to
        """

    def merge(self, version: VersionDirectory, least: int, threads: int | None = None) -> Commit | None:
        """Merge the small files of directories that have at least `least` of them. The caller holds the lock, after `recover`.

        :returns: the commit; None if there is nothing to merge
        :raises LoadError: a file does not have the records that its commit says, or the files cannot be replaced
        """

    def crowded(self, version: VersionDirectory, files: Iterable[DataFile], least: int) -> bool:
        """Whether a directory of these files has at least `least` files; cheap, for a run that has just written them."""

    def current_files(self, version: VersionDirectory, written: Mapping[str, DataFile]) -> Mapping[str, DataFile]:
        """The files that readers find, by path. :param written: those of the commits. Raises LoadError."""

    def differences(self, version: VersionDirectory, summary: "Summary") -> Iterator[str]:
        """Sentences about files that are not as the commits say, without reading them. Raises LoadError."""

    def frame(self, spark: "SparkSession", version: VersionDirectory, summary: "Summary") -> "DataFrame | None":
        """The records in the files that exist, with the columns of `frames.COLUMNS`; None if there are none."""


class ParquetOutput:
    """Parquet files that readers find by listing directories; see `Output`."""

    def recover(self, version: VersionDirectory) -> Commit | None:
        from odradek.jobs.load.publishing import recover

        return recover(version)

    def commit(self, version: VersionDirectory, begun: Commit) -> Commit:
        from odradek.jobs.load.publishing import publish

        version.append(begun)
        publish(version, begun)
        return begun

    def merge(self, version: VersionDirectory, least: int, threads: int | None = None) -> Commit | None:
        from odradek.jobs.load.merge import merge

        return merge(version, least, threads)

    def crowded(self, version: VersionDirectory, files: Iterable[DataFile], least: int) -> bool:
        from odradek.jobs.load.merge import crowded

        return crowded(version, files, least)

    def current_files(self, version: VersionDirectory, written: Mapping[str, DataFile]) -> Mapping[str, DataFile]:
        return written

    def differences(self, version: VersionDirectory, summary: "Summary") -> Iterator[str]:
        from odradek.jobs.load.verify import differences_in_directory

        return differences_in_directory(version, summary)

    def frame(self, spark: "SparkSession", version: VersionDirectory, summary: "Summary") -> "DataFrame | None":
        from odradek.jobs.load.verify import files_frame

        return files_frame(spark, version, summary)


def check_format(name: str, version: VersionDirectory) -> None:
    """Raises LoadError if a package that the format needs is missing, or cannot use the directory of the version."""
    if name == DELTA and find_spec("deltalake") is None:
        raise LoadError(f"the Python package deltalake is missing: {INSTALL_DELTA}")
    if name == DELTA and "%" in str(version.path):
        raise LoadError(
            f"{version.path}: the package deltalake cannot use a path with '%': use another --out, or --format parquet"
        )


def format_of(version: VersionDirectory) -> Output:
    """The format of a version that exists. Raises LoadError if it is unknown, or its package is missing."""
    head = version.head()
    name = PARQUET if head is None else head.table
    if name == PARQUET:
        return ParquetOutput()
    if name == DELTA:
        check_format(name, version)
        from odradek.jobs.load.delta_output import DeltaOutput

        return DeltaOutput()
    raise LoadError(f"{version.log}/version.json: the format of the files is {name!r}; expected {' or '.join(FORMATS)}")
