"""``odradek load``: run, merge, versions; verify is in ``load_verify.py``.

Checks the options, asks the brokers, and runs the Spark job in the process of the command.
"""

import os
import re
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail
from odradek.cli.framework.lazy import LazyGroup
from odradek.cli.framework.options import (
    BOOTSTRAP_OPTION,
    JSON_OPTION,
    TIMEOUT_OPTION,
    command_config_file,
    complete_paths,
    complete_topics,
    connection_to,
    fail_on_cluster,
    key_values,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.jobs.load.commit_log import Head, VersionDirectory
    from odradek.jobs.load.decoding import Decoding
    from odradek.jobs.load.frames import Reader
    from odradek.jobs.load.job import SparkOptions
    from odradek.jobs.load.offsets import ClusterState, Plan

_YEAR_10000_MS = 253_402_300_800_000
_PATTERN = "*?[]{}\\"
OUT_OPTION = click.option(
    "--out",
    metavar="DIR",
    required=True,
    shell_complete=complete_paths,
    help="Directory of the output, with its versions.",
)
VERSION_OPTION = click.option(
    "--version", "name", metavar="NAME", default="main", show_default=True, help="Version of the output."
)
SPARK_OPTIONS = (
    click.option("--master", metavar="URL", help="URL of the Spark master.  [default: local[*,4]]"),
    click.option("--memory", metavar="SIZE", default="1g", show_default=True, help="Heap size of Spark's driver."),
    click.option(
        "--reader",
        type=click.Choice(("auto", "kafka", "python")),
        default="auto",
        show_default=True,
        help="Read with Spark's Kafka connector, or with Odradek's own client in Spark's Python workers; auto uses the"
        " connector if it is installed or can be downloaded from Maven Central.",
    ),
    click.option(
        "--connector-jars",
        metavar="DIR",
        shell_complete=complete_paths,
        help="Directory with the jars of Spark's Kafka connector and of its dependencies.",
    ),
    click.option(
        "--conf",
        "spark_settings",
        metavar="KEY=VALUE",
        multiple=True,
        callback=key_values,
        help="A setting of Spark. Repeatable.",
    ),
    click.option(
        "--min-partitions",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Least number of tasks that read; 0: one for each partition of the topics.",
    ),
)


def spark_options(command: Any) -> Any:
    """Add the options about Spark."""
    for option in reversed(SPARK_OPTIONS):
        command = option(command)
    return command


@click.group(
    cls=LazyGroup,
    lazy={
        "verify": ("odradek.cli.jobs.load_verify:verify", "Compare the files with their commits and with the broker."),
    },
)
def load() -> None:
    """Load topics into Parquet files or Delta tables with Spark, each record once."""


@load.command("run")
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topics)
@click.option(
    "--topics-matching",
    metavar="REGEX",
    help="Also load topics whose whole name matches this regular expression of Python; each run looks for new ones. Internal"
    " topics are left out.",
)
@OUT_OPTION
@VERSION_OPTION
@click.option(
    "--from",
    "from_",
    metavar="TIME",
    help="Load from each partition's first record of this time or later: 2026-01-31T12:00Z, -1h or ms since 1970. Needs"
    " --version.",
)
@click.option(
    "--to",
    metavar="TIME",
    help="Load until each partition's first record of this time or later, without this record. Needs --version.",
)
@click.option(
    "--max-offsets",
    type=click.IntRange(1),
    default=5_000_000,
    show_default=True,
    help="Commit after about this number of offsets, so that a load that is stopped keeps what it has loaded.",
)
@click.option(
    "--merge-at",
    type=click.IntRange(0),
    default=64,
    show_default=True,
    help="Merge small files (below 64 MiB) of a topic and date when there are this many; 0: never.",
)
@click.option(
    "--value",
    "value",
    type=click.Choice(("raw", "json", "avro")),
    default="raw",
    show_default=True,
    help="json: also decode values, into the column decoded. The column value always has the original bytes.",
)
@click.option(
    "--schema",
    metavar="COLUMNS|FILE|SUBJECT",
    help="With --value json: the columns of the values, such as 'id bigint, name string', or a file with them. With --value"
    " avro: a file with the reader schema, or a subject of the registry.",
)
@click.option(
    "--registry", metavar="URL", help="With --value avro: the schema registry, such as https://registry.example:8081."
)
@click.option(
    "--registry-config",
    metavar="FILE",
    shell_complete=complete_paths,
    help="Properties for --registry: basic.auth.user.info=USER:PASSWORD, ssl.ca.location, ssl.certificate.location,"
    " ssl.key.location, ssl.key.password.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(("parquet", "delta")),
    help="Format of the version's files: Parquet files, or a Delta table (needs the package deltalake).  [default: that of the"
    " version; parquet for a new one]",
)
@click.option("--dry-run", is_flag=True, help="Show the offsets that would be loaded, and write nothing.")
@spark_options
@TIMEOUT_OPTION
@BOOTSTRAP_OPTION
def run_load(
    servers: str,
    timeout: float,
    topics: tuple[str, ...],
    topics_matching: str | None,
    out: str,
    name: str,
    **options: Any,
) -> None:
    """Load what is new in the topics. If a run was killed, repeat it with the same command.

    Exit code 3 if data is missing: records were deleted before they were loaded, or a topic was deleted or created again. The
    run loads the rest, and prints what is missing; DIR/version=NAME/_odradek_load/runs.jsonl has it too.
    """
    check_python()
    from odradek.cli.framework.output import count
    from odradek.cli.jobs.load_source import cluster_state, patiently, topics_of
    from odradek.clients.errors import ClientError
    from odradek.jobs.load import job
    from odradek.jobs.load.commit_log import VersionDirectory, checked_name
    from odradek.jobs.load.errors import LoadError
    from odradek.jobs.load.page import write_page

    period = _period(options.pop("from_"), options.pop("to"), name)
    pattern = _pattern(topics_matching, topics)
    try:
        version = VersionDirectory(output_of(out), checked_name(name))
        decoding = _decoding(version, **options)

        def look() -> "ClusterState":
            with connection_to(servers, timeout) as cluster:
                newest = version.newest()
                names = topics_of(cluster, topics, pattern, newest.positions if newest else ())
                return cluster_state(cluster, names, *period)

        say = printer()
        state = look()
        _check_topics(version, state, servers, timeout)
        head = _head(version, state, period, decoding.text, options["format_"])
        if options["dry_run"]:
            job.check_version(version, head)
            _show(job.plan_of(version, state))
            return
        reader, spark = spark_and_reader(servers, **options)
        version = job.open_version(version.output, name, head)
        outcome = job.run(
            version,
            patiently(look),
            options["max_offsets"],
            lambda plan: job.spark_writer(version, reader, spark, decoding, say, plan),
            say,
            options["merge_at"],
        )
        page = write_page(version)
    except ClientError as error:
        fail_on_cluster(error, servers)
    except LoadError as error:
        fail(error)
    except OSError as error:
        fail(f"--out {out}: {error.filename or 'a file'}: {error.strerror}; what was committed before is loaded")
    echo(f"{count(outcome.records, 'record')} in {count(outcome.commits, 'commit')}: {version.path}")
    echo(f"summary: {page}")
    raise SystemExit(outcome.exit_status)


