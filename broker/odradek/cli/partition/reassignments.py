"""The work of ``odradek partition moves``: lists and cancels reassignments, waits for them, and removes their throttles.

Runs in the process of the command.
"""

from collections.abc import Collection, Sequence
from typing import Any

from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import warn
from odradek.cli.framework.interrupt import interrupt_note
from odradek.cli.framework.options import confirm
from odradek.cli.framework.output import cell, count, echo_json, print_table, size
from odradek.cli.partition.move_wait import wait_for_end
from odradek.clients import moves, replication_throttles
from odradek.clients.cluster import Cluster
from odradek.clients.move_plan import ids_text
from odradek.clients.moves import Copied, Ongoing
from odradek.clients.replication_throttles import Removed
from odradek.topic_partition import TopicPartition

SHOWN = 50
FINISH = "`odradek partition moves --finish`"


def check(cluster: Cluster, topics: Collection[str]) -> None:
    """Raise RefusedError for a topic that does not exist: it has no reassignments, but is not the one that was meant."""
    if topics:
        cluster.topics(list(topics))


def selected(cluster: Cluster, topics: Collection[str]) -> list[Ongoing]:
    """The reassignments in progress, of all topics or of these. Raises ClientError."""
    return [each for each in moves.ongoing(cluster) if not topics or each.topic in topics]


def show(cluster: Cluster, as_json: bool, topics: Collection[str]) -> None:
    """List the reassignments in progress, with the new replicas and their progress. Raises ClientError."""
    found = selected(cluster, topics)
    wanted: dict[int, set[TopicPartition]] = {}
    leaders = _leaders(cluster) if found else {}
    for each in found:
        for broker_id in {*each.adding, leaders.get(each.place, -1)} - {-1}:
            wanted.setdefault(broker_id, set()).add(each.place)
    known, failures = moves.copies(cluster, wanted) if wanted else ({}, {})
    rows = [
        (
            each,
            broker_id,
            None if broker_id is None else known.get((each.place, broker_id)),
            known.get((each.place, leaders.get(each.place, -1))),
        )
        for each in found
        for broker_id in each.adding or (None,)
    ]
    if as_json:
        echo_json([_as_dict(*row) for row in rows])
        return
    table = [
        [
            each.topic,
            each.number,
            cell(each.replicas),
            cell(each.target),
            broker_id,
            None if copied is None else size(copied.bytes_),
            None if of_leader is None else size(of_leader.bytes_),
            _lag(copied, of_leader),
        ]
        for each, broker_id, copied, of_leader in rows
    ]
    titles = ["topic", "partition", "replicas", "new replicas", "copied to", "bytes", "of", "offsets behind"]
    print_table(titles, table, "no reassignments are in progress")
    for broker_id, reason in failures.items():
        warn(f"broker {broker_id} does not report the progress of its replicas: {reason}")


def _leaders(cluster: Cluster) -> dict[TopicPartition, int]:
    return {
        (partition.topic, partition.number): partition.leader
        for topic in cluster.metadata().topics.values()
        for partition in topic.partitions
    }


def _lag(copied: Copied | None, of_leader: Copied | None) -> int | None:
    """The offsets that a replica lacks; None if they are not known. A replica that has not fetched yet reports 0."""
    if copied is None or (copied.lag == 0 and of_leader is not None and copied.bytes_ < of_leader.bytes_):
        return None
    return copied.lag


def _as_dict(each: Ongoing, broker_id: int | None, copied: Copied | None, of_leader: Copied | None) -> dict[str, Any]:
    return {
        "topic": each.topic,
        "partition": each.number,
        "replicas": list(each.replicas),
        "new_replicas": list(each.target),
        "removing": list(each.removing),
        "copied_to": broker_id,
        "bytes": None if copied is None else copied.bytes_,
        "leader_bytes": None if of_leader is None else of_leader.bytes_,
        "offsets_behind": _lag(copied, of_leader),
    }


