"""``odradek transaction hanging``: finds hanging transactions and prints the commands that end them. Runs in the process of the
command."""

import shlex
import sys
from collections import defaultdict
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail, warn
from odradek.cli.framework.output import abbreviate, count, echo_json, print_table, span, when
from odradek.clients import marker_waits, transactions
from odradek.clients.cluster import Cluster, Partition, View
from odradek.clients.errors import ClientError, RefusedError, UnsupportedError, no_topic
from odradek.clients.transactions import HangingTransaction, Search
from odradek.clock import now_ms

LIST_YOUNGER = "--max-transaction-timeout 0"


def search(
    cluster: Cluster, as_json: bool, patterns: Sequence[str], broker_ids: Sequence[int], limit_ms: int | None
) -> None:
    """Search, print the result, and exit with code 1 if a transaction hangs or a partition was not checked.

    :param patterns: names or patterns of topics; none: all topics. :param limit_ms: None: `default_limit_ms`.
    Raises ClientError.
    """
    view = cluster.metadata()
    for broker_id in broker_ids:
        if broker_id not in view.brokers:
            fail(f"the cluster has no broker {broker_id}; its brokers are {', '.join(map(str, sorted(view.brokers)))}")
    names = _matching(view, patterns) if patterns else None
    limit = default_limit_ms(cluster) if limit_ms is None else limit_ms
    now = now_ms()
    partitions = transactions.partitions_of(view, names, broker_ids)
    found = transactions.find_late(cluster, partitions, limit, now)
    younger = _younger(cluster, partitions, found)
    if as_json:
        echo_json(_as_dict(found, younger, limit))
    else:
        _show(cluster, found, limit, now)
        _note_younger(younger)
    sys.exit(1 if found.hanging or found.unchecked else 0)


def default_limit_ms(cluster: Cluster) -> int:
    """The brokers' transaction.max.timeout.ms plus five minutes. If it cannot be read, uses Kafka's default."""
    try:
        return transactions.late_after_ms(cluster)
    except (RefusedError, UnsupportedError) as error:
        longest = transactions.DEFAULT_MAX_TIMEOUT_MS
        warn(f"cannot read {transactions.MAX_TIMEOUT_KEY} ({error}); using Kafka's default of {span(longest)}")
        return longest + transactions.GRACE_MS


def _matching(view: View, patterns: Sequence[str]) -> set[str]:
    names: set[str] = set()
    for pattern in patterns:
        matching = {name for name in view.topics if fnmatchcase(name, pattern)}
        if not matching:
            raise no_topic(pattern, view.topics)
        names |= matching
    return names


def _show(cluster: Cluster, found: Search, limit_ms: int, now: int) -> None:
    _warn_of_unchecked(found)
    titles = [
        "topic",
        "partition",
        "producer id",
        "epoch",
        "start offset",
        "last write",
        "age",
        "blocked offsets",
        "reason",
    ]
    rows = [
        [
            hanging.open.topic,
            hanging.open.partition,
            hanging.open.producer_id,
            hanging.open.producer_epoch,
            hanging.open.start_offset,
            when(hanging.open.written_ms),
            span(max(0, now - hanging.open.written_ms)),
            found.blocked[hanging.open.place],
            hanging.reason,
        ]
        for hanging in found.hanging
    ]
    where = " in the partitions that were checked" if found.unchecked else ""
    print_table(titles, rows, f"no hanging transactions{where} (last write more than {span(limit_ms)} ago)")
    _warn_of_known(cluster, found, limit_ms)
    if found.hanging:
        echo("\nTo abort them:")
        for hanging in found.hanging:
            echo(f"  {hanging.open.abort_command}")


def _younger(cluster: Cluster, partitions: Sequence[Partition], found: Search) -> list[HangingTransaction]:
    """The open transactions without an owner that are not late. If the coordinators do not describe them, warns."""
    try:
        return transactions.without_owner(cluster, partitions, found.younger)
    except ClientError as error:
        warn(f"cannot look for the owners of {count(len(found.younger), 'younger open transaction')}: {error}")
        return []


def _note_younger(younger: Sequence[HangingTransaction]) -> None:
    """Say on stderr how many younger transactions have no owner, and which option lists them."""
    if not younger:
        return
    have, they, them = ("has", "It", "it") if len(younger) == 1 else ("have", "They", "them")
    echo(
        f"{count(len(younger), 'younger open transaction')} {have} no owner: no transactional id has {them} in an open"
        f" transaction. {they} may hang; {LIST_YOUNGER} lists {them}",
        err=True,
    )


def _warn_of_unchecked(found: Search) -> None:
    """Warn once for each reason: a broker that does not respond may lead many partitions."""
    of_reason: dict[str, list[str]] = defaultdict(list)
    for (topic, number), reason in found.unchecked.items():
        of_reason[reason].append(f"{topic}-{number}")
    for reason, names in of_reason.items():
        subject = f"{names[0]} was" if len(names) == 1 else f"{count(len(names), 'partition')} were"
        list_of_names = "" if len(names) == 1 else f" ({abbreviate(names)})"
        warn(f"{subject} not checked: {reason}{list_of_names}")


def _warn_of_known(cluster: Cluster, found: Search, limit_ms: int) -> None:
    """Warn of each late transaction that has a coordinator. Raises ClientError."""
    known = {description.transactional_id: description for _, description in found.known}
    decided = [description for description in known.values() if description.outcome is not None]
    waits = marker_waits.waits_of(cluster, cluster.view(), decided) if decided else {}
    for name, description in known.items():
        places = sum(of_id.transactional_id == name for _, of_id in found.known)
        late = (
            f"the transaction of transactional id '{name}' ({description.state}) is open in {count(places, 'partition')}, its"
            f" producer last wrote more than {span(limit_ms)} ago"
        )
        if description.outcome is None:
            warn(
                f"{late}; but it is not hanging: broker {description.coordinator} coordinates it, and"
                f" `odradek transaction abort {shlex.quote(name)}` aborts it"
            )
            continue
        warn(f"{late}; but it is not hanging: its {description.outcome} is decided")
        for wait in waits[name]:
            warn(f"'{name}' waits for {wait}. What to do: {wait.remedy}")


def _as_dict(found: Search, younger: Sequence[HangingTransaction], limit_ms: int) -> dict[str, Any]:
    return {
        "limit_ms": limit_ms,
        "hanging": [_hanging(hanging, found.blocked[hanging.open.place]) for hanging in found.hanging],
        "known": [
            {**transaction._asdict(), "transactional_id": description.transactional_id, "state": description.state}
            for transaction, description in found.known
        ],
        "younger": [
            {**orphan.open._asdict(), "transactional_id": orphan.transactional_id, "reason": orphan.reason}
            for orphan in younger
        ],
        "unchecked": [
            {"topic": topic, "partition": number, "reason": reason}
            for (topic, number), reason in found.unchecked.items()
        ],
    }


def _hanging(hanging: HangingTransaction, blocked: int) -> dict[str, Any]:
    document = {**hanging.open._asdict(), "transactional_id": hanging.transactional_id, "reason": hanging.reason}
    return {**document, "blocked_offsets": blocked, "command": hanging.open.abort_command}
