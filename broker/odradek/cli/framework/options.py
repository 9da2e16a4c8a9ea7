"""Options, arguments, confirmation and shell completion shared by the commands that connect to a cluster."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from odradek.cli.framework.command import GeneralOption
from odradek.cli.framework.failure import fail, warn
from odradek.cli.framework.interrupt import interrupt_note

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from odradek.clients.cluster import Cluster
    from odradek.clients.errors import ClientError
    from odradek.clients.security import ClientSecurity

Command = Callable[..., Any]
SERVERS = "ODRADEK_BOOTSTRAP_SERVERS"
DEFAULT_SERVERS = "localhost:9092"
COMPLETION_TIMEOUT_S = 1.0
COMPLETE_NAMES = "ODRADEK_COMPLETE_NAMES"
"""The variable that must be 1 so that a shell completes names which only the cluster knows."""

COMMAND_CONFIG = "ODRADEK_COMMAND_CONFIG"
_SECURITY = "odradek.command_config"
_WARNED = "odradek.command_config.warned"


def _note_command_config(context: click.Context, _: click.Parameter, value: str | None) -> None:
    context.meta[_SECURITY] = value


COMMAND_CONFIG_OPTION = click.option(
    "--command-config",
    cls=GeneralOption,
    metavar="FILE",
    type=click.Path(dir_okay=False),
    envvar=COMMAND_CONFIG,
    show_envvar=True,
    expose_value=False,
    callback=_note_command_config,
    help="A properties file with Kafka's keys for clients, such as security.protocol and sasl.jaas.config.",
)
_SERVERS_OPTION = click.option(
    "-b",
    "--bootstrap-server",
    "servers",
    cls=GeneralOption,
    metavar="HOST:PORT,...",
    envvar=SERVERS,
    default=DEFAULT_SERVERS,
    show_default=True,
    show_envvar=True,
    help="Brokers to connect to first; the cluster's other brokers are discovered. Without :PORT, the port is 9092.",
)


def BOOTSTRAP_OPTION(command: Command) -> Command:
    """The options that say how to connect: --bootstrap-server and --command-config."""
    return _SERVERS_OPTION(COMMAND_CONFIG_OPTION(command))


TIMEOUT_OPTION = click.option(
    "--timeout",
    cls=GeneralOption,
    type=click.FloatRange(0.01),
    default=30.0,
    show_default=True,
    help="Seconds to wait for a broker's response.",
)


class Span(click.ParamType[float]):
    """A span of time such as 5m, 1h30m or 90s; a number without a unit is in seconds. The value is in seconds."""

    name = "span"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        """Parse the option's text. Raises BadParameter."""
        from odradek.cli.framework.values import duration_ms

        if isinstance(value, float):
            return value
        try:
            seconds = float(value) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", value) else duration_ms(value) / 1000
        except ValueError:
            self.fail(
                f"'{value}' is not a span of time: write e.g. 5m, 1h30m, 90s, or a number of seconds",
                parameter,
                context,
            )
        if seconds < 0.001:
            self.fail(
                f"'{value}' is not longer than 0: write e.g. 5m, 1h30m, 90s, or a number of seconds", parameter, context
            )
        return seconds


JSON_OPTION = click.option("--json", "as_json", cls=GeneralOption, is_flag=True, help="Print JSON instead of text.")
YES_OPTION = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
DRY_RUN_OPTION = click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")


def repeatable_choice(name: str, parameter: str, choices: Sequence[str], listed: str) -> Callable[[Command], Command]:
    """An option that lists only what has one of these values. It may be given several times, and ignores case.

    :param parameter: receives the chosen values as a tuple. :param listed: ends "List only ..." in the help text.
    """
    return click.option(
        name,
        parameter,
        type=click.Choice(choices, case_sensitive=False),
        multiple=True,
        help=f"List only {listed}",
    )


