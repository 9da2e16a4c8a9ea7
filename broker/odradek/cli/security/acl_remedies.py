"""The commands that change a decision about access, for ``odradek acl explain``. Pure functions."""

import shlex
from collections.abc import Sequence

from odradek.cli.framework.principals import problem_of
from odradek.printable import printable
from odradek.security.acl import WILDCARD, Operation, PatternType, Permission, ResourceType
from odradek.security.explaining import Change, shown
from odradek.security.resource_types import RESOURCE_TYPES


def commands(changes: Sequence[Change], connecting: Sequence[str]) -> list[str]:
    """The command lines for changes, in their order; none if a change has none.

    :param connecting: options that say how to connect.
    """
    for _, acl, _ in changes:
        if acl.resource_type == ResourceType.USER and acl.name != WILDCARD and problem_of(acl.name) is not None:
            return []  # the prefix of principals that another tool added is not always a principal
    return [_command(change, connecting) for change in changes]


def _command(change: Change, connecting: Sequence[str]) -> str:
    """The command line that adds or removes exactly this ACL; a comment says if that changes more than the decision."""
    acl = change.acl
    words = ["odradek", "acl", "add" if change.adds else "remove", *connecting]
    words += [RESOURCE_TYPES[acl.resource_type].option]
    words += [] if acl.resource_type == ResourceType.CLUSTER else [acl.name]
    words += ["--prefix"] if acl.pattern_type == PatternType.PREFIXED else []
    words += ["--operation", Operation(acl.operation).name.lower().replace("_", "-")]
    words += ["--allow" if acl.permission == Permission.ALLOW else "--deny", acl.principal]
    words += [] if acl.host == WILDCARD else ["--host", acl.host]
    comment = f"  # removes more: {printable(shown(acl))}" if change.broader else ""
    return shlex.join(words) + comment
