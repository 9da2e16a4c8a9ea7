"""The ``odradek`` command: start, stop, status, demo, log, adopt, and those that talk to a cluster (`LAZY`).

Runs in the process of the person or service that calls it; ``start`` becomes the supervisor. Only ``click`` and the
standard library are imported before a command is known, so that ``--help`` is instant; each command fetches the rest.
Errors that a person can act upon are one line on stderr: exit code 1; 3 for ``status`` of a broker that does not run; 2
for a wrong command line.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

import click

from odradek.cli.failure import fail
from odradek.cli.lazy import LazyGroup

Command = TypeVar("Command", bound=Callable[..., Any])

CONFIG_OPTION = click.option("--config", "config_file", metavar="FILE", help="A server.properties file, as Kafka's.")
SET_OPTION = click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Set one key; wins over the file."
)


def show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """``--version``: of the installed distribution, and of what it runs on."""
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version
    from platform import python_version

    try:
        number = version("odradek")
    except PackageNotFoundError:
        number = "(not installed)"
    click.echo(f"odradek {number}, Python {python_version()}")
    context.exit()


LAZY = {
    "cluster": ("odradek.cli.cluster:cluster", "Show the cluster and its brokers."),
    "topic": ("odradek.cli.topic:topic", "Create, list, describe, alter, delete and empty topics."),
    "group": ("odradek.cli.group:group", "List, describe, explain, reset and delete consumer groups."),
    "produce": ("odradek.cli.produce:produce", "Send lines or JSON to a topic."),
    "consume": ("odradek.cli.consume:consume", "Read topics, from anywhere to anywhere."),
    "config": ("odradek.cli.config:config", "Get, set and explain the configuration of topics, brokers and groups."),
    "offsets": ("odradek.cli.offsets:offsets", "Move committed offsets between where old and new consumers keep them."),
    "report": ("odradek.cli.report:report", "Reports over days: usage, costs, and when disks will be full."),
    "usage": ("odradek.cli.usage:usage", "Show who uses the broker how much: clients, principals, topics, APIs."),
    "doctor": ("odradek.cli.doctor:doctor", "Look for what is wrong with a broker or cluster, and say what to do."),
}


@click.group(
    cls=LazyGroup,
    lazy=LAZY,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=show_version, help="Show the version."
)
def main() -> None:
    """A log broker that speaks Apache Kafka's wire protocol."""


@main.command()
@CONFIG_OPTION
@SET_OPTION
@click.option(
    "--log-level", metavar="LEVEL", help="FATAL, ERROR, WARN, INFO, DEBUG or TRACE: short for --set log.level=LEVEL."
)
def start(config_file: str | None, overrides: tuple[str, ...], log_level: str | None) -> None:
    """Run a broker in the foreground until SIGTERM or Ctrl-C, which stop it in order (exit code 0)."""
    from odradek.config import ConfigError, load

    try:
        given = overrides if log_level is None else (*overrides, f"log.level={log_level}")
        config = load(config_file, given, to_start=True)
    except ConfigError as error:
        fail(error)
    launch = import_module("odradek.processes.launch")
    try:
        code = launch.run(config)
    except (ConfigError, launch.StartError) as error:
        fail(error)
    sys.exit(code)


def find_options(command: Command) -> Command:
    """The options that say which running broker is meant."""
    for option in (
        click.option("--pid", type=click.IntRange(1), help="The broker's process id."),
        click.option("--data-dir", metavar="DIR", help="Its first log directory."),
        SET_OPTION,
        CONFIG_OPTION,
    ):
        command = option(command)
    return command


@main.command()
@find_options
@click.option(
    "--timeout", type=click.FloatRange(0), default=60.0, show_default=True, help="Seconds to wait for its end."
)
def stop(
    config_file: str | None, overrides: tuple[str, ...], data_dir: str | None, pid: int | None, timeout: float
) -> None:
    """Stop a running broker in order, and wait for its end."""
    from odradek.cli.running_broker import FindError, find, stop_broker
    from odradek.config import ConfigError

    try:
        directory, running = find(config_file, overrides, data_dir, pid)
        seconds = stop_broker(running, timeout)
    except (ConfigError, FindError) as error:
        fail(error)
    click.echo(f"stopped broker {running.pid} of {directory} in {seconds:.2f} s")


