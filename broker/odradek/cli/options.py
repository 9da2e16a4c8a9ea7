"""What commands share that talk to a cluster: which one, how long to wait, JSON or tables, and asking before destroying."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from odradek.cli.failure import fail
from odradek.cli.interrupt import noting

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from odradek.clients.cluster import Cluster

Command = TypeVar("Command", bound=Callable[..., Any])
SERVERS = "ODRADEK_BOOTSTRAP_SERVERS"
DEFAULT_SERVERS = "localhost:9092"
COMPLETION_TIMEOUT_S = 1.0

BOOTSTRAP_OPTION = click.option(
    "-b",
    "--bootstrap-server",
    "servers",
    metavar="HOST:PORT,...",
    envvar=SERVERS,
    default=DEFAULT_SERVERS,
    show_default=True,
    show_envvar=True,
    help="Brokers to begin with.",
)
TIMEOUT_OPTION = click.option(
    "--timeout", type=click.FloatRange(0.01), default=30.0, show_default=True, help="Seconds to wait for an answer."
)
JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="JSON, for scripts.")
YES_OPTION = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
DRY_RUN_OPTION = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")


def on_cluster(function: Command) -> Command:
    """The function gets a `Cluster` and `as_json` before its own options; what goes wrong with the cluster is one line."""

    @wraps(function)
    def run(servers: str, timeout: float, **options: Any) -> Any:
        from odradek.clients.cluster import Cluster
        from odradek.clients.errors import ClientError, UnreachableError

        try:
            with Cluster(servers, timeout) as cluster, noting_changes(cluster):
                return function(cluster, **options)
        except UnreachableError as error:
            fail(f"{error}; -b HOST:PORT or {SERVERS} names another" if servers == DEFAULT_SERVERS else error)
        except ClientError as error:
            fail(error)

    command: Any = run
    for option in (JSON_OPTION, TIMEOUT_OPTION, BOOTSTRAP_OPTION):
        command = option(command)
    return command


@contextmanager
def noting_changes(cluster: "Cluster") -> Iterator[None]:
    """A command that a signal ends says which change it had asked for without seeing the answer."""
    try:
        yield
    except KeyboardInterrupt as error:
        for name in cluster.unanswered_changes():
            error.add_note(f"the broker had not yet answered a {name} request, and may still execute it")
        raise


def confirm(question: str, yes: bool) -> None:
    """Ends the command unless a person agrees. Where nobody can be asked, `--yes` must have been given."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail(f"{question} Standard input is not a terminal, so there is no confirmation: add --yes to proceed")
    with noting(lambda: "nothing was changed"):
        try:
            agreed = click.confirm(f"{question} Do it?", err=True)
        except click.Abort as error:  # Ctrl-C, or Ctrl-D for the end of input
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None
            agreed = False
    if not agreed:
        fail("nothing was changed")


def key_values(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """A callback for options KEY=VALUE."""
    found = {}
    for word in given:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"'{word}' is not KEY=VALUE, e.g. retention.ms=86400000", context, parameter)
        found[key.strip()] = value.strip()
    return found


def complete_topics(context: click.Context, _: click.Parameter, begun: str) -> "list[CompletionItem]":
    """Names of topics for the shell; nothing where no broker answers quickly."""
    return _completed(context, begun, lambda cluster: cluster.metadata().topics)


def complete_groups(context: click.Context, _: click.Parameter, begun: str) -> "list[CompletionItem]":
    """Names of groups for the shell."""

    def names(cluster: "Cluster") -> list[str]:
        from odradek.clients import tree_offsets
        from odradek.clients.groups import list_groups

        return sorted({one.group_id for one in list_groups(cluster)}.union(tree_offsets.groups(cluster)))

    return _completed(context, begun, names)


def complete_settings(context: click.Context, _: click.Parameter, begun: str) -> "list[CompletionItem]":
    """Keys of settings for the shell: of a topic or a broker as --topic or --broker says, else of both. No broker is asked."""
    from odradek.config.table import BROKER_KEYS, TOPIC_KEYS

    given = context.params
    of_topic = bool(given.get("topic"))
    of_broker = given.get("broker") is not None or bool(given.get("all_brokers"))
    return _keys(begun, *([] if of_broker else [TOPIC_KEYS]), *([] if of_topic else [BROKER_KEYS]))


def complete_topic_settings(_: click.Context, __: click.Parameter, begun: str) -> "list[CompletionItem]":
    """Keys of a topic's settings for the shell."""
    from odradek.config.table import TOPIC_KEYS

    return _keys(begun, TOPIC_KEYS)


def _keys(begun: str, *tables: Mapping[str, Any]) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    return [
        CompletionItem(name) for name in sorted({name for table in tables for name in table}) if name.startswith(begun)
    ]


def _completed(context: click.Context, begun: str, names: "Callable[[Cluster], Any]") -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    from odradek.clients.cluster import Cluster
    from odradek.clients.errors import ClientError

    try:
        with Cluster(context.params.get("servers") or DEFAULT_SERVERS, COMPLETION_TIMEOUT_S) as cluster:
            return [CompletionItem(name) for name in sorted(names(cluster)) if name.startswith(begun)]
    except ClientError:
        return []  # a shell has no place for an error; the command itself will tell


TOPIC_ARGUMENT = click.argument("topic", shell_complete=complete_topics)
TOPICS_ARGUMENT = click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topics)
GROUP_ARGUMENT = click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
