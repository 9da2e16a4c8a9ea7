"""Checks of `odradek doctor` on transactions: hanging transactions, and those that their coordinator has not ended in time."""

from collections.abc import Iterator, Sequence

from odradek.cli.finding import Finding, abbreviate
from odradek.cli.output import count, span
from odradek.cli.transaction_search import abort_command
from odradek.clients import transactions
from odradek.clients.cluster import Cluster, View
from odradek.clients.errors import RefusedError
from odradek.clients.transactions import Search, TransactionDescription
from odradek.clock import now_ms

BLOCKED = (
    "the last stable offset of a partition cannot pass the first record of an open transaction: consumers with isolation level "
    "read_committed receive no records from it on, and the log is not compacted from it on"
)


def examine_transactions(cluster: Cluster, view: View) -> list[Finding]:
    """All findings. Raises UnsupportedError if the brokers cannot describe transactions, ClientError."""
    try:
        limit_ms = transactions.late_after_ms(cluster)
    except RefusedError:
        limit_ms = transactions.DEFAULT_MAX_TIMEOUT_MS + transactions.GRACE_MS
    now = now_ms()
    found = transactions.find_late(cluster, transactions.partitions_of(view), limit_ms, now)
    late = transactions.open_longer_than(cluster, limit_ms, now)
    return [*judge_hanging(found, now), *judge_late(late, now)]


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
        f"`{abort_command(first)}`"
        + ("" if len(found.hanging) == 1 else "; `odradek transaction hanging` prints the command for each of them"),
    )


def judge_late(late: Sequence[TransactionDescription], now: int) -> Iterator[Finding]:
    """The findings on transactions that coordinators know and have not ended in time. :param now: ms since 1970."""
    ongoing = [description for description in late if description.state == "Ongoing"]
    if ongoing:
        first = ongoing[0]
        yield Finding(
            "warning",
            _subject(ongoing),
            f"{count(len(ongoing), 'transaction')} open for longer than transaction.max.timeout.ms plus 5 minutes; the oldest "
            f"began {_longest(ongoing, now)} ago",
            f"their coordinator should have aborted them, unless they use two-phase commit. {BLOCKED}",
            f"`odradek transaction abort {first.transactional_id}`; the log of broker {first.coordinator}, its coordinator, "
            "says why it was not aborted",
        )
    prepared = [description for description in late if description.state != "Ongoing"]
    if prepared:
        first = prepared[0]
        waiting = abbreviate(f"{topic}-{number}" for topic, number in first.partitions)
        yield Finding(
            "error",
            _subject(prepared),
            f"{count(len(prepared), 'transaction')} committed or aborted, but without markers in some partitions; the oldest "
            f"began {_longest(prepared, now)} ago",
            f"the coordinator cannot write the markers, and the producers cannot begin another transaction. {BLOCKED}",
            f"make sure that the partitions have leaders: '{first.transactional_id}' waits for {waiting or 'none'}; the log of "
            f"broker {first.coordinator}, its coordinator, says why it cannot write",
        )


def _subject(late: Sequence[TransactionDescription]) -> str:
    noun = "transactional id" if len(late) == 1 else "transactional ids"
    return f"{noun} {abbreviate(description.transactional_id for description in late)}"


def _longest(late: Sequence[TransactionDescription], now: int) -> str:
    return span(max(0, now - min(description.started_ms for description in late)))
