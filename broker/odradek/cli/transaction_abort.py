"""``odradek transaction abort``: asks for confirmation, then ends a transaction. Runs in the process of the command."""

from typing import NamedTuple, NoReturn

import click

from odradek.cli.failure import fail
from odradek.cli.options import confirm
from odradek.cli.output import count, echo_json, span
from odradek.clients import transactions
from odradek.clients.cluster import Cluster
from odradek.clients.transactions import Place, TransactionDescription
from odradek.clock import now_ms

PREPARED = {"PrepareCommit": "committed", "PrepareAbort": "aborted", "PrepareEpochFence": "aborted"}


class Marker(NamedTuple):
    """An abort marker to write. :param coordinator_epoch: -1 if the producer has no marker in the partition."""

    place: Place
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


def abort_id(cluster: Cluster, as_json: bool, transactional_id: str, yes: bool) -> None:
    """Abort the open transaction of an id, and fence its producer. Raises ClientError."""
    described = transactions.describe(cluster, transactional_id)
    if described.state != "Ongoing":
        _fail_without_transaction(described)
    age = span(max(0, now_ms() - described.started_ms))
    confirm(
        f"This aborts the transaction of '{transactional_id}', open for {age} in"
        f" {count(len(described.partitions), 'partition')}, and fences its producer, which then fails with an error.",
        yes,
    )
    after = transactions.terminate(cluster, described)
    if as_json:
        document = {"transactional_id": transactional_id, "aborted": True, "state": after.state}
        echo_json({**document, "producer_id": after.producer_id, "producer_epoch": after.producer_epoch})
    else:
        click.echo(
            f"aborted the transaction of {transactional_id} in {count(len(described.partitions), 'partition')};"
            f" its producer is fenced (epoch {described.producer_epoch})"
        )


def _fail_without_transaction(described: TransactionDescription) -> NoReturn:
    name, state = described.transactional_id, described.state
    if state in PREPARED:
        fail(
            f"the transaction of '{name}' is already being {PREPARED[state]} ({state}); it ends when the leaders of all its"
            f" partitions have written the markers (`odradek transaction describe {name}` lists the partitions without one)"
        )
    fail(f"transactional id '{name}' has no open transaction (its state is {state}); nothing was changed")


def found_at(cluster: Cluster, place: Place, start_offset: int) -> Marker:
    """The marker for the transaction that begins at this offset of a partition. Ends the command if there is none."""
    partition = cluster.partition(*place)
    name = f"{partition.topic}-{partition.number}"
    found, unchecked = transactions.open_transactions(cluster, [partition])
    if unchecked:
        fail(f"cannot read the producers of {name}: {unchecked[place]}")
    transaction = next((transaction for transaction in found if transaction.start_offset == start_offset), None)
    if transaction is None:
        offsets = ", ".join(str(transaction.start_offset) for transaction in found)
        fail(
            f"no open transaction of {name} begins at offset {start_offset}; "
            + (f"its open transactions begin at {offsets}" if found else "the partition has no open transaction")
        )
    return Marker(place, transaction.producer_id, transaction.producer_epoch, transaction.coordinator_epoch)


def abort_in_partition(cluster: Cluster, as_json: bool, marker: Marker, force: bool, yes: bool) -> None:
    """Write an abort marker into a partition. Raises ClientError."""
    topic, number = marker.place
    name = f"{topic}-{number}"
    known = transactions.known_transaction(cluster, marker.place, marker.producer_id)
    if known is not None and not force:
        fail(
            f"the transaction in {name} is not hanging: it belongs to transactional id '{known.transactional_id}'"
            f" ({known.state}); use `odradek transaction abort {known.transactional_id}` to abort it in all its partitions, or"
            " add --force to abort it only in this one"
        )
    confirm(
        f"This aborts the open transaction of producer {marker.producer_id} (epoch {marker.producer_epoch}) in {name}:"
        " consumers with isolation level read_committed will skip its records.",
        yes,
    )
    transactions.abort_in_partition(
        cluster, marker.place, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch
    )
    if as_json:
        document = {"topic": topic, "partition": number, "aborted": True, "producer_id": marker.producer_id}
        echo_json({**document, "producer_epoch": marker.producer_epoch})
    else:
        click.echo(f"aborted the transaction of producer {marker.producer_id} in {name}")
