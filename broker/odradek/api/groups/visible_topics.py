"""Decides which topics of their patterns the members of a consumer group (KIP-848) may see: those that they may DESCRIBE.

In Kafka, the heartbeat that resolves a pattern decides for all members of the group with this pattern, and again at intervals
of `group.consumer.regex.refresh.interval.ms`. Here each member has its own rights, as of its last heartbeat. Used in the
coordinator's loop.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import NamedTuple

from odradek.api.groups.group_call import GroupCall
from odradek.api.permits import Permits
from odradek.groups.consumer_member import HeartbeatRequest
from odradek.groups.visible_topics import NOTHING, PRESUMED, Visible
from odradek.protocol.schemas import consumer_group_heartbeat
from odradek.security.acl import Operation
from odradek.stepwise import Pace

DECISIONS = 100
"""The number of decisions after which the loop does its other work: about a millisecond."""


class Sight(NamedTuple):
    """What was decided for a heartbeat.

    :param own: for the member that sent it; None: there is no authorizer.
    :param others: for other members of its group, because new topics match: (before, after) by member id.
    """

    own: Visible | None
    others: Mapping[str, tuple[Visible, Visible]]


def sight_of(call: GroupCall, group_id: str, request: HeartbeatRequest) -> Generator[None, None, Sight]:
    """Decide for a heartbeat, whose patterns are resolved.

    Topics that are new for other members are decided for them too: otherwise each of their heartbeats would begin a rebalance.
    """
    if not call.permits.restricted:
        return Sight(None, {})
    patterns, version, pace = call.view.groups.shards.patterns, call.permits.version, Pace(DECISIONS)
    pattern, former, others = call.view.groups.members.sight(group_id, request)
    own = NOTHING
    if pattern and patterns.resolved(pattern):  # an invalid pattern is not resolved, and the group refuses it
        matched = patterns.matches(pattern)
        own = Visible(frozenset(), matched, pattern, call.principal, call.host, version)
        if former is not None and former[2:] == own[2:]:
            own = yield from _with_new(former, matched, call.permits, pace)
        else:
            own = own._replace(names=(yield from _permitted(matched, call.permits, pace)))
        own = own._replace(names=_shared(own, others.values()))
    decided: dict[Visible, Visible] = {}
    after: dict[str, tuple[Visible, Visible]] = {}
    for member_id, before in others.items():
        if before.version == PRESUMED or not patterns.resolved(before.pattern):
            continue
        matched = patterns.matches(before.pattern)
        if matched is before.matched:
            continue
        if before not in decided:
            permits = call.view.permits_of(before.principal, f"{before.host}:0", consumer_group_heartbeat.API_KEY)
            decided[before] = yield from _with_new(before, matched, permits, pace)
        after[member_id] = before, decided[before]
    return Sight(own, after)


def _with_new(former: Visible, matched: frozenset[str], permits: Permits, pace: Pace) -> Generator[None, None, Visible]:
    """As `former`, but for the topics that match now; only new ones are decided."""
    if matched is former.matched:
        return former
    names = (former.names & matched) | (yield from _permitted(matched - former.matched, permits, pace))
    return former._replace(names=names, matched=matched)


def _shared(visible: Visible, others: Iterable[Visible]) -> frozenset[str]:
    """The names, in an object that exists already if one is equal: a group may have many members and topics."""
    if len(visible.names) == len(visible.matched):
        return visible.matched
    return next((other.names for other in others if other.names == visible.names), visible.names)


def _permitted(names: Iterable[str], permits: Permits, pace: Pace) -> Generator[None, None, frozenset[str]]:
    permitted = []
    for name in names:
        if pace.over():
            yield
        if permits.topic(Operation.DESCRIBE, name, quiet=True):
            permitted.append(name)
    return frozenset(permitted)
