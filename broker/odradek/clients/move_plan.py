"""Plans which replicas move to which brokers. Pure functions over what the metadata of a cluster shows.

A new replica takes the place of the one that it replaces in the list of replicas, so that the preferred leader, the first of
the list, changes only if it moves itself.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek.clients.errors import ClientError
from odradek.topic_partition import TopicPartition

NAMED = 5
"""The maximum number of topics that an error names."""
COMPARED = 50
"""The maximum number of partitions that are compared to choose one that moves, so that large plans take seconds."""


class PlanError(ClientError):
    """No plan is possible; one line that says why, and what would be necessary."""


class Assigned(NamedTuple):
    """A partition. :param replicas: the preferred leader first; during a reassignment, those that it leads to.

    :param present: all brokers that have a replica now, also those that a reassignment removes.
    """

    topic: str
    number: int
    leader: int
    replicas: tuple[int, ...]
    present: tuple[int, ...]
    in_sync: tuple[int, ...] = ()

    @property
    def place(self) -> TopicPartition:
        """The topic and the number."""
        return self.topic, self.number

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Move(NamedTuple):
    """A change of the replicas of a partition."""

    partition: Assigned
    target: tuple[int, ...]

    @property
    def added(self) -> tuple[int, ...]:
        """Brokers that receive a copy."""
        return tuple(broker_id for broker_id in self.target if broker_id not in self.partition.present)

    @property
    def removed(self) -> tuple[int, ...]:
        """Brokers whose replica is deleted."""
        return tuple(broker_id for broker_id in self.partition.present if broker_id not in self.target)


class Load:
    """How many replicas each broker has, and of how many partitions it is the preferred leader.

    :param racks: the rack of each registered broker; None if it has none. :param partitions: all partitions of the cluster.
    """

    def __init__(self, racks: Mapping[int, str | None], partitions: Iterable[Assigned]) -> None:
        self.racks = racks
        self.replicas: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()
        self.of_topic: Counter[tuple[str, int]] = Counter()
        for partition in partitions:
            self.add(partition.topic, partition.replicas)

    def add(self, topic: str, replicas: Sequence[int], sign: int = 1) -> None:
        """Count the replicas of a partition. :param sign: -1 to remove them again."""
        for broker_id in replicas:
            self.replicas[broker_id] += sign
            self.of_topic[topic, broker_id] += sign
        self.leaders.update(dict.fromkeys(replicas[:1], sign))

    def shares_rack(self, broker_id: int, others: Iterable[int]) -> bool:
        """Whether a broker is in the rack of one of the others. A broker without a rack shares none."""
        rack = self.racks.get(broker_id)
        return rack is not None and any(self.racks.get(other) == rack for other in others)

    def best(self, candidates: Collection[int], topic: str, kept: Collection[int], first: bool) -> int:
        """The candidate in another rack than the kept replicas, if there is one, and then with the fewest replicas.

        :param first: whether it becomes the preferred leader; then also the fewest of these count.
        """
        return min(
            candidates,
            key=lambda broker_id: (
                self.shares_rack(broker_id, kept),
                self.replicas[broker_id],
                self.leaders[broker_id] if first else 0,
                self.of_topic[topic, broker_id],
                self.leaders[broker_id],
                broker_id,
            ),
        )


def check_brokers(racks: Mapping[int, str | None], wanted: Iterable[int], option: str) -> None:
    """Raise PlanError if a wanted broker is not registered. :param option: the option that names it."""
    unknown = sorted(set(wanted) - racks.keys())
    if unknown:
        raise PlanError(
            f"{option}: broker {unknown[0]} is not registered; the registered brokers are {ids_text(racks)}"
        )


def plan_off(
    racks: Mapping[int, str | None],
    partitions: Sequence[Assigned],
    off: Collection[int],
    to: Collection[int] = (),
    topics: Collection[str] = (),
) -> list[Move]:
    """The moves that take all replicas off the brokers `off`. Raises PlanError.

    :param racks: the registered brokers. :param partitions: all partitions of the cluster.
    :param to: the brokers that may receive replicas; empty: all others. :param topics: only these; empty: all.
    """
    off = frozenset(off)
    check_brokers(racks, to, "--to")
    used = {broker_id for partition in partitions for broker_id in partition.present}
    unknown = off - racks.keys() - used
    if unknown:
        raise PlanError(
            f"--off: broker {min(unknown)} is not registered, and no partition has a replica there; "
            f"the registered brokers are {ids_text(racks)}"
        )
    allowed = (frozenset(to) if to else frozenset(racks)) - off
    load = Load(racks, partitions)
    moves = []
    refused: dict[str, str] = {}
    for partition in sorted(partitions):
        if off.isdisjoint(partition.replicas) or (topics and partition.topic not in topics):
            continue
        target = list(partition.replicas)
        load.add(partition.topic, target, -1)
        for place, broker_id in enumerate(target):
            if broker_id not in off:
                continue
            kept = [other for other in target if other not in off]
            # A replica that another reassignment is removing comes last: that broker may be about to be emptied, too.
            candidates = allowed.difference(target, partition.present) or allowed.difference(target)
            if not candidates:
                refused.setdefault(partition.topic, _too_few(partition, racks, off, to))
                break
            target[place] = load.best(candidates, partition.topic, kept, place == 0)
        load.add(partition.topic, target)
        moves.append(Move(partition, tuple(target)))
    if refused:
        rest = f"; and {len(refused) - NAMED} more topics" if len(refused) > NAMED else ""
        raise PlanError("; ".join([*refused.values()][:NAMED]) + rest)
    return moves


def _too_few(partition: Assigned, racks: Mapping[int, str | None], off: Collection[int], to: Collection[int]) -> str:
    factor = len(partition.replicas)
    left = set(racks) - set(off)
    if to and len(left) >= factor:
        return (
            f"topic '{partition.topic}' has the replication factor {factor}: for partition {partition.number}, no broker of "
            f"--to {ids_text(to)} is left that has no replica of it yet; name further brokers of {ids_text(left)}"
        )
    brokers = "no broker is left" if not left else f"{_only(len(left))} left ({ids_text(left)})"
    return (
        f"topic '{partition.topic}' has the replication factor {factor}, and without broker {ids_text(off)} {brokers}: "
        "add a broker, or reduce the replication factor"
    )


def _only(number: int) -> str:
    return "only 1 broker is" if number == 1 else f"only {number} brokers are"


def plan_balance(
    racks: Mapping[int, str | None],
    partitions: Sequence[Assigned],
    to: Collection[int] = (),
    topics: Collection[str] = (),
) -> list[Move]:
    """The fewest moves after which the numbers of replicas of any two brokers differ by at most one, and so do the numbers of
    partitions of which they are the preferred leader, as far as racks and replication factors allow it. Raises PlanError.

    A change of the preferred leader alone copies nothing.

    :param to: the brokers among which replicas are balanced; empty: all. Replicas on other brokers stay there.
    :param topics: only replicas of these topics move; empty: of all.
    """
    check_brokers(racks, to, "--to")
    brokers = sorted(to or racks)
    balance = _Balance(Load(racks, partitions), brokers)
    for partition in sorted(partitions):
        if not topics or partition.topic in topics:
            balance.targets[partition.place] = list(partition.replicas)
            for broker_id in partition.replicas:
                balance.places.setdefault(broker_id, {})[partition.place] = None
    balance.even_replicas()
    balance.even_leaders()
    by_place = {partition.place: partition for partition in partitions}
    return [
        Move(by_place[place], tuple(target))
        for place, target in balance.targets.items()
        if tuple(target) != by_place[place].replicas
    ]


class _Balance:
    """The state of a plan of `plan_balance`.

    :ivar targets: the replicas of each partition that may move. :ivar places: those with a replica, by broker, in order.
    :ivar moved: the partitions of which a replica moves; others are preferred, so that few partitions get several new replicas.
    """

    def __init__(self, load: Load, brokers: Sequence[int]) -> None:
        self.load = load
        self.brokers = brokers
        self.targets: dict[TopicPartition, list[int]] = {}
        self.places: dict[int, dict[TopicPartition, None]] = {}
        self.moved: set[TopicPartition] = set()

    def even_replicas(self) -> None:
        """Move single replicas from the broker with the most to the broker with the fewest."""
        blocked: set[tuple[int, int]] = set()
        while pair := self._furthest(self.load.replicas, blocked):
            place = self._movable(*pair)
            if place is None:
                blocked.add(pair)
            else:
                self._move(place, *pair)

    def even_leaders(self) -> None:
        """Let replicas of brokers that are the preferred leader of fewer partitions be the first of their lists."""
        blocked: set[tuple[int, int]] = set()
        while pair := self._furthest(self.load.leaders, blocked):
            place = next((place for place in self._led_by(pair[0]) if pair[1] in self.targets[place]), None)
            if place is None:
                blocked.add(pair)
                continue
            target = self.targets[place]
            self.load.add(place[0], target, -1)
            at = target.index(pair[1])
            target[0], target[at] = target[at], target[0]
            self.load.add(place[0], target)
            blocked.clear()

    def _furthest(self, counts: Mapping[int, int], blocked: Collection[tuple[int, int]]) -> tuple[int, int] | None:
        """The pair of brokers (more, fewer) whose numbers differ most, by 2 or more; None if there is none."""
        most, least = max(self.brokers, key=counts.__getitem__), min(self.brokers, key=counts.__getitem__)
        if counts[most] - counts[least] < 2:
            return None
        if (most, least) not in blocked:
            return most, least
        pairs = [
            (counts[more] - counts[fewer], -more, -fewer)
            for more in self.brokers
            for fewer in self.brokers
            if counts[more] - counts[fewer] > 1 and (more, fewer) not in blocked
        ]
        if not pairs:
            return None
        _, more, fewer = max(pairs)
        return -more, -fewer

    def _movable(self, source: int, to: int) -> TopicPartition | None:
        """A partition whose replica may move; preferably one that also makes the leaders and the topics more even."""
        load, best, best_rank, looked_at = self.load, None, None, 0
        for place in self.places.get(source, ()):
            target = self.targets[place]
            if to in target:
                continue
            kept = [broker_id for broker_id in target if broker_id != source]
            if load.shares_rack(to, kept) and not load.shares_rack(source, kept):
                continue
            leads = target[0] == source
            wants_leader = load.leaders[source] - load.leaders[to] > 1
            rank = (
                leads != wants_leader,
                place in self.moved,
                load.of_topic[place[0], to] - load.of_topic[place[0], source],
            )
            if best_rank is None or rank < best_rank:
                best, best_rank = place, rank
            looked_at += 1
            if looked_at == COMPARED:
                break
        return best

    def _move(self, place: TopicPartition, source: int, to: int) -> None:
        target = self.targets[place]
        self.load.add(place[0], target, -1)
        target[target.index(source)] = to
        self.moved.add(place)
        self.load.add(place[0], target)
        del self.places[source][place]
        self.places.setdefault(to, {})[place] = None

    def _led_by(self, broker_id: int) -> Iterable[TopicPartition]:
        return (place for place in self.places.get(broker_id, ()) if self.targets[place][0] == broker_id)


def ids_text(broker_ids: Iterable[int]) -> str:
    """Broker ids, in order: "1, 2, 3"."""
    return ", ".join(map(str, sorted(broker_ids))) or "none"
