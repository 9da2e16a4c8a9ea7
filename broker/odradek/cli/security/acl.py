"""``odradek acl``: list, add, remove, explain, unused. Runs in the process of the command."""

from collections.abc import Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail
from odradek.cli.framework.lazy import LazyGroup
from odradek.cli.framework.options import (
    DRY_RUN_OPTION,
    YES_OPTION,
    Command,
    complete_groups,
    complete_topics,
    confirm,
    connecting_options,
    on_cluster,
)
from odradek.cli.framework.principals import PRINCIPAL, USER_RESOURCE
from odradek.security.acl import Operation

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster
    from odradek.security.acl import Acl
    from odradek.security.authorizer import Rule

OPERATIONS = tuple(op.name.lower().replace("_", "-") for op in Operation if op >= Operation.ALL)


def named_by(option: str) -> str:
    """The parameter with the resources that an option names."""
    return f"{option.removeprefix('--').replace('-', '_')}_resources"


@click.group(cls=LazyGroup)
def acl() -> None:
    """List, add, remove and explain access control lists: rules of what a principal may do with a resource."""


def resources(function: Command) -> Command:
    """Add the options that name resources. The function receives `named`: [(resource type, name)]."""

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        from odradek.security.acl import CLUSTER_NAME
        from odradek.security.resource_types import RESOURCE_TYPES

        given = [(row.type, options.pop(named_by(row.option))) for row in RESOURCE_TYPES.values()]
        named = [(kind, name) for kind, names in given for name in ([CLUSTER_NAME] if names is True else names or ())]
        return function(*arguments, named=named, **options)

    command: Command = run
    for option in (
        click.option("--cluster", named_by("--cluster"), is_flag=True, help="Rules for the cluster as a whole."),
        click.option(
            "--delegation-token",
            named_by("--delegation-token"),
            metavar="ID",
            multiple=True,
            help="Rules for this delegation token (describe).",
        ),
        click.option(
            "--user",
            named_by("--user"),
            metavar="PRINCIPAL",
            type=USER_RESOURCE,
            multiple=True,
            help="Rules for the tokens of this user, such as User:alice; '*' stands for all users.",
        ),
        click.option(
            "--transactional-id",
            named_by("--transactional-id"),
            metavar="ID",
            multiple=True,
            help="Rules for this transactional id.",
        ),
        click.option(
            "--group",
            named_by("--group"),
            metavar="GROUP",
            multiple=True,
            shell_complete=complete_groups,
            help="Rules for this group; '*' stands for all groups.",
        ),
        click.option(
            "-t",
            "--topic",
            named_by("--topic"),
            metavar="TOPIC",
            multiple=True,
            shell_complete=complete_topics,
            help="Rules for this topic; '*' stands for all topics.",
        ),
    ):
        command = option(command)
    return command


def rules(function: Command) -> Command:
    """Add the options that describe ACLs. The function receives `acls`."""

    @wraps(function)
    def run(
        *arguments: Any,
        named: list[tuple[int, str]],
        allowed: Sequence[str],
        denied: Sequence[str],
        hosts: Sequence[str],
        operations: Sequence[str],
        prefix: bool,
        producer: bool,
        consumer: bool,
        idempotent: bool,
        **options: Any,
    ) -> Any:
        if producer or consumer:
            if operations or denied:
                raise click.UsageError(
                    "--producer and --consumer choose the operations, and only allow: omit --operation and --deny"
                )
            acls = _of_role(named, producer, consumer, idempotent, prefix, allowed, hosts)
        else:
            acls = _of_operations(named, operations, prefix, allowed, denied, hosts)
        return function(*arguments, acls=acls, **options)

    command: Command = run
    for option in (
        click.option(
            "--idempotent", is_flag=True, help="With --producer: also allow IDEMPOTENT_WRITE (for clients before 3.0)."
        ),
        click.option("--consumer", is_flag=True, help="What a consumer needs: READ on the topics and on the groups."),
        click.option(
            "--producer",
            is_flag=True,
            help="What a producer needs: WRITE and CREATE on the topics, WRITE on the transactional ids.",
        ),
        click.option(
            "--prefix",
            is_flag=True,
            help="Treat the names as prefixes: the rules apply to all resources whose names begin with them.",
        ),
        click.option(
            "--operation",
            "operations",
            type=click.Choice(OPERATIONS, case_sensitive=False),
            multiple=True,
            help="An operation that the rules allow or deny. Repeatable.",
        ),
        click.option(
            "--host",
            "hosts",
            metavar="ADDRESS",
            multiple=True,
            help="Only from this address.  [default: every address]",
        ),
        click.option(
            "--deny",
            "denied",
            metavar="PRINCIPAL",
            type=PRINCIPAL,
            multiple=True,
            help="Deny the operations to this principal, such as User:mallory. Repeatable.",
        ),
        click.option(
            "--allow",
            "--allow-principal",
            "allowed",
            metavar="PRINCIPAL",
            type=PRINCIPAL,
            multiple=True,
            help="Allow the operations to this principal, such as User:alice; 'User:*' stands for everybody. Repeatable.",
        ),
    ):
        command = option(command)
    return resources(command)