@load.command("merge")
@OUT_OPTION
@VERSION_OPTION
@click.option(
    "--at-least",
    type=click.IntRange(2),
    default=2,
    show_default=True,
    help="Merge the small files of a topic and date if there are at least this many.",
)
def merge(out: str, name: str, at_least: int) -> None:
    """Merge small files (below 64 MiB) of each topic and date. Readers find each record once, before and after."""
    check_python()
    from odradek.jobs.load import job
    from odradek.jobs.load.commit_log import VersionDirectory, checked_name
    from odradek.jobs.load.errors import LoadError
    from odradek.jobs.load.output import format_of
    from odradek.jobs.load.summary import summary_of

    try:
        version = VersionDirectory(output_of(out), checked_name(name))
        summary_of(version)
        with version.locked():
            format_of(version).recover(version)
            if job.merge_small(version, at_least, echo) is None:
                echo(f"{version.path}: no topic and date has {at_least} small files")
    except LoadError as error:
        fail(error)


@load.command("versions")
@OUT_OPTION
@JSON_OPTION
def versions(out: str, as_json: bool) -> None:
    """List the versions in an output directory, with the contents of each."""
    from odradek.cli.framework.output import echo_json, print_table
    from odradek.jobs.load.commit_log import versions as find
    from odradek.jobs.load.errors import LoadError
    from odradek.jobs.load.summary import TITLES, summary_of

    try:
        found = [summary_of(version) for version in find(output_of(out))]
    except LoadError as error:
        fail(error)
    if as_json:
        echo_json([summary.document() for summary in found])
        return
    empty = f"--out {out}: has no version of `odradek load`; `odradek load run` creates one"
    rows = [summary.row() for summary in found]
    print_table(TITLES, rows, empty)


def check_python() -> None:
    """End the command if a package of the job is missing."""
    for package in ("pyspark", "pyarrow", "numpy", "pandas"):
        if find_spec(package) is None:
            from odradek.jobs.load.errors import INSTALL

            fail(f"the Python package {package} is missing: {INSTALL}")


def printer() -> "Callable[[str], None]":
    """Return what prints lines on standard error, also while file descriptor 2 is redirected to the log of Spark."""
    try:
        stream = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="backslashreplace")
    except OSError:  # not a file, or closed
        return partial(echo, err=True)
    return partial(echo, file=stream)


