"""The topics that a member of a consumer group (KIP-848) may see among those that its pattern matches. With an authorizer, they
are those that it may DESCRIBE.

Used in the coordinator's loop. The API decides (`odradek.api.groups.visible_topics`), and the group only keeps the result,
because the rights are those of a request. Nothing of it is stored, so a group that was loaded from its log presumes what its
target says (`presumed`) until the members send heartbeats.
"""

from __future__ import annotations

from typing import NamedTuple

PRESUMED = -1
"""The version of the access control lists of a `Visible` that nobody decided."""


class Visible(NamedTuple):
    """What a member may see.

    :param names: the topics that it may see. Topics that match the pattern and are not among them are hidden, also those
        created since.
    :param matched: the topics that the pattern matched when it was decided.
    :param principal, host, version: whose rights they are, by which version of the access control lists.
    """

    names: frozenset[str]
    matched: frozenset[str] = frozenset()
    pattern: str = ""
    principal: str = ""
    host: str = ""
    version: int = PRESUMED


NOTHING = Visible(frozenset())
"""Of a member without a pattern, if there is an authorizer."""


def presumed(names: frozenset[str]) -> Visible:
    """For a member that was loaded from the log: the topics of its group's target."""
    return Visible(names)
