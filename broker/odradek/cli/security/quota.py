"""``odradek quota``: list, describe, set, remove, throttled. Runs in the process of the command."""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail
from odradek.cli.framework.lazy import LazyGroup
from odradek.cli.framework.options import COMMAND_CONFIG_OPTION, JSON_OPTION, TIMEOUT_OPTION, key_values, on_cluster
from odradek.cli.framework.principals import refuse_principal

if TYPE_CHECKING:
    from odradek.cli.framework.output import Amount
    from odradek.clients.cluster import Cluster
    from odradek.clients.quotas import EntityQuotas, QuotaEntity

Command = Callable[..., Any]

KEYS = {
    "producer_byte_rate": "bytes per second that a client may produce",
    "consumer_byte_rate": "bytes per second that a client may fetch",
    "request_percentage": "time of this broker's processes, in percent of one thread",
    "controller_mutation_rate": "partitions that may be created and deleted per second",
    "connection_creation_rate": "new connections per second, of an IP address",
}


def of_entity(function: Command) -> Command:
    """Add the options that name an entity; they are passed as `entity`."""

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        names = {
            name: options.pop(name)
            for name in ("user", "user_default", "client_id", "client_id_default", "ip", "ip_default")
        }
        return function(*arguments, entity=_entity(**names), **options)

    command: Command = run
    for option in reversed(
        (
            click.option("--user", metavar="NAME", help="The user, such as alice, without User:."),
            click.option("--user-default", is_flag=True, help="All users without a quota of their own."),
            click.option("--client-id", metavar="ID", help="The client id."),
            click.option("--client-id-default", is_flag=True, help="All client ids without a quota of their own."),
            click.option("--ip", metavar="ADDRESS", help="The IP address."),
            click.option("--ip-default", is_flag=True, help="All IP addresses without a quota of their own."),
        )
    ):
        command = option(command)
    return command


def _entity(
    user: str | None,
    user_default: bool,
    client_id: str | None,
    client_id_default: bool,
    ip: str | None,
    ip_default: bool,
) -> "QuotaEntity | None":
    """The entity of the options; None if there are none. Ends the command if they contradict each other."""
    from odradek.clients.quotas import QuotaEntity

    parts = []
    for kind, name, default in (
        ("user", user, user_default),
        ("client-id", client_id, client_id_default),
        ("ip", ip, ip_default),
    ):
        if name is not None and default:
            fail(f"--{kind} and --{kind}-default cannot be combined; leave one out")
        if name == "":
            fail(f"--{kind} is empty; name one, or use --{kind}-default for all without a quota of their own")
        if name is not None or default:
            parts.append((kind, name))
    if len(parts) > 1 and parts[-1][0] == "ip":
        fail("--ip cannot be combined with --user or --client-id")
    return QuotaEntity(tuple(parts)) if parts else None


def _hint(cluster: "Cluster", wanted: "QuotaEntity") -> str:
    """What the error about an entity without quotas adds: a similar name of one that has some."""
    from odradek.clients import quotas
    from odradek.clients.errors import ClientError, hint_on

    listing = "`odradek quota list` shows all"
    try:
        known = [part for found in quotas.describe(cluster) for part in found.entity.parts]
    except ClientError:
        return listing
    kind, name = next((part for part in wanted.parts if part[1] is not None and part not in known), ("", None))
    names = [other for of_kind, other in known if of_kind == kind and other is not None]
    return hint_on(name or "", lambda: names, listing)


def _needed(entity: "QuotaEntity | None") -> "QuotaEntity":
    if entity is None:
        fail("name an entity: --user, --user-default, --client-id, --client-id-default, --ip or --ip-default")
    return entity


