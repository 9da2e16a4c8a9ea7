"""Checks of `odradek doctor` on transactions: hanging transactions, and those that their coordinator has not ended in time."""

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from odradek.cli.framework.output import NAMES_SHOWN, abbreviate, count, span
from odradek.cli.health.finding import Finding
from odradek.clients import marker_waits, transactions
from odradek.clients.cluster import Cluster, View
from odradek.clients.errors import RefusedError
from odradek.clients.marker_waits import MarkerWait
from odradek.clients.transactions import Search, TransactionDescription
from odradek.clock import now_ms

BLOCKED = (
    "the last stable offset of a partition cannot pass the first record of an open transaction: consumers with isolation level "
    "read_committed receive no records from it on, and the log is not compacted from it on"
)


COMPLETION_LIMIT_MS = 60_000
"""A decided transaction that began longer ago is a finding. The alert OdradekTransactionsNotCompleting has the same limit, but
for the time since the decision, which no request returns."""
SECOND_LOOK_S = 5.0
"""The time in seconds between two looks at decided transactions: one that was open for long may have been decided just now."""


def examine_transactions(cluster: Cluster, view: View, sleep: Callable[[float], object] = time.sleep) -> list[Finding]:
    """All findings. Raises UnsupportedError if the brokers cannot describe transactions, ClientError.

    :param sleep: waits for `SECOND_LOOK_S` between two looks at decided transactions. No request returns the time of a
        decision: a transaction is reported only if it is decided at both looks.
    """
    try:
        limit_ms = transactions.late_after_ms(cluster)
    except RefusedError:
        limit_ms = transactions.DEFAULT_MAX_TIMEOUT_MS + transactions.GRACE_MS
    now = now_ms()
    found = transactions.find_late(cluster, transactions.partitions_of(view), limit_ms, now)
    late = transactions.open_longer_than(cluster, min(limit_ms, COMPLETION_LIMIT_MS), now)
    ongoing = [each for each in late if each.outcome is None and now - each.started_ms > limit_ms]
    decided = [each for each in late if each.outcome is not None]
    waits: Mapping[str, Sequence[MarkerWait]] = {}
    if decided:
        sleep(SECOND_LOOK_S)
        decided = lasting(decided, transactions.open_longer_than(cluster, COMPLETION_LIMIT_MS, now_ms()))
        waits = marker_waits.waits_of(cluster, view, decided)
    return [*judge_hanging(found, now), *judge_late(ongoing, now), *judge_decided(decided, waits, now)]


def lasting(
    first: Sequence[TransactionDescription], second: Sequence[TransactionDescription]
) -> list[TransactionDescription]:
    """The decided transactions of the first look that the second look finds, too, as the second look describes them."""
    names = {_transaction(description) for description in first}
    return [description for description in second if description.outcome and _transaction(description) in names]


def _transaction(description: TransactionDescription) -> tuple[str, int, str]:
    return description.transactional_id, description.started_ms, description.state


def judge_hanging(found: Search, now: int) -> Iterator[Finding]:
    """The finding that transactions are hanging. :param now: ms since 1970."""
    if not found.hanging:
        return
    places = dict.fromkeys(hanging.open.place for hanging in found.hanging)
    oldest = min(hanging.open.written_ms for hanging in found.hanging)
    blocked = sum(found.blocked[place] for place in places)
    first = found.hanging[0].open
    yield Finding(
        "error",
        abbreviate(f"{topic}-{number}" for topic, number in places),
        f"{count(len(found.hanging), 'hanging transaction')}: no coordinator will end "
        f"{'it' if len(found.hanging) == 1 else 'them'}; the last write to the oldest was {span(now - oldest)} ago",
        f"{BLOCKED}; {count(blocked, 'offset')} {'is' if blocked == 1 else 'are'} blocked now",
        f"look at the records first if they may be needed (docs/operate/transactions.md), then `{first.abort_command}`"
        + ("" if len(found.hanging) == 1 else "; `odradek transaction hanging` prints the command for each of them"),
    )


def judge_late(ongoing: Sequence[TransactionDescription], now: int) -> Iterator[Finding]:
    """The finding that coordinators have not aborted transactions in time. :param now: ms since 1970."""
    if not ongoing:
        return
    first = ongoing[0]
    yield Finding(
        "warning",
        _subject(ongoing),
        f"{count(len(ongoing), 'transaction')} open for longer than transaction.max.timeout.ms plus 5 minutes; the oldest "
        f"began {_longest(ongoing, now)} ago",
        f"their coordinator should have aborted them, unless they use two-phase commit. {BLOCKED}",
        f"`odradek transaction abort {shlex.quote(first.transactional_id)}`; the log of broker {first.coordinator}, its"
        " coordinator, says why it was not aborted",
    )


def judge_decided(
    decided: Sequence[TransactionDescription], waits: Mapping[str, Sequence[MarkerWait]], now: int
) -> Iterator[Finding]:
    """The finding that transactions are not complete although their outcome is decided.

    :param waits: the partitions that each of them waits for, by transactional id. :param now: ms since 1970.
    """
    if not decided:
        return
    lines = [_waiting(description, waits[description.transactional_id]) for description in decided]
    remedies = dict.fromkeys(wait.remedy for each in decided for wait in waits[each.transactional_id])
    yield Finding(
        "error",
        _subject(decided),
        f"{count(len(decided), 'transaction')} whose commit or abort is decided "
        f"{'is' if len(decided) == 1 else 'are'} not complete; the oldest began {_longest(decided, now)} ago. "
        + _shortened(lines),
        f"the producers cannot begin another transaction (CONCURRENT_TRANSACTIONS). {BLOCKED}",
        _shortened(list(remedies))
        or f"look at the log of broker {decided[0].coordinator}, the coordinator (logger odradek.transactions)",
    )


def _waiting(description: TransactionDescription, waits: Sequence[MarkerWait]) -> str:
    if not waits:
        return f"'{description.transactional_id}' has all markers, but its last record in {marker_waits.LOG} is missing"
    return f"'{description.transactional_id}' waits for {_shortened([str(wait) for wait in waits])}"


def _shortened(texts: Sequence[str]) -> str:
    more = len(texts) - NAMES_SHOWN
    return "; ".join(texts[:NAMES_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _subject(late: Sequence[TransactionDescription]) -> str:
    noun = "transactional id" if len(late) == 1 else "transactional ids"
    return f"{noun} {abbreviate(description.transactional_id for description in late)}"


def _longest(late: Sequence[TransactionDescription], now: int) -> str:
    return span(max(0, now - min(description.started_ms for description in late)))
