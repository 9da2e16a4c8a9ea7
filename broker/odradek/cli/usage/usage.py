"""``odradek usage``: top, show, topic: usage of a broker by client, principal, topic and API. Runs in the process of the
command."""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.framework.command import GeneralOption
from odradek.cli.framework.failure import fail
from odradek.cli.framework.lazy import LazyGroup
from odradek.cli.framework.options import COMMAND_CONFIG_OPTION, JSON_OPTION, SERVERS
from odradek.cli.framework.principals import PRINCIPAL_PATTERN

if TYPE_CHECKING:
    from odradek.cli.inspection.usage_source import UsageLocation
    from odradek.metrics.usage_totals import Filter

Command = Callable[..., Any]
DIMENSIONS = ("client", "principal", "topic", "api")
SORTS = ("in", "out", "records", "requests", "errors")
SHOWN = 20


BROKER_OPTIONS = (
    JSON_OPTION,
    click.option(
        "--timeout",
        cls=GeneralOption,
        type=click.FloatRange(0.01),
        default=10.0,
        show_default=True,
        help="Seconds to wait for the broker's response.",
    ),
    click.option(
        "--pid",
        cls=GeneralOption,
        type=click.IntRange(1),
        help="Select a broker of this machine by its supervisor's process id.",
    ),
    click.option(
        "--data-dir",
        cls=GeneralOption,
        metavar="DIR",
        help="Select a broker of this machine by its first log directory.",
    ),
    click.option(
        "--set",
        "overrides",
        cls=GeneralOption,
        metavar="KEY=VALUE",
        multiple=True,
        help="Select a broker of this machine by a configuration key, such as log.dirs; overrides the configuration file.",
    ),
    click.option(
        "--config",
        "config_file",
        cls=GeneralOption,
        metavar="FILE",
        help="Select a broker of this machine by its configuration file.",
    ),
    click.option(
        "-b",
        "--bootstrap-server",
        "servers",
        cls=GeneralOption,
        metavar="HOST:PORT",
        envvar=SERVERS,
        show_envvar=True,
        help="Select a broker by its Kafka listener; its metrics.listener is read from its configuration.",
    ),
    click.option(
        "-m",
        "--metrics",
        cls=GeneralOption,
        metavar="HOST:PORT",
        envvar="ODRADEK_METRICS",
        show_envvar=True,
        help="Select a broker by its metrics.listener; https://HOST:PORT for one with TLS.  [default: 127.0.0.1:9404]",
    ),
    COMMAND_CONFIG_OPTION,
)
"""The options that select a broker, and --timeout and --json; in the reverse order of the help."""


def on_broker(function: Command) -> Command:
    """Call the function with a `UsageLocation`, `timeout` in seconds and `as_json` before its own options.

    A UsageError is printed as one line. Options that select a broker have precedence over environment variables, and
    --metrics over --bootstrap-server.
    """

    @wraps(function)
    def run(
        metrics: str | None,
        servers: str | None,
        config_file: str | None,
        overrides: tuple[str, ...],
        data_dir: str | None,
        pid: int | None,
        **options: Any,
    ) -> Any:
        from click.core import ParameterSource

        from odradek.cli.inspection.usage_source import UsageError, UsageLocation

        on_command_line = {
            name
            for name in ("metrics", "servers")
            if click.get_current_context().get_parameter_source(name) == ParameterSource.COMMANDLINE
        }
        selects_local_broker = bool(config_file or overrides or data_dir or pid)
        if "metrics" not in on_command_line and (selects_local_broker or "servers" in on_command_line):
            metrics = None
        if "servers" not in on_command_line and (selects_local_broker or metrics):
            servers = None
        try:
            return function(UsageLocation(metrics, config_file, overrides, data_dir, pid, servers), **options)
        except UsageError as error:
            fail(error)

    command: Command = run
    for option in BROKER_OPTIONS:
        command = option(command)
    return command


def filters(function: Command) -> Command:
    """Add the options of a `Filter`, which the function receives as `only`."""

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        from odradek.metrics.usage_totals import Filter

        only = Filter(*(options.pop(f"only_{name}") for name in ("principal", "client", "topic", "api")))
        return function(*arguments, only=only, **options)

    command: Command = run
    for name, objects in (
        ("api", "APIs"),
        ("topic", "topics"),
        ("principal", "principals"),
        ("client", "client ids"),
    ):
        command = click.option(
            f"--{name}",
            f"only_{name}",
            metavar="PATTERN",
            type=PRINCIPAL_PATTERN if name == "principal" else str,
            multiple=True,
            help=f"Count only {objects} that match; * and ? are wildcards. Repeatable.",
        )(command)
    return command


SORT_OPTION = click.option(
    "--sort", type=click.Choice(SORTS), default="in", show_default=True, help="Sort by this column, largest first."
)