def _numbers(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> dict[str, float]:
    """Parse KEY=NUMBER (a callback for click). Raises BadParameter."""
    from odradek.spelling import did_you_mean

    values = {}
    for key, text in key_values(context, parameter, words).items():
        if key not in KEYS:
            hint = did_you_mean(key, list(KEYS), 0.5) or f"must be one of {', '.join(KEYS)}"
            raise click.BadParameter(f"there is no quota '{key}'; {hint}", context, parameter)
        try:
            values[key] = float(text)
        except ValueError:
            raise click.BadParameter(f"{key}={text} is not a number, e.g. {key}=1048576", context, parameter) from None
        if not 0 < values[key] < float("inf"):
            raise click.BadParameter(f"{key}={text} must be greater than 0 and finite", context, parameter)
    return values


@click.group(cls=LazyGroup)
def quota() -> None:
    """Limit how much of a broker users, client ids and addresses may use.

    Of the quotas with the same key, the first that exists applies: of a user with a client id, of a user with all client ids,
    of a user; then of the default user with a client id, with all client ids, alone; then of a client id, of all client ids.
    Each broker applies a quota on its own.
    """


@quota.command("list")
@on_cluster
def list_(cluster: "Cluster", as_json: bool) -> None:
    """List all quotas."""
    from odradek.clients import quotas

    _print(quotas.describe(cluster), as_json, "no quotas are set; `odradek quota set` sets one")


@quota.command("describe")
@on_cluster
@of_entity
def describe(cluster: "Cluster", as_json: bool, entity: "QuotaEntity | None") -> None:
    """Show the quotas of one entity. Exit code 1 if the entity has none."""
    from odradek.clients import quotas

    wanted = _needed(entity)
    found = quotas.describe(cluster, wanted)
    if not found:
        fail(f"{wanted} has no quotas; {_hint(cluster, wanted)}")
    _print(found, as_json, "")


@quota.command("set")
@on_cluster
@of_entity
@click.argument("values", metavar="KEY=NUMBER...", nargs=-1, required=True, callback=_numbers)
@click.option("--dry-run", is_flag=True, help="Let the broker check the change, and change nothing.")
def set_(
    cluster: "Cluster", as_json: bool, entity: "QuotaEntity | None", values: dict[str, float], dry_run: bool
) -> None:
    """Set quotas of one entity; they apply at once to its clients, also to connected ones.

    \b
    Keys:
      producer_byte_rate        bytes per second of Produce requests
      consumer_byte_rate        bytes per second of Fetch responses
      request_percentage        time of the broker's processes, in percent of one thread
      controller_mutation_rate  partitions created and deleted per second
      connection_creation_rate  new connections per second (only with --ip, --ip-default)
    """
    from odradek.cli.framework.output import echo_json
    from odradek.clients import quotas

    wanted = _needed(entity)
    refuse_principal(dict(wanted.parts).get("user") or "", "--user")
    quotas.alter(cluster, wanted, values, validate_only=dry_run)
    if as_json:
        echo_json({"entity": dict(wanted.parts), "set": values, "dry_run": dry_run})
    else:
        echo(
            f"{'would set' if dry_run else 'set'} {', '.join(f'{key}={_shown(value)}' for key, value in values.items())} of "
            f"{wanted}"
        )


@quota.command("remove")
@on_cluster
@of_entity
@click.argument("keys", metavar="[KEY]...", nargs=-1)
def remove(cluster: "Cluster", as_json: bool, entity: "QuotaEntity | None", keys: tuple[str, ...]) -> None:
    """Remove the named quotas of one entity, or all of its quotas. Exit code 1 if the entity does not have them."""
    from odradek.cli.framework.output import echo_json
    from odradek.clients import quotas

    wanted = _needed(entity)
    present = {key for found in quotas.describe(cluster, wanted) for key in found.values}
    missing = [key for key in keys if key not in present]
    if missing or not present:
        hint = "`odradek quota list` shows all" if present else _hint(cluster, wanted)
        fail(f"{wanted} has no quota{f' {missing[0]}' if missing else 's'}; {hint}")
    removed = list(dict.fromkeys(keys)) or sorted(present)
    quotas.alter(cluster, wanted, {}, removed)
    if as_json:
        echo_json({"entity": dict(wanted.parts), "removed": removed})
    else:
        echo(f"removed {', '.join(removed)} of {wanted}")


@quota.command("throttled")
@click.option(
    "-m",
    "--metrics",
    metavar="HOST:PORT",
    envvar="ODRADEK_METRICS",
    show_envvar=True,
    default="127.0.0.1:9404",
    show_default=True,
    help="The metrics.listener of the broker.",
)
@COMMAND_CONFIG_OPTION
@TIMEOUT_OPTION
@JSON_OPTION
def throttled(metrics: str, timeout: float, as_json: bool) -> None:
    """Show the clients of a broker that are throttled now, with their limits and rates."""
    from odradek.cli.framework.output import echo_json, print_table, span
    from odradek.cli.inspection.throttled_clients import throttled_clients
    from odradek.cli.inspection.usage_source import Source, UsageError, UsageLocation

    try:
        clients = throttled_clients(Source(UsageLocation(metrics), timeout).metrics())
    except UsageError as error:
        fail(error)
    if as_json:
        echo_json([client._asdict() for client in clients])
        return
    titles = ["user", "client id", "quota", "limit", "rate", "throttled for"]
    rows = [
        [
            client.user,
            client.client_id,
            client.quota,
            _shown(client.limit),
            _shown(client.rate),
            span(int(client.remaining_ms)),
        ]
        for client in clients
    ]
    print_table(titles, rows, "no client is throttled")


def _shown(value: float) -> "Amount":
    from odradek.cli.framework.output import Amount

    return Amount(f"{value:,.0f}" if value == int(value) else f"{value:,.3f}".rstrip("0"))


def _print(found: "list[EntityQuotas]", as_json: bool, empty: str) -> None:
    from odradek.cli.framework.output import echo_json, print_table

    if as_json:
        echo_json([{"entity": dict(each.entity.parts), "quotas": each.values} for each in found])
        return
    rows = [[*_cells(each.entity), key, _shown(value)] for each in found for key, value in each.values.items()]
    print_table(["user", "client id", "ip", "quota", "limit"], rows, empty)


def _cells(entity: "QuotaEntity") -> list[str | None]:
    names = dict(entity.parts)
    return [None if kind not in names else names[kind] or "(default)" for kind in ("user", "client-id", "ip")]