def on_cluster(function: Command) -> Command:
    """Call the function with a `Cluster` and `as_json` before its own options; a ClientError is printed as one line."""

    @wraps(function)
    def run(servers: str, timeout: float, **options: Any) -> Any:
        from odradek.clients.errors import ClientError

        try:
            with connection_to(servers, timeout) as cluster, unanswered_changes_note(cluster):
                return function(cluster, **options)
        except ClientError as error:
            fail_on_cluster(error, servers)

    command: Command = run
    for option in (JSON_OPTION, TIMEOUT_OPTION, BOOTSTRAP_OPTION):
        command = option(command)
    return command


def connection_to(servers: str, timeout: float) -> "Cluster":
    """The cluster of a command's -b and --timeout; connects at the first request. Raises ClientError for a bad address."""
    from odradek.clients.cluster import Cluster

    return Cluster(servers, timeout, on_silence=warn, security=command_security())


def command_config_file() -> str | None:
    """The file that the command's --command-config names, for a program that reads it itself."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_SECURITY)


def command_security() -> "ClientSecurity":
    """The security settings of the command's --command-config. Raises ClientError."""
    from odradek.clients.security import PLAIN, ClientSecurity

    context = click.get_current_context(silent=True)
    path = command_config_file()
    if context is None or path is None:
        return PLAIN
    security = ClientSecurity.from_file(path)
    if not context.meta.setdefault(_WARNED, False):
        context.meta[_WARNED] = True
        for line in security.warnings:
            warn(line)
    return security


def connecting_options() -> list[str]:
    """The --bootstrap-server and --command-config of the running command, for a command that connects in the same way. What
    comes from the environment is left out: the other command takes it from there."""
    context = click.get_current_context()
    values = {
        "-b": ("servers", context.params["servers"]),
        "--command-config": ("command_config", command_config_file()),
    }
    return [
        word
        for option, (parameter, value) in values.items()
        if context.get_parameter_source(parameter) is ParameterSource.COMMANDLINE
        for word in (option, str(value))
    ]


def is_default(parameter: str) -> bool:
    """Whether the running command got a parameter neither as an option nor from the environment."""
    return click.get_current_context().get_parameter_source(parameter) is ParameterSource.DEFAULT


def fail_on_cluster(error: "ClientError", servers: str) -> NoReturn:
    """End the command with the error. If no bootstrap server could be reached, the message says how to name another one."""
    from odradek.clients.errors import NoBootstrapServerError

    hint = ""
    if isinstance(error, NoBootstrapServerError) and not error.refused:
        context = click.get_current_context(silent=True)
        source = None if context is None else context.get_parameter_source("servers")
        if error.unknown:
            hint = "; check the name and how this machine resolves it (/etc/hosts, DNS), or give an address with -b HOST:PORT"
        elif servers == DEFAULT_SERVERS:
            hint = f"; start a broker there, or name another one with -b HOST:PORT or {SERVERS}"
        elif source is ParameterSource.ENVIRONMENT:
            hint = f"; {SERVERS} must name a listener of a running broker, or add -b HOST:PORT"
        else:
            hint = "; -b must name a listener of a running broker (`odradek status` on its machine shows them)"
    fail(f"{error}{hint}")


@contextmanager
def unanswered_changes_note(cluster: "Cluster") -> Iterator[None]:
    """If a signal ends the command, name in its message each change that was requested and not yet answered."""
    try:
        yield
    except KeyboardInterrupt as error:
        for name in cluster.unanswered_changes():
            error.add_note(f"the broker had not yet responded to a {name} request, and may still execute it")
        raise


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation, and end the command if it is declined. Without a terminal on stdin, only `--yes` confirms."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail(f"{question} Standard input is not a terminal: add --yes to confirm")
    with interrupt_note(lambda: "nothing was changed"):
        try:
            agreed = click.confirm(f"{question} Proceed?", err=True)
        except click.Abort as error:  # Ctrl-C, or Ctrl-D for the end of input
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None
            agreed = False
    if not agreed:
        fail("nothing was changed")


