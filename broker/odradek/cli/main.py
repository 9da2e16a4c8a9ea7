"""The ``odradek`` command: start, stop, status, demo, log, adopt, and the commands that connect to a cluster (`LAZY`).

Runs in the process of the caller; ``start`` becomes the supervisor. Only ``click`` and the standard library are imported
before the command is known, so that ``--help`` is instant; each command imports the rest itself. An error that the user can
act on is one line on stderr. Exit codes: 1 for an error, 2 for a wrong command line, 3 for ``status`` when the broker is not
running.
"""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from odradek.cli.framework.command import GeneralOption
from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail, reason_of
from odradek.cli.framework.lazy import LazyGroup
from odradek.cli.framework.options import complete_broker_settings, complete_paths
from odradek.cli.start import StartOptions, run_start
from odradek.cli.start_command import StartCommand
from odradek.cli.version import version_text

Command = TypeVar("Command", bound=Callable[..., Any])

CONFIG_OPTION = click.option(
    "--config",
    "config_file",
    metavar="FILE",
    shell_complete=complete_paths,
    help="Configuration file in the format of Kafka's server.properties.",
)
SET_OPTION = click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    shell_complete=complete_broker_settings,
    help="Set one configuration key; overrides the configuration file. Repeatable.",
)


def show_version(context: click.Context, _: click.Parameter, requested: bool) -> None:
    """``--version``: print the versions of Odradek and of Python, and exit."""
    if not requested:
        return
    echo(version_text())
    context.exit()


LAZY = {
    "cluster": ("odradek.cli.cluster.cluster:cluster", "Show the cluster and its brokers, and wait until it is ready."),
    "topic": ("odradek.cli.topic.topic:topic", "Create, list, describe, alter, truncate and delete topics."),
    "partition": ("odradek.cli.partition.partition:partition", "Explain, move and elect leaders of partitions."),
    "group": ("odradek.cli.group.group:group", "List, describe, explain, reset and delete consumer groups."),
    "user": ("odradek.cli.security.user:user", "List, describe, add and remove users who log in with SCRAM."),
    "token": ("odradek.cli.security.token:token", "Create, renew, expire and describe delegation tokens."),
    "transaction": (
        "odradek.cli.transaction.transaction:transaction",
        "List, describe and abort transactions, and find hanging ones.",
    ),
    "produce": ("odradek.cli.records.produce:produce", "Send records to a topic, from lines of text or JSON."),
    "consume": ("odradek.cli.records.consume:consume", "Read records from topics."),
    "config": (
        "odradek.cli.config.config:config",
        "Get, set and explain the configuration of topics, brokers and groups.",
    ),
    "quota": (
        "odradek.cli.security.quota:quota",
        "Limit what users, client ids and addresses may use, and show who is throttled.",
    ),
    "acl": ("odradek.cli.security.acl:acl", "List, add, remove and explain access control lists."),
    "mirror": ("odradek.cli.mirror.mirror:mirror", "Mirror topics from a cluster to another, without recompression."),
    "backup": ("odradek.cli.machine.backup:backup", "Back up and restore the metadata and logs of a broker."),
    "offsets": (
        "odradek.cli.group.offsets:offsets",
        "Copy committed offsets between the metadata tree and __consumer_offsets.",
    ),
    "report": (
        "odradek.cli.jobs.report:report",
        "Create reports about whole days: usage, costs, and when disks will be full.",
    ),
    "load": (
        "odradek.cli.jobs.load:load",
        "Load topics into Parquet files or Delta tables with Spark, each record once.",
    ),
    "usage": (
        "odradek.cli.usage.usage:usage",
        "Show the bytes, records and requests that a broker served, by client, principal, topic and API.",
    ),
    "certificate": (
        "odradek.cli.security.certificate:certificate",
        "Show the certificates of a listener, a key store or a trust store.",
    ),
    "completion": (
        "odradek.cli.machine.completion:completion",
        "Print the script that makes a shell complete the command.",
    ),
    "doctor": ("odradek.cli.health.doctor:doctor", "Check a broker or cluster for problems, and recommend remedies."),
}

