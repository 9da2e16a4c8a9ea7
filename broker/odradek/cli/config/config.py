"""``odradek config``: get, set, explain; check is in `config_check`. Runs in the process of the command."""

from typing import TYPE_CHECKING, Any

import click

from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail, warn
from odradek.cli.framework.lazy import LazyGroup
from odradek.cli.framework.options import (
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


@click.group(
    cls=LazyGroup,
    lazy={"check": ("odradek.cli.config.check:check", "Check a broker's configuration file as a start does.")},
)
def config() -> None:
    """Get, set and explain the configuration of topics, brokers, their loggers, and groups; check a broker's file."""


def resource_options(command: Command) -> Command:
    """Add the options that select the resource: a topic, a broker, all brokers, a broker's loggers, or a group."""
    for option in (
        click.option(
            "--group",
            "of_group",
            metavar="GROUP",
            shell_complete=complete_groups,
            help="Act on the configuration of this group.",
        ),
        click.option(
            "--loggers",
            type=int,
            metavar="ID",
            help="Act on the log levels of this broker's loggers; changes last until the broker stops.",
        ),
        click.option("--all-brokers", is_flag=True, help="Act on the settings made at run time for all brokers."),
        click.option("--broker", type=int, metavar="ID", help="Act on the configuration of this broker."),
        click.option(
            "-t",
            "--topic",
            metavar="TOPIC",
            shell_complete=complete_topics,
            help="Act on the configuration of this topic.",
        ),
    ):
        command = option(command)
    return command


def _resource(
    topic: str | None, broker: int | None, all_brokers: bool, loggers: int | None, group: str | None
) -> "Resource | None":
    from odradek.clients.configs import Resource

    resources = [
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
    if len(resources) > 1:
        raise click.UsageError("give only one of --topic, --broker, --all-brokers, --loggers and --group")
    return resources[0] if resources else None


def _required(resource: "Resource | None") -> "Resource":
    if resource is None:
        raise click.UsageError(
            "no resource given: add --topic TOPIC, --broker ID, --all-brokers, --loggers ID or --group GROUP"
        )
    return resource


def _warn_of_similar(cluster: "Cluster", resource: "Resource") -> None:
    """Warn of a group that does not exist if a similar one does. It is no error: settings may be older than the group."""
    if resource.kind != "group":
        return
    from odradek.clients import tree_offsets
    from odradek.clients.errors import ClientError, hint_on
    from odradek.clients.groups import described_or_none, known_groups

    try:
        described = described_or_none(cluster, resource.name, in_tree=True)
    except ClientError:  # it may exist
        return
    if described is not None or tree_offsets.may_have_offsets(cluster, resource.name):
        return
    if similar := hint_on(resource.name, lambda: known_groups(cluster), ""):
        warn(f"group '{resource.name}' does not exist; {similar}")


def _value_cell(row: "dict[str, Any]") -> str | None:
    """The value as a table cell: "" for an empty value, and a readable form after durations and sizes."""
    from odradek.config.readable import with_reading

    if row["sensitive"]:
        return "(hidden)"
    return '""' if row["value"] == "" else with_reading(row["key"], row["value"])


@config.command("get")
@on_cluster
@resource_options
@click.argument("keys", metavar="[KEY]...", nargs=-1, shell_complete=complete_settings)
@click.option("--changed", is_flag=True, help="Show only values that are not the default.")
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
    """Show the values in effect and the source of each, for all keys or only for the KEYs given."""
    from odradek.cli.framework.config_change import unknown_key
    from odradek.cli.framework.output import echo_json, print_table
    from odradek.clients import configs

    resource = _required(_resource(topic, broker, all_brokers, loggers, of_group))
    _warn_of_similar(cluster, resource)
    entries = configs.describe(cluster, resource)
    for key in keys:
        if key not in entries:
            fail(unknown_key(key, resource, list(entries)))
    rows = [
        {
            "key": entry.name,
            "value": entry.value,
            "source": configs.SOURCES.get(entry.source, str(entry.source)),
            "read_only": entry.read_only,
            "sensitive": entry.sensitive,
        }
        for entry in (entries[key] for key in (keys or sorted(entries)))
        if not changed or entry.source != configs.DEFAULT_SOURCE
    ]
    if as_json:
        echo_json(rows)
        return
    print_table(
        ["key", "value", "source"],
        [[row["key"], _value_cell(row), row["source"]] for row in rows],
        f"no settings for {resource}",
    )


@config.command("set")
@on_cluster
@resource_options
@click.argument("words", metavar="[KEY=VALUE]...", nargs=-1, shell_complete=complete_settings)
@click.option(
    "--unset",
    metavar="KEY",
    multiple=True,
    help="Remove the value of this key, so that its default applies. Repeatable.",
)
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
    """Set keys, or remove their values (--unset). Durations and sizes may be written as 7d or 512MiB.

    If a change of retention deletes records, the command shows how many and asks for confirmation.
    """
    from odradek.cli.framework.config_change import change
    from odradek.cli.framework.options import key_values
    from odradek.cli.framework.output import echo_json

    resource = _required(_resource(topic, broker, all_brokers, loggers, of_group))
    context = click.get_current_context()
    values = key_values(context, context.command.params[0], words)
    if not values and not unset:
        raise click.UsageError("nothing to change: add KEY=VALUE or --unset KEY")
    _warn_of_similar(cluster, resource)
    result = change(cluster, resource, values, unset, yes=yes, dry_run=dry_run, quiet=as_json)
    if as_json:
        echo_json({resource.kind: resource.name} | result)


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
    """Explain a setting: its meaning, its value, which key the value is taken from, and what applies otherwise.

    With --topic TOPIC and KEY=VALUE, also show the records that the value would delete now. Without --topic, --broker or
    --group, show only the meaning and the default; no broker is contacted.
    """
    from odradek.cli.framework.output import echo_json

    resource = _resource(topic, broker, all_brokers, loggers, of_group)
    name, equals, value = key.partition("=")
    if equals and (resource is None or resource.kind != "topic"):
        raise click.UsageError(
            "KEY=VALUE shows what the value would delete from a topic: add --topic TOPIC, or leave out =VALUE"
        )
    new_value = value if equals else None
    explanation = _from_table(name) if resource is None else _from_broker(cluster, resource, name, new_value)
    if as_json:
        echo_json(explanation)
        return
    _print(explanation)


def _from_table(name: str) -> dict[str, Any]:
    """Explain a key from this program's table of keys, without a broker."""
    from odradek.cli.framework.config_change import unknown_key
    from odradek.config.key import show
    from odradek.config.table import BROKER_KEYS, TOPIC_KEYS

    matches = [(kind, keys[name]) for kind, keys in (("topic", TOPIC_KEYS), ("broker", BROKER_KEYS)) if name in keys]
    if not matches:
        fail(unknown_key(name, "Odradek", [*TOPIC_KEYS, *BROKER_KEYS]))
    _, key = matches[0]
    return {
        "key": name,
        "of": [kind for kind, _ in matches],
        "type": key.type_name,
        "default": show(key.default),
        "allowed": key.allows(),
        "documentation": key.doc,
        "comes_from": [synonym.name for synonym in key.synonyms],
    }


def _from_broker(cluster: "Cluster", resource: "Resource", name: str, value: str | None) -> dict[str, Any]:
    from odradek.cli.framework.config_change import RETENTION, is_exact, losses_with, unknown_key
    from odradek.cli.framework.values import config_value
    from odradek.clients import configs
    from odradek.clients.freed_space import space_rules

    _warn_of_similar(cluster, resource)
    entries = configs.describe(cluster, resource, explain=True)
    if name not in entries:
        fail(unknown_key(name, resource, list(entries)))
    entry = entries[name]
    explanation: dict[str, Any] = {
        "key": name,
        "of": [str(resource)],
        "type": configs.TYPES.get(entry.type),
        "value": entry.value,
        "source": configs.SOURCES.get(entry.source),
        "read_only": entry.read_only,
        "documentation": entry.documentation,
        "chain": [
            {"key": key, "value": synonym, "source": configs.SOURCES.get(source)}
            for key, synonym, source in entry.synonyms
        ],
    }
    if resource.kind == "topic" and name in RETENTION:
        settings = {} if value is None else {name: config_value(name, value)}
        rules = space_rules(cluster, resource.name)
        losses = losses_with(cluster, resource.name, entries, settings, rules)
        explanation["deletes"] = {
            "with": settings.get(name, entry.value),
            "records_at_most": sum(loss.records for loss in losses),
            "exact": is_exact(entries, settings),
            "partitions": [loss._asdict() for loss in losses],
            "space": rules._asdict(),
        }
    return explanation


def _print(explanation: dict[str, Any]) -> None:
    from odradek.cli.framework.config_change import print_losses
    from odradek.clients.freed_space import DELETION_POLICY, SpaceRules
    from odradek.clients.retention import ExpectedDeletion
    from odradek.config.readable import with_reading

    name = explanation["key"]
    echo(f"{name} of {', '.join(explanation['of'])}" + (f" ({explanation['type']})" if explanation["type"] else ""))
    if explanation.get("documentation"):
        echo(f"  {explanation['documentation']}")
    if "value" in explanation:
        echo(
            f"  value      {with_reading(name, explanation['value'])}"
            + ("  (read-only: a change requires a restart)" if explanation["read_only"] else "")
        )
        for number, source in enumerate(explanation["chain"]):
            shown = with_reading(source["key"], source["value"])
            echo(f"  {'otherwise ' if number else 'taken from'} {source['key']}={shown}  ({source['source']})")
    else:
        echo(f"  default    {with_reading(name, explanation['default'])}\n  allowed    {explanation['allowed']}")
        if explanation["comes_from"]:
            echo(f"  taken from the broker's {', '.join(explanation['comes_from'])}, for topics that do not set it")
    if "deletes" in explanation:
        deletes = explanation["deletes"]
        losses = [ExpectedDeletion(**loss) for loss in deletes["partitions"]]
        echo(f"  effect of {name}={with_reading(name, deletes['with'])} now:")
        if deletes["records_at_most"]:
            print_losses(losses, SpaceRules(**deletes["space"]), deletes["exact"])
        else:
            echo("  retention deletes nothing")
        if policy := deletes["space"]["deletion_policy"]:
            echo(f"the brokers' segment deletion policy {policy} may delete more segments ({DELETION_POLICY})")
