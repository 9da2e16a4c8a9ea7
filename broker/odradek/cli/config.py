"""``odradek config``: get, set, explain. In the process of the command."""

from typing import TYPE_CHECKING, Any

import click

from odradek.cli.failure import fail
from odradek.cli.lazy import LazyGroup
from odradek.cli.options import (
    DRY_RUN_OPTION,
    YES_OPTION,
    Command,
    complete_groups,
    complete_settings,
    complete_topics,
    on_cluster,
)

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster
    from odradek.clients.configs import Resource


@click.group(cls=LazyGroup)
def config() -> None:
    """Get, set and explain the configuration of topics, brokers, their loggers, and groups."""


def resource_options(command: Command) -> Command:
    """Whose configuration."""
    for option in (
        click.option("--group", "of_group", metavar="GROUP", shell_complete=complete_groups, help="A group's."),
        click.option("--loggers", type=int, metavar="ID", help="The levels of a broker's loggers, until it stops."),
        click.option("--all-brokers", is_flag=True, help="What is set for all brokers at run time."),
        click.option("--broker", type=int, metavar="ID", help="A broker's."),
        click.option("-t", "--topic", metavar="TOPIC", shell_complete=complete_topics, help="A topic's."),
    ):
        command = option(command)
    return command


def _resource(
    topic: str | None, broker: int | None, all_brokers: bool, loggers: int | None, group: str | None
) -> "Resource | None":
    from odradek.clients.configs import Resource

    given = [
        Resource(kind, name)
        for kind, name in (
            ("topic", topic),
            ("broker", None if broker is None else str(broker)),
            ("broker", "" if all_brokers else None),
            ("loggers", None if loggers is None else str(loggers)),
            ("group", group),
        )
        if name is not None
    ]
    if len(given) > 1:
        raise click.UsageError("give only one of --topic, --broker, --all-brokers, --loggers and --group")
    return given[0] if given else None


def _needed(resource: "Resource | None") -> "Resource":
    if resource is None:
        raise click.UsageError(
            "say whose configuration: --topic TOPIC, --broker ID, --all-brokers, --loggers ID or --group GROUP"
        )
    return resource


def _shown(row: "dict[str, Any]") -> str | None:
    """A value as the table has it: an empty one is seen, and a number has its reading beside it."""
    from odradek.config.readable import with_reading

    if row["sensitive"]:
        return "(hidden)"
    return '""' if row["value"] == "" else with_reading(row["key"], row["value"])


@config.command("get")
@on_cluster
@resource_options
@click.argument("keys", metavar="[KEY]...", nargs=-1, shell_complete=complete_settings)
@click.option("--changed", is_flag=True, help="Only what is not the default.")
def get(
    cluster: "Cluster",
    as_json: bool,
    topic: str | None,
    broker: int | None,
    all_brokers: bool,
    loggers: int | None,
    of_group: str | None,
    keys: tuple[str, ...],
    changed: bool,
) -> None:
    """Show effective values, and where they come from."""
    from odradek.cli.config_change import unknown_key
    from odradek.cli.output import echo_json, print_table
    from odradek.clients import configs

    resource = _needed(_resource(topic, broker, all_brokers, loggers, of_group))
    found = configs.describe(cluster, resource)
    for key in keys:
        if key not in found:
            fail(unknown_key(key, resource, list(found)))
    rows = [
        {
            "key": one.name,
            "value": one.value,
            "source": configs.SOURCES.get(one.source, str(one.source)),
            "read_only": one.read_only,
            "sensitive": one.sensitive,
        }
        for one in (found[key] for key in (keys or sorted(found)))
        if not changed or one.source != configs.DEFAULT_SOURCE
    ]
    if as_json:
        echo_json(rows)
        return
    print_table(
        ["key", "value", "source"],
        [[row["key"], _shown(row), row["source"]] for row in rows],
        f"nothing is set for {resource}",
    )


@config.command("set")
@on_cluster
@resource_options
@click.argument("words", metavar="[KEY=VALUE]...", nargs=-1, shell_complete=complete_settings)
@click.option("--unset", metavar="KEY", multiple=True, help="Give a setting back to the default.")
@YES_OPTION
@DRY_RUN_OPTION
def set_(
    cluster: "Cluster",
    as_json: bool,
    topic: str | None,
    broker: int | None,
    all_brokers: bool,
    loggers: int | None,
    of_group: str | None,
    words: tuple[str, ...],
    unset: tuple[str, ...],
    yes: bool,
    dry_run: bool,
) -> None:
    """Change settings; 7d or 512MiB will do for times and sizes. What a change of retention deletes is said first."""
    from odradek.cli.config_change import change
    from odradek.cli.options import key_values
    from odradek.cli.output import echo_json

    resource = _needed(_resource(topic, broker, all_brokers, loggers, of_group))
    context = click.get_current_context()
    values = key_values(context, context.command.params[0], words)
    if not values and not unset:
        raise click.UsageError("nothing to change: give KEY=VALUE or --unset KEY")
    told = change(cluster, resource, values, unset, yes=yes, dry_run=dry_run, quiet=as_json)
    if as_json:
        echo_json({resource.kind: resource.name} | told)


