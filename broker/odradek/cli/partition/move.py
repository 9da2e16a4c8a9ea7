"""The work of ``odradek partition move``: plans, shows the plan, begins the reassignments and waits for their end.

Runs in the process of the command. The controller executes reassignments also when the command has ended; therefore a
repeated command plans only what is left.
"""

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odradek.backoff import Waits
from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import warn
from odradek.cli.framework.interrupt import interrupt_note
from odradek.cli.framework.options import confirm
from odradek.cli.framework.output import abbreviate, cell, count, echo_json, print_table, progress, size
from odradek.cli.partition.move_wait import FIRST_PAUSE_S, LONGEST_PAUSE_S, SETTLE_S, mismatched, wait_for_end
from odradek.clients import elections, move_plan, moves, replication_throttles, topics
from odradek.clients.cluster import Cluster, View
from odradek.clients.errors import ClientError, no_topic
from odradek.clients.move_plan import Assigned, Move, ids_text
from odradek.clients.replication_throttles import Throttle
from odradek.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS_SHOWN = 50
"""The maximum number of partitions that the table of a plan lists; --json lists all."""
FINISH = "`odradek partition moves --finish`"


@dataclass(frozen=True)
class Options:
    """The options of the command. :ivar timeout_s: for the wait; None: without a limit."""

    off: frozenset[int] = frozenset()
    to: tuple[int, ...] = ()
    topics: frozenset[str] = frozenset()
    balance: bool = False
    throttle: int | None = None
    dry_run: bool = False
    yes: bool = False
    wait: bool = False
    timeout_s: float | None = None
    as_json: bool = False


@dataclass
class Work:
    """What a command does.

    :ivar moves: to begin. :ivar resumed: those of an earlier command that are in progress.
    :ivar in_progress: whether the cluster moves partitions already.
    :ivar skipped: partitions that cannot be moved, with the reason. :ivar sizes: bytes of each partition, if they are known.
    :ivar led_elsewhere: at the end, the number of partitions that another broker than their preferred leader leads.
    """

    view: View
    moves: list[Move]
    resumed: list[Move] = field(default_factory=list)
    in_progress: bool = False
    skipped: dict[TopicPartition, str] = field(default_factory=dict)
    sizes: dict[TopicPartition, int] | None = None
    led_elsewhere: int = 0

    @property
    def all_moves(self) -> list[Move]:
        """All moves, also those of an earlier command."""
        return [*self.moves, *self.resumed]

    @property
    def bytes_to_copy(self) -> int | None:
        """The sum of the bytes of all new replicas; None if it is not known."""
        if self.sizes is None:
            return None
        return sum(self.sizes.get(move.partition.place, 0) * len(move.added) for move in self.moves)


def run(cluster: Cluster, options: Options) -> None:
    """Plan, ask, begin, wait. Raises ClientError; ends the command with exit code 1 if something could not be moved."""
    work = plan(cluster, options)
    if not options.as_json:
        _show(work, options)
    throttle: Throttle | None = None
    complete = False
    failures: dict[TopicPartition, str] = {}
    if not options.dry_run and work.all_moves:
        if work.moves:
            confirm(_question(work, options), options.yes)
        throttle = _throttle(cluster, work, options)
        failures = _begin(cluster, work, throttle is not None)
        if options.wait:
            complete = _finish(cluster, work, failures, throttle, options)
    _print_result(work, options, failures, throttle, complete)
    if failures or work.skipped or (options.wait and not options.dry_run and work.all_moves and not complete):
        raise SystemExit(1)


def plan(cluster: Cluster, options: Options) -> Work:
    """What there is to do. Raises ClientError."""
    in_progress = moves.ongoing(cluster)
    view = cluster.metadata()
    unknown = sorted(options.topics - view.topics.keys())
    if unknown:
        raise no_topic(unknown[0], view.topics)
    partitions = moves.assigned(view, in_progress)
    if options.balance:
        work = Work(view, move_plan.plan_balance(view.racks, partitions, options.to, options.topics))
    else:
        work = Work(view, move_plan.plan_off(view.racks, partitions, options.off, options.to, options.topics))
        by_place = {partition.place: partition for partition in partitions}
        work.resumed = [
            Move(by_place[each.place], each.target)
            for each in in_progress
            if not options.off.isdisjoint(each.removing)
            and each.place in by_place
            and (not options.topics or each.topic in options.topics)
        ]
        replaced = {move.partition.place for move in work.moves}
        work.resumed = [move for move in work.resumed if move.partition.place not in replaced]
    work.in_progress = bool(in_progress)
    for move in work.moves:
        if move.added and move.partition.leader < 0:
            work.skipped[move.partition.place] = (
                f"it has no leader, so its records cannot be copied; in sync: {ids_text(move.partition.in_sync)}; "
                "start one of these brokers"
            )
    work.moves = [move for move in work.moves if move.partition.place not in work.skipped]
    work.sizes = _sizes(cluster, view, work.moves)
    return work