SECTIONS = {
    "Data": ("produce", "consume", "topic", "group", "transaction", "offsets", "load", "mirror"),
    "Cluster": ("cluster", "partition", "config", "quota", "doctor", "usage", "report"),
    "Security": ("acl", "user", "token", "certificate"),
    "This machine": ("start", "stop", "status", "log", "backup", "adopt", "demo", "completion"),
}
"""The list of commands in the help and in odradek(1)."""


@click.group(
    cls=LazyGroup,
    lazy=LAZY,
    sections=SECTIONS,
    context_settings={"max_content_width": 100},
)
@click.option(
    "--version",
    cls=GeneralOption,
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """A log broker that speaks Apache Kafka's wire protocol.

    Commands that connect to a cluster take -b HOST:PORT (default: localhost:9092), before or after their name.
    """


@main.command(cls=StartCommand)
@CONFIG_OPTION
@SET_OPTION
@click.option(
    "--log-level",
    metavar="LEVEL",
    help="Least severe level to log: FATAL, ERROR, WARN, INFO, DEBUG or TRACE. Short for --set log.level=LEVEL.",
)
def start(config_file: str | None, overrides: tuple[str, ...], log_level: str | None) -> None:
    """Run a broker in the foreground.

    SIGTERM or Ctrl-C shuts the broker down cleanly (exit code 0). SIGHUP lets it read FILE again.
    """
    run_start(StartOptions(config_file, overrides, log_level), click.get_current_context().obj)


def find_options(command: Command) -> Command:
    """Add the options that select a running broker of this machine."""
    for option in (
        click.option("--pid", type=click.IntRange(1), help="Process id of the broker's supervisor."),
        click.option(
            "--data-dir", metavar="DIR", shell_complete=complete_paths, help="First log directory of the broker."
        ),
        SET_OPTION,
        CONFIG_OPTION,
    ):
        command = option(command)
    return command


@main.command()
@find_options
@click.option(
    "--timeout",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    help="Seconds to wait for the broker to exit; after that the command fails, and the broker keeps stopping.",
)
def stop(
    config_file: str | None, overrides: tuple[str, ...], data_dir: str | None, pid: int | None, timeout: float
) -> None:
    """Shut a running broker of this machine down cleanly, and wait until it has exited.

    Select the broker by --pid, by --data-dir, or by the configuration that it was started with.
    """
    from odradek.cli.inspection.local_broker import FindError, find, stop_broker
    from odradek.config.errors import ConfigError

    try:
        directory, running = find(config_file, overrides, data_dir, pid)
        seconds = stop_broker(running, timeout)
    except (ConfigError, FindError) as error:
        fail(error)
    echo(f"stopped broker {running.pid} of {directory} in {seconds:.2f} s")


@main.command()
@find_options
@click.option("--json", "as_json", is_flag=True, help="Print the status as one line of JSON.")
def status(
    config_file: str | None, overrides: tuple[str, ...], data_dir: str | None, pid: int | None, as_json: bool
) -> None:
    """Show the state, processes, listeners, log directories and memory of a running broker of this machine.

    Select the broker by --pid, by --data-dir, or by the configuration that it was started with. Exit code 3 if it is not
    running.
    """
    from odradek.cli.inspection.local_broker import FindError, NotRunningError, find, status_of
    from odradek.config.errors import ConfigError

    try:
        directory, running = find(config_file, overrides, data_dir, pid)
        report = status_of(directory, running)
    except NotRunningError as error:
        fail(error, 3)
    except (ConfigError, FindError) as error:
        fail(error)
    if as_json:
        from odradek.cli.framework.output import echo_json

        echo_json(report)
    else:
        from odradek.cli.machine.status_table import print_status

        print_status(report)


@main.command()
@click.option(
    "--megabytes", type=click.IntRange(1), default=40, show_default=True, help="Maximum size of the data sent, in MB."
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 1000),
    default=6,
    show_default=True,
    help="Number of partitions of the topic.",
)
def demo(megabytes: int, partitions: int) -> None:
    """Send real files through a temporary broker, read them back, and compare every byte.

    The files are the sources and documents of the installed Python; each line is one record.
    """
    from odradek.cli.machine.demo import DemoError, run_demo

    try:
        run_demo(megabytes * 1_000_000, partitions)
    except DemoError as error:
        fail(error)


@main.group(cls=LazyGroup)
def log() -> None:
    """Check or print the files of logs, of Odradek or of Kafka.

    These commands need no running broker and never write.
    """


