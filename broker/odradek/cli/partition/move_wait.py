"""Waits until reassignments have ended, for ``odradek partition move --wait`` and ``moves --wait``.

Runs in the process of the command. A controller that is restarted, or fails, does not end the wait.
"""

import time
from collections.abc import Collection, Sequence

from odradek.backoff import Waits
from odradek.cli.framework.failure import warn
from odradek.cli.framework.output import progress
from odradek.clients import moves
from odradek.clients.cluster import Cluster
from odradek.clients.errors import UnreachableError
from odradek.clients.move_plan import Move, ids_text
from odradek.topic_partition import TopicPartition

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
UNREACHABLE_S = 300.0
"""The longest time without a response of the cluster, in seconds."""
SETTLE_S = 30.0
"""The longest time until the brokers show the end of a reassignment, in seconds."""


def wait_for_end(cluster: Cluster, places: Collection[TopicPartition], timeout_s: float | None) -> bool:
    """Wait until none of these partitions is being reassigned; shows a progress bar. Returns whether this happened.

    :param timeout_s: None: without a limit. Raises ClientError if the cluster does not respond for `UNREACHABLE_S`.
    """
    backoff = Waits(FIRST_PAUSE_S, LONGEST_PAUSE_S, timeout_s)
    answered = time.monotonic()
    left, warned = len(places), False
    with progress("moving", len(places), "partitions") as advance:
        while True:
            try:
                waiting = {each.place for each in moves.ongoing(cluster)}.intersection(places)
            except UnreachableError as error:
                if time.monotonic() - answered > UNREACHABLE_S:
                    raise
                if not warned:
                    warn(f"{error}; retrying")
                    warned = True
                _refresh(cluster)
            else:
                answered, warned = time.monotonic(), False
                advance(left - len(waiting))
                left = len(waiting)
                if not waiting:
                    return True
            if not backoff.wait():
                return False


def _refresh(cluster: Cluster) -> None:
    """Look for the new controller; a bootstrap server that does not respond is noticed by the next request."""
    try:
        cluster.view(fresh=True)
    except UnreachableError:
        return


def mismatched(cluster: Cluster, planned: Sequence[Move]) -> list[str]:
    """The partitions that do not have the planned replicas, one sentence each: somebody cancelled or replaced the move.

    Waits for brokers whose metadata is out of date. Raises ClientError.
    """
    backoff = Waits(FIRST_PAUSE_S, LONGEST_PAUSE_S, SETTLE_S)
    while True:
        view = cluster.metadata()
        found = {
            (partition.topic, partition.number): partition.replicas
            for topic in view.topics.values()
            for partition in topic.partitions
        }
        different = [
            f"{move.partition} has the replicas {ids_text(found[move.partition.place])} instead of {ids_text(move.target)}: "
            "its reassignment was cancelled or replaced"
            for move in planned
            if move.partition.place in found and set(found[move.partition.place]) != set(move.target)
        ]
        if not different or not backoff.wait():
            return different