@config.command("explain")
@on_cluster
@resource_options
@click.argument("key", metavar="KEY[=VALUE]", shell_complete=complete_settings)
def explain(
    cluster: "Cluster",
    as_json: bool,
    topic: str | None,
    broker: int | None,
    all_brokers: bool,
    loggers: int | None,
    of_group: str | None,
    key: str,
) -> None:
    """Explain a setting: what it means, its value and where that comes from; with =VALUE what that would delete.

    Without --topic, --broker or --group: what it means; no broker is asked.
    """
    from odradek.cli.output import echo_json

    resource = _resource(topic, broker, all_brokers, loggers, of_group)
    name, equals, value = key.partition("=")
    if equals and (resource is None or resource.kind != "topic"):
        raise click.UsageError("what a value would delete is told of a topic: add --topic TOPIC")
    wanted = value if equals else None
    told = _from_table(name) if resource is None else _from_broker(cluster, resource, name, wanted)
    if as_json:
        echo_json(told)
        return
    _print(told)


def _from_table(name: str) -> dict[str, Any]:
    """Of the table of keys that comes with this program."""
    from odradek.cli.config_change import unknown_key
    from odradek.config.key import show
    from odradek.config.table import BROKER_KEYS, TOPIC_KEYS

    found = [(kind, keys[name]) for kind, keys in (("topic", TOPIC_KEYS), ("broker", BROKER_KEYS)) if name in keys]
    if not found:
        fail(unknown_key(name, "this table of keys", [*TOPIC_KEYS, *BROKER_KEYS]))
    _, key = found[0]
    return {
        "key": name,
        "of": [kind for kind, _ in found],
        "type": key.type_name,
        "default": show(key.default),
        "allowed": key.allows(),
        "documentation": key.doc,
        "comes_from": [one.name for one in key.synonyms],
    }


def _from_broker(cluster: "Cluster", resource: "Resource", name: str, value: str | None) -> dict[str, Any]:
    from odradek.cli.config_change import RETENTION, is_exact, losses_with, unknown_key
    from odradek.cli.values import config_value
    from odradek.clients import configs
    from odradek.clients.freed_space import space_rules

    found = configs.describe(cluster, resource, explain=True)
    if name not in found:
        fail(unknown_key(name, resource, list(found)))
    entry = found[name]
    told: dict[str, Any] = {
        "key": name,
        "of": [str(resource)],
        "type": configs.TYPES.get(entry.type),
        "value": entry.value,
        "source": configs.SOURCES.get(entry.source),
        "read_only": entry.read_only,
        "documentation": entry.documentation,
        "chain": [
            {"key": key, "value": one, "source": configs.SOURCES.get(source)} for key, one, source in entry.synonyms
        ],
    }
    if resource.kind == "topic" and name in RETENTION:
        settings = {} if value is None else {name: config_value(name, value)}
        rules = space_rules(cluster, resource.name)
        losses = losses_with(cluster, resource.name, found, settings, rules)
        told["deletes"] = {
            "with": settings.get(name, entry.value),
            "records_at_most": sum(one.records for one in losses),
            "exact": is_exact(found, settings),
            "partitions": [one._asdict() for one in losses],
            "space": rules._asdict(),
        }
    return told


def _print(told: dict[str, Any]) -> None:
    from odradek.cli.config_change import print_losses
    from odradek.clients.freed_space import DELETION_POLICY, SpaceRules
    from odradek.clients.retention import ExpectedDeletion
    from odradek.config.readable import with_reading

    name = told["key"]
    click.echo(f"{name} of {', '.join(told['of'])}" + (f" ({told['type']})" if told["type"] else ""))
    if told.get("documentation"):
        click.echo(f"  {told['documentation']}")
    if "value" in told:
        click.echo(
            f"  value    {with_reading(name, told['value'])}  from {told['source']}"
            + (", read only" if told["read_only"] else "")
        )
        for number, one in enumerate(told["chain"]):
            shown = with_reading(one["key"], one["value"])
            click.echo(f"  {'counts  ' if not number else 'else    '} {one['key']}={shown}  ({one['source']})")
    else:
        click.echo(f"  default  {with_reading(name, told['default'])}\n  allowed  {told['allowed']}")
        if told["comes_from"]:
            click.echo(f"  a topic that does not set it has the broker's {', '.join(told['comes_from'])}")
    if "deletes" in told:
        deletes = told["deletes"]
        losses = [ExpectedDeletion(**one) for one in deletes["partitions"]]
        click.echo(f"  with {name}={with_reading(name, deletes['with'])} now:")
        if deletes["records_at_most"]:
            print_losses(losses, SpaceRules(**deletes["space"]), deletes["exact"])
        else:
            click.echo("  it deletes nothing")
        if policy := deletes["space"]["deletion_policy"]:
            click.echo(f"the class {policy} of the brokers may delete more segments ({DELETION_POLICY})")
