"""ACLs as a table and as JSON, as `odradek acl` prints them."""

from collections.abc import Sequence
from typing import Any

from odradek.cli.framework.output import echo_json, print_table
from odradek.security.acl import Acl, Operation, PatternType, Permission, ResourceType


def as_row(one: Acl) -> dict[str, Any]:
    """An ACL as a JSON object."""
    return {
        "resource": ResourceType(one.resource_type).name,
        "pattern": PatternType(one.pattern_type).name,
        "name": one.name,
        "principal": one.principal,
        "host": one.host,
        "operation": Operation(one.operation).name,
        "permission": Permission(one.permission).name,
    }


def print_acls(acls: Sequence[Acl], as_json: bool, empty: str) -> None:
    """Print ACLs as a table or as JSON."""
    rows = [as_row(one) for one in acls]
    if as_json:
        echo_json(rows)
        return
    titles = ["resource", "pattern", "name", "principal", "host", "operation", "permission"]
    print_table(titles, [[row[title] for title in titles] for row in rows], empty)
