"""``odradek usage``: top, show, topic: who uses the broker how much. In the process of the command."""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from odradek.cli.failure import fail
from odradek.cli.lazy import LazyGroup
from odradek.cli.options import JSON_OPTION, SERVERS

if TYPE_CHECKING:
    from pathlib import Path

    from odradek.cli.usage_source import Place
    from odradek.metrics.spool_history import History
    from odradek.metrics.usage_totals import Filter

Command = TypeVar("Command", bound=Callable[..., Any])
DIMENSIONS = ("client", "principal", "topic", "api")
SORTS = ("in", "out", "records", "requests", "errors")
SHOWN = 20


def on_broker(function: Command) -> Command:
    """The function gets a `Place`, `timeout` in seconds and `as_json` before its own options; no figures are one line.

    Of what names a broker, options count more than the environment, and --metrics more than --bootstrap-server.
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

        from odradek.cli.usage_source import Place, UsageError

        typed = {
            name
            for name in ("metrics", "servers")
            if click.get_current_context().get_parameter_source(name) == ParameterSource.COMMANDLINE
        }
        if "metrics" not in typed and (config_file or overrides or data_dir or pid or "servers" in typed):
            metrics = None
        if "servers" not in typed and (config_file or overrides or data_dir or pid or metrics):
            servers = None
        try:
            return function(Place(metrics, config_file, overrides, data_dir, pid, servers), **options)
        except UsageError as error:
            fail(error)

    command: Any = run
    for option in (
        JSON_OPTION,
        click.option(
            "--timeout",
            type=click.FloatRange(0.01),
            default=10.0,
            show_default=True,
            help="Seconds to wait for an answer.",
        ),
        click.option("--pid", type=click.IntRange(1), help="That broker's process id."),
        click.option("--data-dir", metavar="DIR", help="The first log directory of a broker of this machine."),
        click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Set one key; wins over the file."),
        click.option("--config", "config_file", metavar="FILE", help="The configuration of a broker of this machine."),
        click.option(
            "-b",
            "--bootstrap-server",
            "servers",
            metavar="HOST:PORT",
            envvar=SERVERS,
            show_envvar=True,
            help="Ask this broker where its metrics.listener is.",
        ),
        click.option(
            "-m",
            "--metrics",
            metavar="HOST:PORT",
            envvar="ODRADEK_METRICS",
            show_envvar=True,
            help="The broker's metrics.listener.  [default: 127.0.0.1:9404]",
        ),
    ):
        command = option(command)
    return command


def filters(function: Command) -> Command:
    """Options for a `Filter`, which the function gets as `wanted`."""

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        from odradek.metrics.usage_totals import Filter

        wanted = Filter(*(options.pop(f"only_{name}") for name in ("principal", "client", "topic", "api")))
        return function(*arguments, wanted=wanted, **options)

    command: Any = run
    for name, what in (
        ("api", "this API"),
        ("topic", "this topic"),
        ("principal", "this principal"),
        ("client", "this client id"),
    ):
        command = click.option(
            f"--{name}",
            f"only_{name}",
            metavar="PATTERN",
            multiple=True,
            help=f"Only of {what}; * and ? stand for any.",
        )(command)
    return command


SORT_OPTION = click.option(
    "--sort", type=click.Choice(SORTS), default="in", show_default=True, help="The largest first."
)


@click.group(cls=LazyGroup)
def usage() -> None:
    """Show who uses the broker how much: clients, principals, topics, APIs."""


@usage.command("top")
@on_broker
@click.option(
    "--by", type=click.Choice(DIMENSIONS), default="client", show_default=True, help="A row for each of these."
)
@SORT_OPTION
@filters
@click.option(
    "--interval", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Seconds between two looks."
)
@click.option("-n", "--limit", type=click.IntRange(1), default=SHOWN, show_default=True, help="So many rows.")
@click.option("--once", is_flag=True, help="One table, and end; so it is where no terminal is.")
def top(place: "Place", timeout: float, as_json: bool, once: bool, **options: Any) -> None:
    """Show the present rates, until Ctrl-C. With --json a line for each look."""
    from odradek.cli.usage_source import Source
    from odradek.cli.usage_top import run_top

    run_top(Source(place, timeout), as_json=as_json, once=once, **options)


@usage.command("show")
@on_broker
@click.option(
    "--by",
    "by",
    type=click.Choice(DIMENSIONS),
    multiple=True,
    default=("principal", "client", "topic"),
    show_default=True,
    help="A row for each combination of these; may be given more than once.",
)
@SORT_OPTION
@filters
@click.option("-n", "--limit", type=click.IntRange(1), help="So many rows; the sum is of all.")
@click.option(
    "--since", metavar="TIME", help="From the spool: since this time, e.g. 2026-01-31T12:00, or -1h for an hour ago."
)
@click.option("--until", metavar="TIME", help="From the spool: up to this time.")
@click.option("--spool", metavar="DIR", help="The spool's directory, if the broker is not to be asked for it.")
def show(
    place: "Place",
    timeout: float,
    as_json: bool,
    wanted: "Filter",
    since: str | None,
    until: str | None,
    spool: str | None,
    **options: Any,
) -> None:
    """Show sums: since the broker's start, or with --since of a time, from its spool."""
    from odradek.cli.usage_source import Source, spool_directory
    from odradek.cli.usage_view import print_damages, show_sums
    from odradek.metrics.usage import entries_of
    from odradek.metrics.usage_totals import totals

    if since is not None or until is not None or spool is not None:
        history = _history(spool_directory(spool, place, timeout), since, until, wanted)
        span = history.from_ms, history.to_ms
        show_sums(history.usage, span, as_json=as_json, history=history, **options)
        print_damages(history)
        return
    answer = Source(place, timeout).ask(_query(wanted))
    show_sums(totals(entries_of(answer)), (answer["began"], answer["at"]), as_json=as_json, history=None, **options)