def _number(operation: str) -> int:
    from odradek.security.acl import Operation

    return Operation[operation.upper().replace("-", "_")]


def _checked(acls: "list[Acl]") -> "list[Acl]":
    from odradek.security.acl import problem_of

    if not acls:
        raise click.UsageError("nothing to do: give a principal (--allow or --deny), an --operation, and a resource")
    for one in acls:
        problem = problem_of(one) or _problem_of_rule(one)
        if problem is not None:
            raise click.UsageError(f"{one.principal}, {one.name}: {problem}")
    return sorted(set(acls))


def _problem_of_rule(one: "Acl") -> str | None:
    """Why a rule would never apply, although a broker accepts it."""
    import ipaddress

    from odradek.security.acl import Operation, ResourceType
    from odradek.security.resource_types import RESOURCE_TYPES

    known = RESOURCE_TYPES[one.resource_type].operations
    if one.operation not in (Operation.ALL, *known):
        names = ", ".join(Operation(number).name for number in sorted(known))
        return f"{Operation(one.operation).name} does not exist for {ResourceType(one.resource_type).name}: use ALL, {names}"
    if one.host != "*":
        try:
            ipaddress.ip_address(one.host)
        except ValueError:
            return (
                f"the host {one.host} is not an IP address, so the rule would never apply: use such as 192.0.2.1 or '*'"
            )
    return None


def _of_operations(
    named: list[tuple[int, str]],
    operations: Sequence[str],
    prefix: bool,
    allowed: Sequence[str],
    denied: Sequence[str],
    hosts: Sequence[str],
) -> "list[Acl]":
    from odradek.security.acl import Acl, PatternType, Permission, ResourceType

    if prefix and any(kind == ResourceType.CLUSTER for kind, _ in named):
        raise click.UsageError("--prefix does not apply to --cluster: there is only one")
    pattern = PatternType.PREFIXED if prefix else PatternType.LITERAL
    return _checked(
        [
            Acl(kind, pattern, name, principal, host, _number(operation), permission)
            for kind, name in named
            for operation in operations
            for principals, permission in ((allowed, Permission.ALLOW), (denied, Permission.DENY))
            for principal in principals
            for host in hosts or ("*",)
        ]
    )