def key_values(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> dict[str, str]:
    """Parse the values of a KEY=VALUE option (a callback for click). Raises BadParameter."""
    values = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"'{word}' is not KEY=VALUE, e.g. retention.ms=86400000", context, parameter)
        values[key.strip()] = value.strip()
    return values


def complete_topics(context: click.Context, _: click.Parameter, prefix: str) -> "list[CompletionItem]":
    """Complete names of topics, if `COMPLETE_NAMES` is set; empty if no broker responds within `COMPLETION_TIMEOUT_S`."""
    return _complete_from_cluster(context, prefix, lambda cluster: cluster.metadata().topics)


def complete_groups(context: click.Context, _: click.Parameter, prefix: str) -> "list[CompletionItem]":
    """Complete group ids, if `COMPLETE_NAMES` is set; empty if no broker responds within `COMPLETION_TIMEOUT_S`."""

    def names(cluster: "Cluster") -> list[str]:
        from odradek.clients import tree_offsets
        from odradek.clients.groups import list_groups

        return sorted({group.group_id for group in list_groups(cluster)}.union(tree_offsets.groups(cluster)))

    return _complete_from_cluster(context, prefix, names)


def complete_transactional_ids(context: click.Context, _: click.Parameter, prefix: str) -> "list[CompletionItem]":
    """Complete transactional ids, if `COMPLETE_NAMES` is set; empty if no broker responds within `COMPLETION_TIMEOUT_S`."""

    def names(cluster: "Cluster") -> list[str]:
        from odradek.clients.transactions import list_transactions

        return [listing.transactional_id for listing in list_transactions(cluster)]

    return _complete_from_cluster(context, prefix, names)


def complete_settings(context: click.Context, _: click.Parameter, prefix: str) -> "list[CompletionItem]":
    """Complete configuration keys: of topics if --topic is set, of brokers if --broker is set, else of both. Sends nothing."""
    from odradek.config.table import BROKER_KEYS, TOPIC_KEYS

    options = context.params
    of_topic = bool(options.get("topic"))
    of_broker = options.get("broker") is not None or bool(options.get("all_brokers"))
    return _complete_keys(prefix, *([] if of_broker else [TOPIC_KEYS]), *([] if of_topic else [BROKER_KEYS]))


def complete_broker_settings(_: click.Context, __: click.Parameter, prefix: str) -> "list[CompletionItem]":
    """Complete configuration keys of brokers."""
    from odradek.config.table import BROKER_KEYS

    return _complete_keys(prefix, BROKER_KEYS)


def complete_topic_settings(_: click.Context, __: click.Parameter, prefix: str) -> "list[CompletionItem]":
    """Complete configuration keys of topics."""
    from odradek.config.table import TOPIC_KEYS

    return _complete_keys(prefix, TOPIC_KEYS)


def _complete_keys(prefix: str, *tables: Mapping[str, Any]) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    return [
        CompletionItem(name) for name in sorted({name for table in tables for name in table}) if name.startswith(prefix)
    ]


def complete_paths(_: click.Context, __: click.Parameter, prefix: str) -> "list[CompletionItem]":
    """Let the shell complete names of files and directories."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(prefix, type="file")]


def _complete_from_cluster(
    context: click.Context, prefix: str, names: "Callable[[Cluster], Any]"
) -> "list[CompletionItem]":
    if os.environ.get(COMPLETE_NAMES) != "1":
        return []

    from click.shell_completion import CompletionItem

    from odradek.clients.cluster import Cluster
    from odradek.clients.errors import ClientError

    try:
        with Cluster(context.params.get("servers") or DEFAULT_SERVERS, COMPLETION_TIMEOUT_S) as cluster:
            return [CompletionItem(name) for name in sorted(names(cluster)) if name.startswith(prefix)]
    except ClientError:
        return []  # a completion cannot show an error; the command itself reports it


TOPIC_ARGUMENT = click.argument("topic", shell_complete=complete_topics)
TOPICS_ARGUMENT = click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topics)
GROUP_ARGUMENT = click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
