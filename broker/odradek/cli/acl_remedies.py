"""The commands that change a decision about access, for ``odradek acl explain``. Pure functions."""

import shlex

from odradek.security.acl import WILDCARD, Acl, Operation, PatternType, Permission, ResourceType
from odradek.security.explaining import Explanation, Question

OPTION_OF_TYPE = {2: "--topic", 3: "--group", 5: "--transactional-id", 6: "--delegation-token", 7: "--user"}
"""By resource type."""


def remedies(question: Question, result: Explanation) -> list[str]:
    """The commands that change a decision; none for a super user, whom only the configuration changes."""
    if result.rule.reason == "SuperUser":
        return []
    principal, _, operation, kind, name = question
    own = Acl(kind, PatternType.LITERAL, name, principal, WILDCARD, operation, Permission.ALLOW)
    denying = [one for one in result.acls if one.permission == Permission.DENY]
    allowing = [one for one in result.acls if one.permission == Permission.ALLOW]
    if denying:
        return [*(_command("remove", one) for one in denying), *([] if allowing else [_command("add", own)])]
    if not result.rule.allowed:
        return [_command("add", own)]
    if [one.principal for one in allowing] == [principal]:
        return [_command("remove", allowing[0])]
    return [_command("add", own._replace(permission=Permission.DENY))]


def _command(verb: str, one: Acl) -> str:
    """The command line that adds or removes exactly this ACL."""
    words = ["odradek", "acl", verb]
    words += (
        ["--cluster"] if one.resource_type == ResourceType.CLUSTER else [OPTION_OF_TYPE[one.resource_type], one.name]
    )
    words += ["--prefix"] if one.pattern_type == PatternType.PREFIXED else []
    words += ["--operation", Operation(one.operation).name.lower().replace("_", "-")]
    words += ["--allow" if one.permission == Permission.ALLOW else "--deny", one.principal]
    words += [] if one.host == WILDCARD else ["--host", one.host]
    return shlex.join(words)
