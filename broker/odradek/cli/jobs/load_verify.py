"""``odradek load verify``: compares commits, files, broker and usage metering. Runs in the process of the command, with
Spark.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.framework.command import HelpfulCommand
from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail
from odradek.cli.framework.options import (
    BOOTSTRAP_OPTION,
    TIMEOUT_OPTION,
    complete_paths,
    connection_to,
    fail_on_cluster,
)
from odradek.cli.jobs.load import OUT_OPTION, VERSION_OPTION, check_python, output_of, spark_and_reader, spark_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from odradek.jobs.load.commit_log import VersionDirectory
    from odradek.jobs.load.frames import Reader
    from odradek.jobs.load.job import SparkOptions
    from odradek.jobs.load.offsets import ClusterState
    from odradek.jobs.load.summary import Summary


@click.command("verify", cls=HelpfulCommand)
@OUT_OPTION
@VERSION_OPTION
@click.option("--files-only", is_flag=True, help="Compare only the files with the commits, and connect to no broker.")
@click.option(
    "--usage",
    metavar="DIR",
    shell_complete=complete_paths,
    help="Also compare with what the broker counted: the output directory of `odradek report usage`.",
)
@spark_options
@TIMEOUT_OPTION
@BOOTSTRAP_OPTION
def verify(
    servers: str, timeout: float, out: str, name: str, files_only: bool, usage: str | None, **options: Any
) -> None:
    """Compare the files of a version with its commits, and with the records that the broker still has.

    Counts, first and last offsets and checksums of each partition must be equal. Exit code 1 if something differs; the
    command prints the partition and the offsets.
    """
    check_python()
    from odradek.cli.framework.output import count
    from odradek.clients.errors import ClientError
    from odradek.jobs.load.commit_log import VersionDirectory, checked_name
    from odradek.jobs.load.errors import LoadError
    from odradek.jobs.load.summary import summary_of

    try:
        version = VersionDirectory(output_of(out), checked_name(name))
        summary = summary_of(version)
        tables = None if usage is None else _tables(usage)
        state, compacted = None, frozenset[str]()
        if not files_only:
            state, compacted = _broker(servers, timeout, summary)
        reader, spark = spark_and_reader(servers, **options)
        differing = 0
        with version.locked():
            summary = summary_of(version)
            for difference in _differences(version, summary, state, compacted, reader, spark, tables):
                echo(difference)
                differing += 1
    except ClientError as error:
        fail_on_cluster(error, servers)
    except LoadError as error:
        fail(error)
    if differing:
        fail(f"{version.path}: {differing} differences")
    where = "its commits" if state is None else "its commits and the broker"
    compared = f"{count(summary.records, 'record')} of {count(len(summary.partitions), 'partition')}"
    echo(f"{version.path}: {compared} agree with {where}")


def _tables(usage: str) -> Path:
    from odradek.jobs.load.errors import LoadError

    path = Path(usage) / "tables"
    for table in ("traffic_hourly", "coverage_hourly"):
        if not (path / table).is_dir():
            raise LoadError(
                f"--usage {usage}: has no tables/{table}; expected the output directory of `odradek report usage`"
            )
    return path


def _broker(servers: str, timeout: float, summary: "Summary") -> "tuple[ClusterState, frozenset[str]]":
    from odradek.cli.jobs.load_source import cluster_state
    from odradek.clients import configs
    from odradek.jobs.load.errors import LoadError

    with connection_to(servers, timeout) as cluster:
        state = cluster_state(cluster, sorted(summary.positions))
        if state.cluster_id != summary.head.cluster_id:
            raise LoadError(
                f"version {summary.head.version} was loaded from cluster {summary.head.cluster_id}, and this is cluster"
                f" {state.cluster_id}: name its brokers with -b, or use --files-only"
            )
        policies = configs.of_topics(cluster, sorted(state.topics), "cleanup.policy")
    return state, frozenset(name for name, entry in policies.items() if "compact" in (entry.value or ""))


def _differences(
    version: "VersionDirectory",
    summary: "Summary",
    state: "ClusterState | None",
    compacted: frozenset[str],
    reader: "Reader",
    options: "SparkOptions",
    tables: Path | None,
) -> "Iterator[str]":
    from odradek.jobs.load import job
    from odradek.jobs.load import verify as checks
    from odradek.jobs.load.output import format_of

    output = format_of(version)
    yield from checks.differences_in_log(summary)
    yield from output.differences(version, summary)
    with job.spark_of(version, options, summary.records <= job.LITTLE) as spark, job.quietly(version):
        files = output.frame(spark, version, summary)
        found = {} if files is None else checks.totals(files)
        yield from checks.differences_in_files(summary, found)
        if state is not None:
            there = checks.still_there(summary, state)
            for note in there.notes:
                echo(f"not compared: {note}")
            yield from checks.differences_from_broker(spark, reader, files, there.ranges, compacted)
        if tables is not None:
            for topic in checks.metering(spark, tables, files, summary):
                echo(
                    f"{topic.topic}: {topic.loaded} records loaded in {topic.hours} whole hours, {topic.metered} counted by the"
                    f" broker: {'equal' if topic.loaded == topic.metered else f'{topic.loaded - topic.metered:+}'}"
                )
