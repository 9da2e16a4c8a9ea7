"""``odradek transaction abort``: asks for confirmation, then ends a transaction; or shows the markers that this would write
(``--dry-run``). Runs in the process of the command."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail
from odradek.cli.framework.options import confirm
from odradek.cli.framework.output import abbreviate, count, echo_json, print_table, span
from odradek.clients import marker_waits, transactions
from odradek.clients.cluster import Cluster
from odradek.clients.errors import UnreachableError, UnsupportedError
from odradek.clients.transactions import TransactionDescription
from odradek.clock import now_ms
from odradek.topic_partition import TopicPartition

MAX_EPOCH = 32767
"""The largest producer epoch."""


class Marker(NamedTuple):
    """An abort marker to write.

    :param coordinator_epoch: -1 if the producer has no marker in the partition.
    :param start_offset: the first offset of the transaction that it ends; -1: the producer has no open transaction in the
        partition; None: the leader does not serve DescribeProducers, so it is not known.
    """

    place: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int | None


class PlannedMarker(NamedTuple):
    """An abort marker as the partition would receive it. :param coordinator_epoch: None if it is not known."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None


def abort_id(cluster: Cluster, as_json: bool, transactional_id: str, yes: bool, dry_run: bool = False) -> None:
    """Abort the open transaction of an id, and fence its producer. Raises ClientError.

    :param dry_run: only print the markers that the coordinator would write.
    """
    described = transactions.describe(cluster, transactional_id)
    if described.state != "Ongoing":
        _fail_without_transaction(cluster, described)
    age = span(max(0, now_ms() - described.started_ms))
    question = (
        f"This aborts the transaction of '{transactional_id}', open for {age} in"
        f" {count(len(described.partitions), 'partition')}, and fences its producer, which then fails with an error."
    )
    if dry_run:
        _show_plan(as_json, {"transactional_id": transactional_id}, question, _markers_of(cluster, described))
        return
    confirm(question, yes)
    shown = f"`odradek transaction describe {shlex.quote(transactional_id)}` shows its state"
    with _unanswered(cluster, f"The coordinator may abort the transaction nevertheless: {shown}"):
        after = transactions.terminate(cluster, described)
    if as_json:
        document = {"transactional_id": transactional_id, "aborted": True, "state": after.state}
        echo_json({**document, "producer_id": after.producer_id, "producer_epoch": after.producer_epoch})
    else:
        echo(
            f"aborted the transaction of {transactional_id} in {count(len(described.partitions), 'partition')};"
            f" its producer is fenced (epoch {described.producer_epoch})"
        )


@contextmanager
def _unanswered(cluster: Cluster, advice: str) -> Iterator[None]:
    """Add the advice to the error if a change was requested and got no response, so that its result is not known."""
    try:
        yield
    except UnreachableError as error:
        if not cluster.unanswered_changes():
            raise
        raise UnreachableError(f"{error}. {advice}") from None


def _markers_of(cluster: Cluster, described: TransactionDescription) -> list[PlannedMarker]:
    """The markers with which the coordinator of an id aborts its open transaction. In both transaction versions, it raises the
    producer epoch and writes the markers with the new epoch. Raises ClientError."""
    producer_epoch = min(described.producer_epoch + 1, MAX_EPOCH)
    view = cluster.metadata([marker_waits.LOG])
    coordinator_epoch = marker_waits.coordinator_epoch(view, described.transactional_id)
    return [
        PlannedMarker(topic, number, described.producer_id, producer_epoch, coordinator_epoch)
        for topic, number in described.partitions
    ]


def _show_plan(as_json: bool, subject: Mapping[str, Any], question: str, markers: Sequence[PlannedMarker]) -> None:
    """Print the result of a dry run. :param subject: the first fields of the JSON. :param question: what an abort would do."""
    if as_json:
        echo_json({**subject, "aborted": False, "dry_run": True, "markers": [marker._asdict() for marker in markers]})
        return
    echo(question)
    echo("This is a dry run: nothing was changed. Without --dry-run, these abort markers are written:")
    titles = ["topic", "partition", "producer id", "producer epoch", "coordinator epoch"]
    print_table(titles, markers, "none, because the transaction has no partitions")


def _fail_without_transaction(cluster: Cluster, described: TransactionDescription) -> NoReturn:
    name = described.transactional_id
    if described.outcome is not None:
        fail(
            f"the {described.outcome} of the transaction of '{name}' is decided already; {waits_text(cluster, described)}"
        )
    fail(f"transactional id '{name}' has no open transaction (its state is {described.state}); nothing was changed")


def waits_text(cluster: Cluster, described: TransactionDescription) -> str:
    """The partitions without a marker of a decided transaction, with the reason and the remedy. Raises ClientError."""
    waits = marker_waits.waits_of(cluster, cluster.metadata(), [described])[described.transactional_id]
    if not waits:
        return f"broker {described.coordinator}, its coordinator, has all markers and writes its last record"
    first = waits[0]
    more = "" if len(waits) == 1 else f" (and {count(len(waits) - 1, 'more partition')})"
    return f"it waits for {first}{more}. What to do: {first.remedy}"