def output_of(out: str) -> Path:
    """The directory of --out. Raises LoadError if it is none."""
    from odradek.jobs.load.commit_log import LOG
    from odradek.jobs.load.errors import LoadError

    if "://" in out:
        raise LoadError(
            f"--out {out}: expected a directory of a file system, which all machines of a Spark cluster share"
        )
    if any(letter in _PATTERN for letter in out):
        raise LoadError(f"--out {out!r}: expected a name without {' '.join(_PATTERN)}, which Spark takes for patterns")
    path = Path(out).absolute()
    if path.exists() and not path.is_dir():
        raise LoadError(f"--out {out}: is a file; expected a directory")
    if (path / LOG).exists():
        raise LoadError(f"--out {out}: is a version; expected the directory above it, {path.parent}")
    return path


def _decoding(version: "VersionDirectory", **options: Any) -> "Decoding":
    """How values are decoded, as in earlier runs into the version. Raises LoadError, ClientError."""
    from odradek.cli.jobs.load_source import registry_named
    from odradek.jobs.load.decoding import decoding_of

    registry = registry_named(options["registry"], options["registry_config"])
    begun = version.head() if version.is_begun else None
    before = None if begun is None else begun.decoding
    return decoding_of(options["value"], options["schema"], registry, before)


def _pattern(text: str | None, topics: tuple[str, ...]) -> re.Pattern[str] | None:
    if text is None:
        if not topics:
            fail("no topic is named: name topics, or use --topics-matching REGEX")
        return None
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        fail(f"--topics-matching {text!r}: expected a regular expression: {error}")


def _period(from_: str | None, to: str | None, name: str) -> tuple[int | None, int | None]:
    from odradek.cli.framework.values import time_ms
    from odradek.clock import now_ms

    bounds: list[int | None] = []
    for option, text in (("--from", from_), ("--to", to)):
        try:
            bounds.append(None if text is None else time_ms(text, now_ms()))
        except ValueError as error:
            fail(f"{option}: {error}")
        if bounds[-1] is not None and not 0 <= bounds[-1] < _YEAR_10000_MS:
            fail(f"{option}: '{text}' is not a time between 1970 and 9999")
    from_ms, to_ms = bounds
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        fail(f"--from {from_} is not before --to {to}: expected a period that ends after it begins")
    if to_ms is not None and to_ms > now_ms():
        fail(
            f"--to {to} is in the future: expected a period that has ended. Without --to, a run loads up to"
            " now, and later runs continue"
        )
    if (from_ms is not None or to_ms is not None) and name == "main":
        fail("--from and --to load a period into a separate version: name it with --version NAME, other than main")
    return from_ms, to_ms


def _check_topics(version: "VersionDirectory", state: "ClusterState", servers: str, timeout: float) -> None:
    """Refuse topics that neither the cluster nor the version knows. Raises ClientError."""
    newest = version.newest()
    unknown = [name for name in state.missing if newest is None or name not in newest.positions]
    if unknown:
        with connection_to(servers, timeout) as cluster:
            raise cluster.no_topic(unknown[0])


def _head(
    version: "VersionDirectory",
    state: "ClusterState",
    period: tuple[int | None, int | None],
    decoding: str,
    format_: str | None,
) -> "Head":
    """The head of a new version, or of one that exists with these options. Raises LoadError."""
    from odradek.clock import now_ms
    from odradek.jobs.load.commit_log import Head
    from odradek.jobs.load.output import PARQUET, check_format
    from odradek.jobs.usage_report.times import iso

    found = version.head()
    table = format_ or (PARQUET if found is None else found.table)
    check_format(table, version)
    return Head(version.name, state.cluster_id, iso(now_ms()), *period, decoding, table)


def spark_and_reader(servers: str, **options: Any) -> "tuple[Reader, SparkOptions]":
    """How Spark reads and runs, from the options of `spark_options`. Raises LoadError, ClientError."""
    from odradek.cli.jobs.load_source import java_settings
    from odradek.clients.cluster import parse_servers
    from odradek.jobs.load import connector
    from odradek.jobs.load.frames import Reader
    from odradek.jobs.load.job import SparkOptions
    from odradek.jobs.usage_report.errors import ReportError
    from odradek.jobs.usage_report.session import check_java

    try:
        check_java()
    except ReportError as error:
        fail(error)
    kind, found = connector.find(options["reader"], options["connector_jars"], options["spark_settings"])
    client = java_settings(command_config_file())
    addresses = ",".join(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in parse_servers(servers)
    )
    reader = Reader(addresses, kind, client, options["min_partitions"])
    return reader, SparkOptions(options["master"], options["memory"], {**options["spark_settings"], **found})


def _show(plan: "Plan") -> None:
    from odradek.cli.framework.output import count

    for finding in plan.findings:
        echo(finding.text, err=True)
    for part in plan.ranges:
        echo(f"{part.place}: offsets {part.start} to {part.until - 1}")
    echo(f"{count(plan.offsets, 'offset')} of {count(len(plan.ranges), 'partition')}")