def _of_role(
    named: list[tuple[int, str]],
    producer: bool,
    consumer: bool,
    idempotent: bool,
    prefix: bool,
    allowed: Sequence[str],
    hosts: Sequence[str],
) -> "list[Acl]":
    from odradek.security.acl import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType

    wanted: dict[int, list[int]] = {}
    kinds = {kind for kind, _ in named}
    if ResourceType.TOPIC not in kinds or (consumer and ResourceType.GROUP not in kinds):
        raise click.UsageError("--producer needs --topic; --consumer needs --topic and --group")
    if producer:
        wanted.setdefault(ResourceType.TOPIC, []).extend((Operation.WRITE, Operation.DESCRIBE, Operation.CREATE))
        wanted[ResourceType.TRANSACTIONAL_ID] = [Operation.WRITE, Operation.DESCRIBE]
    if consumer:
        wanted.setdefault(ResourceType.TOPIC, []).extend((Operation.READ, Operation.DESCRIBE))
        wanted[ResourceType.GROUP] = [Operation.READ]
    pattern = PatternType.PREFIXED if prefix else PatternType.LITERAL
    places = [(kind, pattern, name, operation) for kind, name in named for operation in wanted.get(kind, ())]
    if producer and idempotent:
        places.append((ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME, Operation.IDEMPOTENT_WRITE))
    return _checked(
        [
            Acl(kind, how, name, principal, host, operation, Permission.ALLOW)
            for kind, how, name, operation in places
            for principal in allowed
            for host in hosts or ("*",)
        ]
    )


@acl.command("list")
@on_cluster
@resources
@click.option("--principal", metavar="PRINCIPAL", type=PRINCIPAL, help="List only the rules for this principal.")
@click.option(
    "--applying", is_flag=True, help="Also list the rules of prefixes and wildcards that apply to the named resources."
)
def list_acls(
    cluster: "Cluster", as_json: bool, named: list[tuple[int, str]], principal: str | None, applying: bool
) -> None:
    """List ACLs: all of them, or those of resources or of a principal."""
    from odradek.cli.security.acl_table import print_acls
    from odradek.clients import acls
    from odradek.security.acl import AclFilter, PatternType

    pattern = PatternType.MATCH if applying else PatternType.ANY
    filters = [AclFilter(kind, pattern, name, principal) for kind, name in named] or [AclFilter(principal=principal)]
    found = sorted({one for wanted in filters for one in acls.describe(cluster, wanted)})
    print_acls(found, as_json, "no ACLs")


@acl.command("add")
@on_cluster
@rules
@DRY_RUN_OPTION
def add(cluster: "Cluster", as_json: bool, acls: "list[Acl]", dry_run: bool) -> None:
    """Add ACLs. When the command ends, they are in force on the broker."""
    from odradek.cli.security.acl_table import print_acls
    from odradek.clients import acls as client

    if not dry_run:
        client.create(cluster, acls)
    print_acls(acls, as_json, "")


@acl.command("remove")
@on_cluster
@rules
@DRY_RUN_OPTION
@YES_OPTION
def remove(cluster: "Cluster", as_json: bool, acls: "list[Acl]", dry_run: bool, yes: bool) -> None:
    """Remove exactly the ACLs that `add` with the same options adds."""
    from odradek.cli.security.acl_table import print_acls
    from odradek.clients import acls as client
    from odradek.security.acl import AclFilter

    present = [one for one in acls if client.describe(cluster, AclFilter(*one))]
    if not present:
        fail("none of these ACLs exists; `odradek acl list` shows those that do")
    if not dry_run:
        confirm(f"{len(present)} ACLs will be removed.", yes)
        client.delete(cluster, present)
    print_acls(present, as_json, "")