@log.command("verify")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, shell_complete=complete_paths)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each finding and each directory.")
@click.option(
    "--processes",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Number of processes that read in parallel; 0: one per CPU core.",
)
@click.option("--deep", is_flag=True, help="Also decompress batches and check every record.")
def log_verify(directories: tuple[str, ...], as_json: bool, processes: int, deep: bool) -> None:
    """Check the logs in log directories: batches, indexes, checkpoints and snapshots.

    Exit code 1 if an error is found. If a broker is running on a directory, data that it has not yet flushed is not checked.
    """
    from odradek.cli.machine.log_verify import VerifyError, run_verify
    from odradek.storage.verify import NotALogDirectoryError

    try:
        code = run_verify(directories, as_json=as_json, processes=processes, deep=deep)
    except (NotALogDirectoryError, VerifyError) as error:
        fail(error)
    except OSError as error:
        fail(f"{error.filename}: {reason_of(error)}")
    sys.exit(code)


@log.command("dump")
@click.argument("paths", metavar="FILE|DIR...", nargs=-1, required=True, shell_complete=complete_paths)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each entry.")
@click.option(
    "--deep", is_flag=True, help="Also print the records of batches; records of Kafka's internal topics are decoded."
)
@click.option(
    "--offsets", "topic", flag_value="__consumer_offsets", help="Decode records as __consumer_offsets records."
)
@click.option(
    "--transactions", "topic", flag_value="__transaction_state", help="Decode records as __transaction_state records."
)
@click.option(
    "--metadata", "topic", flag_value="__cluster_metadata", help="Decode records as __cluster_metadata records."
)
@click.option("--from-offset", type=click.IntRange(0), default=0, help="Skip log entries below this offset.")
@click.option(
    "--to-offset",
    type=click.IntRange(0),
    default=(1 << 63) - 1,
    help="Stop before this offset (default: end of the log).",
)
def log_dump(
    paths: tuple[str, ...], as_json: bool, deep: bool, topic: str | None, from_offset: int, to_offset: int
) -> None:
    """Print the contents of segments, indexes, snapshots and checkpoints, as Kafka's DumpLogSegments does.

    Exit code 1 if part of a file cannot be read.
    """
    from odradek.cli.machine.log_dump import run_dump
    from odradek.storage.dump import UnknownFileError

    try:
        code = run_dump(
            paths,
            as_json=as_json,
            deep=deep or topic is not None,
            topic=topic,
            from_offset=from_offset,
            to_offset=to_offset,
        )
    except UnknownFileError as error:
        fail(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(f"{error.filename}: {reason_of(error)}")
    sys.exit(code)


@main.command()
@CONFIG_OPTION
@SET_OPTION
@click.option(
    "--check",
    is_flag=True,
    help="Only report the contents of the directories and the obstacles to an adoption, and write nothing. Exit code 1 if"
    " there are obstacles.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--force",
    is_flag=True,
    help="Adopt despite obstacles (see --check): missing or damaged data stays missing or damaged.",
)
@click.option(
    "--again",
    is_flag=True,
    help="Replace the metadata of an earlier adoption, after Kafka has written to the directories again.",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT[/CHROOT]",
    help="Kafka in ZooKeeper mode: also take over settings of topics, quotas, SCRAM credentials, ACLs and delegation"
    " tokens from this ZooKeeper. TLS and SASL: with the zookeeper.* keys of --config or --set.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as one line of JSON.")
@click.option(
    "--processes",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Number of processes that read in parallel; 0: one per CPU core.",
)
@click.argument("directories", metavar="[DIR]...", nargs=-1, shell_complete=complete_paths)
def adopt(config_file: str | None, overrides: tuple[str, ...], directories: tuple[str, ...], **options: Any) -> None:
    """Take over the log directories of a stopped Kafka broker, with its topics and records.

    Name all log directories of that broker, as arguments or as log.dirs of the configuration. Kafka's files are not changed,
    so that Kafka can be started on the directories again.
    """
    from odradek.cli.machine.adopt import AdoptError, run_adopt
    from odradek.config.errors import ConfigError

    try:
        code = run_adopt(config_file, overrides, directories, **options)
    except (ConfigError, AdoptError) as error:
        fail(error)
    sys.exit(code)


if __name__ == "__main__":
    main(prog_name="odradek")