def _sizes(cluster: Cluster, view: View, planned: Sequence[Move]) -> dict[TopicPartition, int] | None:
    names = {move.partition.topic for move in planned if move.added}
    try:
        return topics.sizes(cluster, [view.topics[name] for name in sorted(names)])
    except ClientError as error:
        warn(f"the sizes of the partitions are not known: {error}")
        return None


def _show(work: Work, options: Options) -> None:
    shown = work.moves if options.dry_run and len(work.moves) <= 2 * ROWS_SHOWN else work.moves[:ROWS_SHOWN]
    rows: list[list[Any]] = []
    for move in shown:
        bytes_ = None if work.sizes is None or not move.added else work.sizes.get(move.partition.place)
        rows.append(
            [
                move.partition.topic,
                move.partition.number,
                cell(move.partition.replicas),
                cell(move.target),
                cell(move.added),
                None if bytes_ is None else size(bytes_ * len(move.added)),
            ]
        )
    if rows:
        print_table(["topic", "partition", "replicas", "new replicas", "copied to", "bytes to copy"], rows, "")
        if len(work.moves) > len(shown):
            echo(f"and {len(work.moves) - len(shown):,} more partitions (--json lists all)")
    for place, reason in list(work.skipped.items())[:ROWS_SHOWN]:
        warn(f"{_name(place)} is not moved: {reason}")
    if len(work.skipped) > ROWS_SHOWN:
        warn(f"{len(work.skipped) - ROWS_SHOWN} more partitions are not moved, because they have no leader")


def _question(work: Work, options: Options) -> str:
    copied = sum(len(move.added) for move in work.moves)
    bytes_ = "" if work.bytes_to_copy is None else f" ({size(work.bytes_to_copy)})"
    limit = "" if options.throttle is None else f", at most {size(options.throttle)} per second and broker"
    return (
        f"This changes the replicas of {count(len(work.moves), 'partition')} and copies {count(copied, 'replica')}"
        f"{bytes_}{limit}."
    )


def _throttle(cluster: Cluster, work: Work, options: Options) -> Throttle | None:
    """Set the throttle before the first reassignment begins."""
    if options.throttle is None or not any(replication_throttles.entries(work.all_moves)):
        return None
    with _note_of_throttle():
        return replication_throttles.throttle(
            cluster,
            work.all_moves,
            options.throttle,
            work.view.brokers.keys(),
            resumed={move.partition.place for move in work.resumed},
            restore=not work.in_progress,
        )


@contextmanager
def _note_of_throttle() -> "Iterator[None]":
    text = f"no reassignment was begun, but throttles may have been set: {FINISH} removes them"
    try:
        with interrupt_note(lambda: text):
            yield
    except ClientError as error:
        raise ClientError(f"{error}; {text}") from None


def _begin(cluster: Cluster, work: Work, throttled: bool) -> dict[TopicPartition, str]:
    """Begin the reassignments; returns those that were refused. Raises ClientError that says how many have begun."""
    begun = 0

    def text() -> str:
        rest = f"; {FINISH} removes the throttle when they have ended" if throttled else ""
        return (
            f"{begun} of {count(len(work.moves), 'reassignment')} have begun and continue; repeat the command for the others, "
            f"or cancel them with `odradek partition moves --cancel`{rest}"
        )

    with progress("beginning reassignments", len(work.moves), "partitions") as advance:

        def note(number: int) -> None:
            nonlocal begun
            begun += number
            advance(number)

        try:
            with interrupt_note(text):
                return moves.begin(cluster, work.moves, note)
        except ClientError as error:
            raise ClientError(f"{error}. {text()}") from None


def _finish(
    cluster: Cluster, work: Work, failures: dict[TopicPartition, str], throttle: Throttle | None, options: Options
) -> bool:
    """Wait for the end, and remove the throttle. Returns whether all moves that were begun have ended as planned."""
    begun = [move for move in work.all_moves if move.partition.place not in failures]
    rest = f"; {FINISH} removes the throttle when they have ended" if throttle else ""
    text = f"the reassignments continue; `odradek partition moves` lists them, and --cancel cancels them{rest}"
    with interrupt_note(lambda: text):
        ended = wait_for_end(cluster, {move.partition.place for move in begun}, options.timeout_s)
    if not ended:
        warn(f"not complete within --timeout: {text}")
        return False
    rest = f"; {FINISH} removes the throttle" if throttle else ""
    with interrupt_note(lambda: f"all reassignments have ended{rest}"):
        if throttle is not None:
            for problem in replication_throttles.unthrottle(cluster, throttle, len(moves.ongoing(cluster))):
                warn(f"cannot remove a throttle; {FINISH} tries again: {problem}")
        different = mismatched(cluster, begun)
    for line in different[:ROWS_SHOWN]:
        warn(line)
    view = cluster.metadata()
    work.led_elsewhere = len(elections.candidates(view, elections.PREFERRED))
    if different or options.balance or failures:
        return not different
    return _is_off(view, options) and (bool(options.topics) or _has_no_logs(cluster, view, options))