@acl.command("explain")
@on_cluster
@resources
@click.option(
    "--principal",
    metavar="PRINCIPAL",
    type=PRINCIPAL,
    required=True,
    help="The principal of the client, such as User:alice.",
)
@click.option(
    "--operation",
    type=click.Choice(OPERATIONS[1:], case_sensitive=False),
    required=True,
    help="What the client wants to do.",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    help="The client's address. Default: any address; the command names the addresses for which the decision differs.",
)
def explain(
    cluster: "Cluster", as_json: bool, named: list[tuple[int, str]], principal: str, operation: str, host: str | None
) -> None:
    """Say whether a client may do something, which rule decides, and what would change the decision."""
    from odradek.cli.framework.output import BAD, GOOD, echo_json
    from odradek.cli.security.acl_remedies import commands as commands_for
    from odradek.cli.security.acl_table import as_row
    from odradek.clients import acls, configs
    from odradek.config.super_users import parse_super_users
    from odradek.security.acl import AclFilter, Operation, ResourceType
    from odradek.security.authorizer import Authorizer
    from odradek.security.explaining import ANY_ADDRESS, Question, explained, shown
    from odradek.security.hosts import normal_host
    from odradek.security.resource_types import RESOURCE_TYPES

    if len(named) != 1:
        raise click.UsageError(
            f"give one resource, by one of {', '.join(row.option for row in RESOURCE_TYPES.values())}"
        )
    ((kind, name),) = named
    entries = configs.describe(cluster, configs.Resource("broker", str(next(iter(cluster.view().brokers)))))
    super_users, default = entries["super.users"].value or "", entries[DEFAULT].value == "true"
    known = acls.describe(cluster, AclFilter(kind))
    authorizer = Authorizer(known, parse_super_users(super_users), default)
    address = ANY_ADDRESS if host is None else normal_host(host)
    question = Question(principal, address, Operation(_number(operation)), ResourceType(kind), name)
    result = explained(question, authorizer, known, DEFAULT)
    commands = commands_for(result.changes, connecting_options())
    if as_json:
        echo_json(
            {
                "allowed": result.rule.allowed,
                "rule": str(result.rule),
                "why": result.why,
                "change": result.change,
                "commands": commands,
                "elsewhere": _hosts(result.elsewhere),
                "still_elsewhere": _hosts(result.still_elsewhere),
                "acls": [as_row(one) for one in result.acls],
                "mistaken": [as_row(one) for one in result.mistaken],
            }
        )
        return
    echo(_verdict(result.rule), nl=False, style=GOOD if result.rule.allowed else BAD)
    echo(f": {result.why}")
    _echo_elsewhere("but", result.elsewhere)
    echo(f"to change that: {result.change}")
    for command in commands:
        echo(f"  {command}")
    _echo_elsewhere("after that still", result.still_elsewhere)
    others = [one for one in result.acls if one != result.rule.acl]
    for one in others:
        echo(f"also applies: {shown(one)}")
    for one in result.mistaken:
        echo(
            f"does not apply: {shown(one)}: in a prefix, * is a character, so this ACL names only resources whose names begin"
            " with *; for all resources, add it without --prefix"
        )


SHOWN = 5
"""How many addresses with another decision the text names."""


def _hosts(rules: "Mapping[str, Rule]") -> list[dict[str, Any]]:
    return [{"host": host, "allowed": rule.allowed, "rule": str(rule)} for host, rule in rules.items()]


def _echo_elsewhere(word: str, rules: "Mapping[str, Rule]") -> None:
    """Name the addresses that have another decision. :param word: begins the lines."""
    from odradek.security.explaining import shown

    for host, rule in list(rules.items())[:SHOWN]:
        why = "no ACL allows it" if rule.acl is None else f"an ACL decides: {shown(rule.acl)}"
        echo(f"{word} {_verdict(rule)} from {host}: {why}")
    if len(rules) > SHOWN:
        echo(f"and so from {len(rules) - SHOWN} more addresses; --json lists them")


def _verdict(rule: "Rule") -> str:
    return "allowed" if rule.allowed else "denied"


DEFAULT = "allow.everyone.if.no.acl.found"


@acl.command("unused")
@on_cluster
@click.option("--since", metavar="TIME", default="-30d", show_default=True, help="The beginning of the period.")
@click.option(
    "--spool", metavar="DIR", help="Read the spool in this directory (default: the directory that the broker reports)."
)
def unused(cluster: "Cluster", as_json: bool, since: str, spool: str | None) -> None:
    """List the ACLs that no client needed in a period, according to the broker's usage spool.

    The spool of one broker has the usage of that broker only. It has principals, APIs and topics; for groups, transactional ids
    and the cluster only the API is known. ACLs that deny are not judged. If the spool has usage for a part of the period only,
    a warning says since when; without usage the command fails.
    """
    from odradek.cli.security.acl_unused import show_unused

    options = click.get_current_context().params
    show_unused(cluster, options["servers"], options["timeout"], since, spool, as_json)