WIDE_OPTION = click.option(
    "-w", "--wide", is_flag=True, help="Show all columns, also those without a value, and times in full."
)


@click.group(cls=LazyGroup)
def usage() -> None:
    """Show the bytes, records and requests that a broker served, by client, principal, topic and API."""


@usage.command("top")
@on_broker
@click.option(
    "--by",
    type=click.Choice(DIMENSIONS),
    default="client",
    show_default=True,
    help="Print one row for each client id, principal, topic or API.",
)
@SORT_OPTION
@filters
@click.option(
    "--interval",
    type=click.FloatRange(0.1),
    default=2.0,
    show_default=True,
    help="Seconds over which rates are measured.",
)
@click.option("-n", "--limit", type=click.IntRange(1), default=SHOWN, show_default=True, help="Maximum number of rows.")
@click.option("--once", is_flag=True, help="Print one table and exit (always, if standard output is not a terminal).")
def top(location: "UsageLocation", timeout: float, as_json: bool, once: bool, **options: Any) -> None:
    """Show the current rates of use, refreshed every --interval seconds.

    On a terminal, q quits, s or an arrow key sorts by another column, and b groups by another dimension. With --json, print one
    line of JSON for each interval.
    """
    from odradek.cli.inspection.usage_source import Source
    from odradek.cli.usage.top import run_top

    run_top(Source(location, timeout), as_json=as_json, once=once, **options)


@usage.command("show")
@on_broker
@click.option(
    "--by",
    "by",
    type=click.Choice(DIMENSIONS),
    multiple=True,
    default=("principal", "client", "topic"),
    show_default=True,
    help="Print one row for each combination of these dimensions; repeatable.",
)
@SORT_OPTION
@filters
@click.option("-n", "--limit", type=click.IntRange(1), help="Maximum number of rows; the sum includes all rows.")
@click.option(
    "--since",
    metavar="TIME",
    help="Read the spool from this time on, e.g. 2026-01-31T12:00, or -1h for an hour ago (default: its beginning).",
)
@click.option("--until", metavar="TIME", help="Read the spool up to this time (default: now).")
@click.option(
    "--spool", metavar="DIR", help="Read the spool in this directory (default: the directory that the broker reports)."
)
@WIDE_OPTION
def show(
    location: "UsageLocation",
    timeout: float,
    as_json: bool,
    only: "Filter",
    since: str | None,
    until: str | None,
    spool: str | None,
    **options: Any,
) -> None:
    """Show total usage since the broker's start, or of a period (--since, --until), which is read from the broker's spool."""
    from odradek.cli.inspection.usage_history import print_damages, read_history, spool_directory
    from odradek.cli.inspection.usage_source import Source
    from odradek.cli.usage.view import show_sums
    from odradek.metrics.usage import entries_of
    from odradek.metrics.usage_totals import totals

    if since is not None or until is not None or spool is not None:
        history = read_history(spool_directory(spool, location, timeout), since, until, only)
        period = history.from_ms, history.to_ms
        show_sums(history.usage, period, as_json=as_json, history=history, **options)
        print_damages(history)
        return
    document = Source(location, timeout).usage(_query(only))
    period = document["began"], document["at"]
    show_sums(totals(entries_of(document)), period, as_json=as_json, history=None, **options)


@usage.command("topic")
@on_broker
@click.argument("topic", metavar="TOPIC")
@click.option(
    "--interval",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="Seconds over which rates are measured; 0: show no rates.",
)
@click.option(
    "--since", metavar="TIME", help="Also show clients that used the topic since this time, e.g. -7d, from the spool."
)
@click.option(
    "--spool", metavar="DIR", help="Read the spool in this directory (default: the directory that the broker reports)."
)
@WIDE_OPTION
def topic(
    location: "UsageLocation",
    timeout: float,
    as_json: bool,
    topic: str,
    interval: float,
    since: str | None,
    spool: str | None,
    wide: bool,
) -> None:
    """Show the clients that write and read a topic, their rates, the lag of readers and groups, and the stored bytes."""
    from odradek.cli.inspection.usage_history import print_damages, read_history, spool_directory
    from odradek.cli.inspection.usage_source import Source
    from odradek.cli.usage.topic import show_topic
    from odradek.metrics.usage_totals import Filter

    source = Source(location, timeout)
    history = None
    if since is not None or spool is not None:
        history = read_history(spool_directory(spool, location, timeout), since, None, Filter(topic=(topic,)), topic)
    show_topic(source, topic, interval, history, as_json=as_json, wide=wide)
    if history is not None:
        print_damages(history)


def _query(only: "Filter") -> dict[str, Any]:
    return {name: list(patterns) for name, patterns in only._asdict().items() if patterns}