@main.command()
@find_options
@click.option("--json", "as_json", is_flag=True, help="One line of JSON, for scripts.")
def status(
    config_file: str | None, overrides: tuple[str, ...], data_dir: str | None, pid: int | None, as_json: bool
) -> None:
    """Show the processes, listeners and partitions of a running broker. Exit code 3 if none runs."""
    from odradek.cli.running_broker import FindError, NotRunningError, find, status_of
    from odradek.config import ConfigError

    try:
        directory, running = find(config_file, overrides, data_dir, pid)
        report = status_of(directory, running)
    except NotRunningError as error:
        fail(error, 3)
    except (ConfigError, FindError) as error:
        fail(error)
    if as_json:
        import json

        click.echo(json.dumps(report))
    else:
        from odradek.cli.status_table import print_status

        print_status(report)


@main.command()
@click.option(
    "--megabytes", type=click.IntRange(1), default=40, show_default=True, help="The size of the corpus, at most."
)
@click.option(
    "--partitions", type=click.IntRange(1, 1000), default=6, show_default=True, help="Partitions of the topic."
)
def demo(megabytes: int, partitions: int) -> None:
    """Send real files through a temporary broker and back.

    The installed Python's own sources and documents, a record a line; every byte that comes back is compared.
    """
    from odradek.cli.demo import DemoError, run_demo

    try:
        run_demo(megabytes * 1_000_000, partitions)
    except DemoError as error:
        fail(error)


@main.group()
def log() -> None:
    """Look into the files of logs, ours or Kafka's; no broker is needed, and nothing is written."""


@log.command("verify")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each finding and each directory.")
@click.option(
    "--processes", type=click.IntRange(0), default=0, help="That read at a time; 0, the default, for one a core."
)
@click.option("--deep", is_flag=True, help="Open compressed batches too, and read every record.")
def log_verify(directories: tuple[str, ...], as_json: bool, processes: int, deep: bool) -> None:
    """Check all logs of log directories: batches, indexes, checkpoints, snapshots. Exit code 1 if anything is wrong.

    A broker may run on a directory; then what it has not yet flushed is not judged.
    """
    from odradek.cli.log_verify import VerifyError, run_verify
    from odradek.storage.verify import NotALogDirectoryError

    try:
        code = run_verify(directories, as_json=as_json, processes=processes, deep=deep)
    except (NotALogDirectoryError, VerifyError) as error:
        fail(error)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    sys.exit(code)


@log.command("dump")
@click.argument("paths", metavar="FILE|DIR...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each entry.")
@click.option("--deep", is_flag=True, help="Of logs the records too; those of Kafka's own topics are decoded.")
@click.option("--offsets", "topic", flag_value="__consumer_offsets", help="Read records as of __consumer_offsets.")
@click.option(
    "--transactions", "topic", flag_value="__transaction_state", help="Read records as of __transaction_state."
)
@click.option("--metadata", "topic", flag_value="__cluster_metadata", help="Read records as of __cluster_metadata.")
@click.option("--from-offset", type=click.IntRange(0), default=0, help="Leave out what is before it in logs.")
@click.option("--to-offset", type=click.IntRange(0), default=(1 << 63) - 1, help="Stop before it.")
def log_dump(
    paths: tuple[str, ...], as_json: bool, deep: bool, topic: str | None, from_offset: int, to_offset: int
) -> None:
    """Print segments, indexes, snapshots and checkpoints, as DumpLogSegments does. Exit code 1 if some cannot be read."""
    from odradek.cli.log_dump import run_dump
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
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    sys.exit(code)


@main.command()
@CONFIG_OPTION
@SET_OPTION
@click.option(
    "--check", is_flag=True, help="Only show what is there, and write nothing. Exit code 1 if there are obstacles."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Take over in spite of obstacles: what is missing or damaged stays so.")
@click.option("--again", is_flag=True, help="Replace the metadata of an earlier take-over: Kafka wrote here since.")
@click.option("--json", "as_json", is_flag=True, help="Show what was found as one line of JSON.")
@click.option(
    "--processes", type=click.IntRange(0), default=0, help="How many read at a time; 0, the default: one a CPU."
)
@click.argument("directories", metavar="[DIR]...", nargs=-1)
def adopt(config_file: str | None, overrides: tuple[str, ...], directories: tuple[str, ...], **options: Any) -> None:
    """Take over the log directories of a stopped Kafka broker, its topics and records included.

    All directories of that broker must be given, by name or as log.dirs of the configuration. Kafka's own files stay as they
    are, so that it can be started on them again.
    """
    from odradek.cli.adopt import AdoptError, run_adopt
    from odradek.config import ConfigError

    try:
        code = run_adopt(config_file, overrides, directories, **options)
    except (ConfigError, AdoptError) as error:
        fail(error)
    sys.exit(code)


if __name__ == "__main__":
    main(prog_name="odradek")