@usage.command("topic")
@on_broker
@click.argument("topic", metavar="TOPIC")
@click.option(
    "--interval",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="Seconds over which rates are taken; 0: none.",
)
@click.option("--since", metavar="TIME", help="Also who did since this time, from the spool, e.g. -7d.")
@click.option("--spool", metavar="DIR", help="The spool's directory, if the broker is not to be asked for it.")
def topic(
    place: "Place", timeout: float, as_json: bool, topic: str, interval: float, since: str | None, spool: str | None
) -> None:
    """Show who writes and reads a topic, since when, how fast, how far behind, and what is stored."""
    from odradek.cli.usage_source import Source, spool_directory
    from odradek.cli.usage_topic import show_topic
    from odradek.cli.usage_view import print_damages
    from odradek.metrics.usage_totals import Filter

    source = Source(place, timeout)
    history = None
    if since is not None or spool is not None:
        named = Filter(topic=(topic,))
        history = _history(spool_directory(spool, place, timeout), since, None, named, topic)
    show_topic(source, topic, interval, history, as_json=as_json)
    if history is not None:
        print_damages(history)


def _query(wanted: "Filter") -> dict[str, Any]:
    return {name: list(patterns) for name, patterns in wanted._asdict().items() if patterns}


def _history(
    directory: "Path", since: str | None, until: str | None, wanted: "Filter", topic: str | None = None
) -> "History":
    """What the spool says. Raises UsageError."""
    import json

    from odradek.cli.usage_source import UsageError
    from odradek.cli.values import time_ms
    from odradek.metrics.spool import wall_ms
    from odradek.metrics.spool_history import History

    now = wall_ms()
    times: list[int] = []
    for option, text, default in (("--since", since, 0), ("--until", until, now)):
        try:
            times.append(default if text is None else time_ms(text, now))
        except ValueError as error:
            raise UsageError(f"{option} {error}") from None
    needle = b"" if topic is None else f'"topic":{json.dumps(topic)}'.encode()
    try:
        return History(directory, times[0], times[1], wanted.fits, needle)
    except OSError as error:
        raise UsageError(f"the spool {directory} cannot be read: {error.strerror}") from None