def _has_no_logs(cluster: Cluster, view: View, options: Options) -> bool:
    """Whether the brokers of --off have deleted all logs: there may be topics that this user may not describe.

    A broker that does not run, or does not say, is not waited for.
    """
    backoff = Waits(FIRST_PAUSE_S, LONGEST_PAUSE_S, SETTLE_S)
    while True:
        found = moves.stored(cluster, options.off & view.brokers.keys())
        left = {
            broker_id: places for broker_id, places in found.items() if not isinstance(places, ClientError) and places
        }
        if not left or not backoff.wait():
            break
    for broker_id, answer in found.items():
        if isinstance(answer, ClientError):
            warn(f"broker {broker_id} does not say which logs it still has: {answer}")
        elif answer:
            warn(
                f"broker {broker_id} still has logs of {abbreviate(map(_name, answer))}: it deletes them, or this user may not "
                "describe the topics"
            )
    return not left


def _is_off(view: View, options: Options) -> bool:
    """Whether the brokers of --off have no replicas any more; topics may have been created there meanwhile."""
    left = [
        f"{partition.topic}-{partition.number}"
        for topic in view.topics.values()
        for partition in topic.partitions
        if (not options.topics or topic.name in options.topics) and not options.off.isdisjoint(partition.replicas)
    ]
    if left:
        warn(f"broker {ids_text(options.off)} still has replicas of {abbreviate(left)}: repeat the command")
    return not left


def _print_result(
    work: Work, options: Options, failures: dict[TopicPartition, str], throttle: Throttle | None, complete: bool
) -> None:
    if options.as_json:
        echo_json(_document(work, options, failures, throttle, complete))
        return
    for place, reason in list(failures.items())[:ROWS_SHOWN]:
        warn(f"{_name(place)} is not moved: {reason}")
    begun = len(work.moves) - len(failures)
    what = count(begun, "partition")
    if not work.all_moves:
        if not work.skipped:
            echo(_nothing(options))
    elif options.dry_run:
        resumed = f"; {count(len(work.resumed), 'partition')} are moving already" if work.resumed else ""
        echo(f"{_question(work, options)} This is a dry run: nothing was changed{resumed}")
    elif complete:
        empty = f"; broker {ids_text(options.off)} has no more replicas" if options.off and not options.topics else ""
        echo(f"the replicas of {count(begun + len(work.resumed), 'partition')} have moved{empty}")
        if work.led_elsewhere:
            echo(
                f"the preferred leader does not lead {count(work.led_elsewhere, 'partition')}: `odradek partition elect` "
                "elects it"
            )
    elif not options.wait:
        rest = f"; {FINISH} removes the throttle when they have ended" if throttle else ""
        echo(f"the replicas of {what} are moving; `odradek partition moves` shows the progress{rest}")


def _nothing(options: Options) -> str:
    of = f" of {', '.join(sorted(options.topics))}" if options.topics else ""
    if options.balance:
        return f"nothing to move: the replicas{of} are balanced"
    return f"nothing to move: broker {ids_text(options.off)} has no replicas{of}"


def _document(
    work: Work, options: Options, failures: dict[TopicPartition, str], throttle: Throttle | None, complete: bool
) -> dict[str, Any]:
    def row(move: Move) -> dict[str, Any]:
        partition: Assigned = move.partition
        return {
            "topic": partition.topic,
            "partition": partition.number,
            "replicas": list(partition.replicas),
            "new_replicas": list(move.target),
            "copied_to": list(move.added),
            "removed_from": list(move.removed),
            "bytes": None if work.sizes is None else work.sizes.get(partition.place),
            "problem": failures.get(partition.place),
        }

    return {
        "dry_run": options.dry_run,
        "moves": [row(move) for move in work.moves],
        "in_progress": [row(move) for move in work.resumed],
        "skipped": [
            {"topic": topic, "partition": number, "problem": reason} for (topic, number), reason in work.skipped.items()
        ],
        "bytes_to_copy": work.bytes_to_copy,
        "throttled": throttle is not None,
        "complete": complete or not work.all_moves,
    }


def _name(place: TopicPartition) -> str:
    return f"{place[0]}-{place[1]}"