def cancel(cluster: Cluster, as_json: bool, topics: Collection[str], yes: bool, dry_run: bool) -> None:
    """Cancel the reassignments in progress, and remove their throttles. Raises ClientError.

    Ends the command with exit code 1 if one could not be cancelled.
    """
    found = selected(cluster, topics)
    places = [each.place for each in found]
    failures: dict[TopicPartition, str] = {}
    removed: Removed | None = None
    if found and not dry_run:
        confirm(
            f"This cancels the reassignments of {count(len(found), 'partition')}: their new replicas are deleted, and the "
            "former ones stay.",
            yes,
        )
        done = 0

        def note(number: int) -> None:
            nonlocal done
            done += number

        with interrupt_note(lambda: f"{done} of {count(len(places), 'reassignment')} were cancelled"):
            failures = moves.cancel(cluster, places, note)
        wait_for_end(cluster, [place for place in places if place not in failures], cluster.timeout_s)
    if not dry_run:
        removed = remove_throttles(cluster, topics)
    if as_json:
        rows = [
            {"topic": topic, "partition": number, "problem": failures.get((topic, number))} for topic, number in places
        ]
        echo_json({"dry_run": dry_run, "cancelled": rows, **_removed(removed)})
    elif dry_run:
        echo(f"would cancel the reassignments of {count(len(found), 'partition')}; nothing was changed")
    else:
        echo(
            f"cancelled the reassignments of {count(len(places) - len(failures), 'partition')}"
            if found
            else "no reassignments are in progress"
        )
        print_removed(removed)
    _warn_of(failures)
    if failures or (removed is not None and removed.problems):
        raise SystemExit(1)


def finish(cluster: Cluster, as_json: bool, topics: Collection[str], wait: bool, timeout_s: float | None) -> None:
    """Remove the throttles of reassignments that have ended. Raises ClientError.

    Ends the command with exit code 1 if reassignments are still in progress at the end of a wait, or if a throttle could not be
    removed.

    :param wait: first wait until all reassignments have ended.
    """
    ended = True
    if wait:
        with interrupt_note(
            lambda: f"the reassignments continue; {FINISH} removes their throttles when they have ended"
        ):
            ended = wait_for_end(cluster, [each.place for each in selected(cluster, topics)], timeout_s)
    removed = remove_throttles(cluster, topics)
    left = len(selected(cluster, topics))
    if as_json:
        echo_json({"in_progress": left, **_removed(removed)})
    else:
        if left:
            echo(f"{count(left, 'reassignment')} {'is' if left == 1 else 'are'} still in progress")
        elif wait:
            echo("no reassignments are in progress")
        print_removed(removed)
    if removed.problems or not ended:
        raise SystemExit(1)


def remove_throttles(cluster: Cluster, topics: Collection[str]) -> Removed:
    """Remove the throttles of reassignments that have ended: with topics, only from these. Raises ClientError."""
    busy = {each.place for each in moves.ongoing(cluster)}
    view = cluster.metadata()
    brokers: Sequence[int] = () if topics else sorted(view.brokers)
    return replication_throttles.finish(
        cluster, set(topics) & view.topics.keys() if topics else view.topics, busy, brokers
    )


def print_removed(removed: Removed | None) -> None:
    """Print what was removed, and warn of what was not."""
    if removed is None:
        return
    if removed.topics:
        echo(f"removed the throttled replicas of {count(len(removed.topics), 'topic')}")
    if removed.brokers:
        echo(f"removed the throttled rates of broker {ids_text(removed.brokers)}")
    if removed.kept:
        names = ", ".join(removed.kept[:5]) + (f" and {len(removed.kept) - 5} more" if len(removed.kept) > 5 else "")
        echo(f"the throttled rates stay, because topics still have throttled replicas: {names}")
    if not (removed.topics or removed.brokers or removed.kept or removed.problems):
        echo("no throttles to remove")
    for problem in removed.problems[:SHOWN]:
        warn(f"cannot remove a throttle: {problem}")


def _removed(removed: Removed | None) -> dict[str, Any]:
    if removed is None:
        return {}
    return {
        "unthrottled_topics": list(removed.topics),
        "unthrottled_brokers": list(removed.brokers),
        "throttled_topics": list(removed.kept),
        "problems": list(removed.problems),
    }


def _warn_of(failures: dict[TopicPartition, str]) -> None:
    for (topic, number), reason in list(failures.items())[:SHOWN]:
        warn(f"the reassignment of {topic}-{number} is not cancelled: {reason}")
    if len(failures) > SHOWN:
        warn(f"{len(failures) - SHOWN} more reassignments are not cancelled")