def found_at(cluster: Cluster, place: TopicPartition, start_offset: int) -> Marker:
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
    return Marker(
        place, transaction.producer_id, transaction.producer_epoch, transaction.coordinator_epoch, start_offset
    )


def named(
    cluster: Cluster, place: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int, force: bool
) -> Marker:
    """The marker for a producer that the user names. Raises ClientError.

    Ends the command if the partition knows the producer with another epoch, or another coordinator epoch: a marker with higher
    epochs would fence the producer, or its coordinator. Also ends the command if the producer has no open transaction in the
    partition, unless `force` is set.
    """
    partition = cluster.partition(*place)
    name = f"{partition.topic}-{partition.number}"
    try:
        found, unchecked = transactions.producers(cluster, [partition])
    except UnsupportedError:  # before Kafka 2.8
        return Marker(place, producer_id, producer_epoch, coordinator_epoch, None)
    if unchecked:
        fail(f"cannot read the producers of {name}: {unchecked[place]}")
    producer = next((producer for producer in found if producer.producer_id == producer_id), None)
    if producer is not None and producer.producer_epoch != producer_epoch:
        fail(f"producer {producer_id} has epoch {producer.producer_epoch} in {name}, not {producer_epoch}")
    if producer is not None and max(producer.coordinator_epoch, 0) != max(coordinator_epoch, 0):
        fail(
            f"the coordinator epoch of producer {producer_id} in {name} is {producer.coordinator_epoch},"
            f" not {coordinator_epoch}"
        )
    start_offset = -1 if producer is None else producer.start_offset
    if start_offset < 0 and not force:
        open_ones = [
            f"producer {other.producer_id} (epoch {other.producer_epoch}, coordinator epoch {other.coordinator_epoch})"
            f" from offset {other.start_offset}"
            for other in found
            if other.start_offset >= 0
        ]
        fail(
            f"producer {producer_id} has no open transaction in {name}; "
            + (f"open transactions: {abbreviate(open_ones)}" if open_ones else "the partition has no open transaction")
        )
    return Marker(place, producer_id, producer_epoch, coordinator_epoch, start_offset)


def abort_in_partition(
    cluster: Cluster, as_json: bool, marker: Marker, force: bool, yes: bool, dry_run: bool = False
) -> None:
    """Write an abort marker into a partition. Raises ClientError. :param dry_run: only print the marker."""
    topic, number = marker.place
    name = f"{topic}-{number}"
    known = transactions.known_transaction(cluster, marker.place, marker.producer_id)
    if known is not None and not force:
        _fail_known(cluster, name, known)
    question = _question(name, marker, known)
    if dry_run:
        coordinator_epoch = transactions.marker_epoch(marker.coordinator_epoch)
        planned = PlannedMarker(topic, number, marker.producer_id, marker.producer_epoch, coordinator_epoch)
        _show_plan(as_json, {"topic": topic, "partition": number}, question, [planned])
        return
    confirm(question, yes)
    check = "repeat the command, which fails if the transaction has ended"
    with _unanswered(cluster, f"The leader may write the marker into {name} nevertheless: {check}"):
        transactions.abort_in_partition(
            cluster, marker.place, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch
        )
    if as_json:
        ended = marker.start_offset is None or marker.start_offset >= 0
        document = {"topic": topic, "partition": number, "aborted": ended, "producer_id": marker.producer_id}
        echo_json({**document, "producer_epoch": marker.producer_epoch})
    elif marker.start_offset is not None and marker.start_offset >= 0:
        echo(f"aborted the transaction of producer {marker.producer_id} in {name}")
    else:
        echo(f"wrote an abort marker of producer {marker.producer_id} (epoch {marker.producer_epoch}) into {name}")


def _fail_known(cluster: Cluster, name: str, known: TransactionDescription) -> NoReturn:
    transactional_id = known.transactional_id
    if known.outcome is None:
        fail(
            f"the transaction in {name} is not hanging: it belongs to transactional id '{transactional_id}'"
            f" ({known.state}); use `odradek transaction abort {shlex.quote(transactional_id)}` to abort it in all its"
            " partitions, or add --force to abort it only in this one"
        )
    fail(
        f"the transaction in {name} is not hanging: it belongs to transactional id '{transactional_id}' ({known.state}), whose"
        f" {known.outcome} is decided; {waits_text(cluster, known)}"
    )


def _question(name: str, marker: Marker, known: TransactionDescription | None) -> str:
    producer = f"producer {marker.producer_id} (epoch {marker.producer_epoch})"
    if known is not None and known.outcome == "commit":
        return (
            f"The commit of the transaction of '{known.transactional_id}' ({producer}) is decided, and may have been"
            f" acknowledged. This aborts the transaction in {name} nevertheless, and loses its records there: consumers with"
            " isolation level read_committed will skip them, but receive its records in other partitions."
        )
    if marker.start_offset is not None and marker.start_offset < 0:
        return (
            f"This writes an abort marker of {producer} into {name}, although the producer has no open transaction there:"
            " the partition will refuse producers with this id and an older epoch, and markers of older coordinators."
        )
    return (
        f"This aborts the open transaction of {producer} in {name}: consumers with isolation level read_committed will skip its"
        " records."
    )
