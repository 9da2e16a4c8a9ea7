"""What a controller sent, in a form in which two controllers can be compared.

Left out is what differs between two runs: ids of topics, ports, and the epochs of controllers and brokers, which are counted
from the begin of a run. Left out is also what Kafka leaves to chance, the order of partitions in its hash tables, and what no
broker can notice:
- how partitions are split into requests;
- what a broker knows already: UpdateMetadata that changes nothing, LeaderAndIsr that is repeated within a step;
- LeaderAndIsr and UpdateMetadata that a later one in the same step replaces, if it has no leader or a leader epoch that the
  broker knew before;
- in-sync replicas of partitions whose topic is being deleted.

What remains for each broker: for each partition the LeaderAndIsr (lead), UpdateMetadata (view) and StopReplica (stop) in their
order, and between them the brokers that became known, because a broker must know a leader before it follows it; and the lists
of brokers that it received.
"""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kazoo.exceptions import NoNodeError

from odradek.controller.cluster.leadership import PREFERRED_REPLICA_ELECTION
from odradek.controller.cluster.reassignment import REASSIGN_PARTITIONS
from odradek.controller.cluster.requests import LEADER_DURING_DELETE, VERSIONS
from odradek.metadata import znodes
from odradek.protocol.schemas import leader_and_isr, stop_replica, update_metadata

KINDS = {
    leader_and_isr.API_KEY: "lead",
    update_metadata.API_KEY: "view",
    stop_replica.API_KEY: "stop",
}
LEAD, VIEW, STOP = KINDS.values()
NO_LEADER, KNOWS = "leader -1 ", " knows "
_EPOCHS = re.compile(r"(epoch|version) \d+")
_EPOCH = re.compile(r"epoch (-?\d+)")


class Request(NamedTuple):
    """A request. ``head``: its header; ``partitions``: the texts of partitions by name; ``brokers``: of brokers by id."""

    kind: str
    head: str
    partitions: dict[str, str]
    brokers: dict[int, str]

    def __str__(self) -> str:
        brokers = f" brokers {', '.join(self.brokers.values())}" if self.kind == VIEW else ""
        rows = "".join(f"\n        {name}: {text}" for name, text in sorted(self.partitions.items()))
        return f"{self.kind} {self.head}{brokers}{rows}"


@dataclass
class Step:
    """A step of a scenario: what each broker received in order, and what is compared."""

    name: str
    requests: dict[int, list[Request]]
    compared: list[str]

    def raw(self) -> list[str]:
        """All requests, for people."""
        lines = []
        for broker_id, requests in sorted(self.requests.items()):
            lines += [f"    to {broker_id}: {request}" for request in requests]
        return lines


class _Known:
    """What a broker knows of the present controller since its registration.

    ``epochs``: the leader epoch of each kind and partition, also of former controllers.
    """

    def __init__(self, head: str = "", epochs: dict[tuple[str, str], int] | None = None) -> None:
        self.head = head
        self.brokers: dict[int, str] = {}
        self.views: dict[str, str] = {}
        self.epochs: dict[tuple[str, str], int] = {} if epochs is None else epochs


@dataclass
class Recording:
    """The steps of a run."""

    steps: list[Step] = field(default_factory=list)
    _known: dict[int, _Known] = field(default_factory=dict)

    def add(
        self,
        name: str,
        records: Sequence[tuple[int, Request]],
        answer: Any,
        tree: Mapping[str, str],
        *,
        requests_differ: bool = False,
        epochs_differ: bool = False,
    ) -> None:
        """Add a step. :param records: receivers and requests, in order. The last parameters: see `recorder.Run.step`."""
        requests: dict[int, list[Request]] = {}
        for broker_id, request in records:
            requests.setdefault(broker_id, []).append(request)
        lines = [f"== {name}: {answer}"]
        for broker_id, received in sorted(requests.items()):
            found = self._compared(broker_id, received)
            lines += [] if requests_differ else found
        lines += [f"  {path} {text}" for path, text in sorted(tree.items())]
        if epochs_differ:
            lines = list(dict.fromkeys(_EPOCHS.sub(r"\1 *", line) for line in lines))
        self.steps.append(Step(name, requests, lines))

    def _compared(self, broker_id: int, requests: Sequence[Request]) -> list[str]:
        """What one broker received, see the module."""
        partitions: dict[str, list[tuple[str, str]]] = {}
        common: list[tuple[str, str]] = []  # brokers that became known: they precede what follows for every partition
        lists: list[str] = []
        before: dict[tuple[str, str], int] = {}
        for request in requests:
            known = self._known.setdefault(broker_id, _Known())
            if known.head != request.head:
                same = known.head.partition("/")[2] == request.head.partition("/")[2]
                known = self._known[broker_id] = _Known(request.head, known.epochs if same else None)
            if request.kind == VIEW:
                changed = [text for number, text in request.brokers.items() if known.brokers.get(number) != text]
                if changed:
                    common.append((VIEW, f"{request.head}{KNOWS}{', '.join(changed)}"))
                    for entries in partitions.values():
                        entries.append(common[-1])
                if known.brokers != request.brokers:
                    lists.append(f"{request.head} brokers {list(request.brokers)}")
                known.brokers = request.brokers
            for name, text in request.partitions.items():
                if request.kind == VIEW:
                    if known.views.get(name) == text:
                        continue
                    known.views[name] = text
                entries = partitions.setdefault(name, list(common))
                entry = (request.kind, f"{request.head} {text}")
                if request.kind != STOP:
                    key = (request.kind, name)
                    before.setdefault(key, known.epochs.get(key, -1))
                    known.epochs[key] = _epoch_of(text)
                if entry not in entries:
                    entries.append(entry)
        lines = [f"  to {broker_id}: {text}" for text in lists]
        for name, entries in sorted(partitions.items()):
            kept = _without_replaced(entries, {kind: before.get((kind, name), -1) for kind in (LEAD, VIEW)})
            lines += [f"  to {broker_id}: {name}: {kind} {text}" for kind, text in kept]
        return lines


def _epoch_of(text: str) -> int:
    found = _EPOCH.search(text)
    assert found is not None, text
    return int(found[1])


def _without_replaced(entries: Sequence[tuple[str, str]], before: Mapping[str, int]) -> list[tuple[str, str]]:
    """Without what later entries replace before a broker can have acted on it.

    :param before: by kind the leader epoch that the broker knew before the step.
    """
    kept = []
    for place, (kind, text) in enumerate(entries):
        if kind in (LEAD, VIEW) and KNOWS not in text and (NO_LEADER in text or _epoch_of(text) <= before[kind]):
            later = {following for following, row in entries[place + 1 :] if KNOWS not in row}
            if kind in later or (kind == LEAD and STOP in later):
                continue
        kept.append((kind, text))
    return kept


class Normaliser:
    """See the module.

    :param suffix: the end of topic names in this run. :param first_epoch: the controller epoch at its begin.
    :param broker_epochs: the epochs of each broker, in order. :param ports: the port of each broker.
    :param ids: topic ids by name. :param hidden: listeners that are left out. :param controller_id: the controller.
    """

    def __init__(
        self,
        suffix: str,
        first_epoch: int,
        broker_epochs: Mapping[int, Sequence[int]],
        ports: Mapping[int, int],
        ids: Mapping[str, bytes],
        hidden: Collection[str],
        controller_id: int,
    ) -> None:
        self._suffix = suffix
        self._first_epoch = first_epoch
        self._broker_epochs = broker_epochs
        self._ports = ports
        self._ids = ids
        self._hidden = hidden
        self._controller_id = controller_id

    def request(self, record: Any) -> Request:
        """A recorded request."""
        request, api = record.request, record.api
        assert record.version == VERSIONS[api.key], record
        assert (request.controller_id, request.is_kraft_controller) == (self._controller_id, False), record
        assert getattr(request, "type", 0) == 0, record
        known = self._broker_epochs[record.broker_id]
        incarnation = known.index(request.broker_epoch) if request.broker_epoch in known else request.broker_epoch
        head = f"[{self._epoch(request.controller_epoch)}/{incarnation}]"
        if api is leader_and_isr.SCHEMA:
            leaders = {leader.broker_id: leader for leader in request.live_leaders}
            return Request(
                KINDS[api.key], head, self._partitions(request, lambda state: self._leader(state, leaders)), {}
            )
        if api is update_metadata.SCHEMA:
            brokers = {
                broker.id: self._broker(broker) for broker in sorted(request.live_brokers, key=lambda broker: broker.id)
            }
            return Request(VIEW, head, self._partitions(request, self._metadata), brokers)
        return Request(KINDS[api.key], head, self._partitions(request, self._stop), {})

    def _epoch(self, epoch: int) -> str:
        return f"c{epoch - self._first_epoch}"

    def _partitions(self, request: Any, text: Any) -> dict[str, str]:
        result = {}
        for topic in request.topic_states:
            topic_id = getattr(topic, "topic_id", None)
            strange = (
                "" if topic_id is None or bytes(topic_id) == self._ids.get(topic.topic_name) else " with another id"
            )
            for state in topic.partition_states:
                name = f"{self._topic(topic.topic_name)}-{state.partition_index}"
                assert name not in result, f"{name} is twice in {request}"
                result[name] = text(state) + strange
        return result

    def _topic(self, name: str) -> str:
        return name.removesuffix(self._suffix)

    def _leader(self, state: Any, leaders: Mapping[int, Any]) -> str:
        leader = leaders.get(state.leader)
        place = "unknown" if leader is None else f"{leader.host_name}:{self._port(state.leader, leader.port)}"
        return (
            f"leader {state.leader} at {place} epoch {state.leader_epoch} isr {list(state.isr)} version"
            f" {state.partition_epoch} replicas {list(state.replicas)} +{list(state.adding_replicas)}"
            f" -{list(state.removing_replicas)}{' new' if state.is_new else ''}"
            f"{f' recovery {state.leader_recovery_state}' if state.leader_recovery_state else ''}"
        )

    def _metadata(self, state: Any) -> str:
        if state.leader == LEADER_DURING_DELETE:
            return f"leader {state.leader} epoch {state.leader_epoch} version {state.zk_version}"
        return (
            f"leader {state.leader} epoch {state.leader_epoch} isr {list(state.isr)} version {state.zk_version}"
            f" replicas {list(state.replicas)} offline {sorted(state.offline_replicas)}"
        )

    def _stop(self, state: Any) -> str:
        return f"epoch {state.leader_epoch} delete {state.delete_partition}"

    def _port(self, broker_id: int, port: int) -> str:
        return "own" if port == self._ports.get(broker_id) else str(port)

    def _broker(self, broker: Any) -> str:
        endpoints = [
            f"{endpoint.listener}/{endpoint.security_protocol}/{endpoint.host}:{self._port(broker.id, endpoint.port)}"
            for endpoint in sorted(broker.endpoints, key=lambda endpoint: endpoint.listener)
            if endpoint.listener not in self._hidden
        ]
        usual = endpoints == ["PLAINTEXT/0/127.0.0.1:own"]
        return f"{broker.id}{'' if usual else endpoints}{'' if broker.rack is None else broker.rack}"

    def tree(self, zookeeper: Any, topics: Sequence[str]) -> dict[str, str]:
        """The nodes of the run's topics and of pending requests of operators."""
        nodes: dict[str, str] = {}
        marks = zookeeper.get_children(znodes.DELETE_TOPICS)
        nodes |= {f"deletion of {self._topic(name)}": "" for name in marks}
        for name in topics:
            short = self._topic(name)
            if name in marks:
                continue
            node = znodes.decode_topic(name, zookeeper.get(znodes.topic_path(name))[0])
            nodes[short] = f"partitions {node.partitions} adding {node.adding} removing {node.removing}"
            try:
                indexes = zookeeper.get_children(znodes.partitions_path(name))
            except NoNodeError:
                continue
            for index in indexes:
                try:
                    data, stat = zookeeper.get(znodes.state_path(name, int(index)))
                except NoNodeError:
                    continue
                state = znodes.decode_state(name, int(index), data)
                nodes[f"{short}-{index}"] = (
                    f"leader {state.leader} epoch {state.leader_epoch} isr {state.in_sync_replicas} version {stat.version}"
                    f" recovery {state.leader_recovery_state} by {self._epoch(state.controller_epoch)}"
                )
        for path in (REASSIGN_PARTITIONS, PREFERRED_REPLICA_ELECTION):
            if zookeeper.exists(path):
                nodes[path] = ""
        return nodes


def difference(kafka: Recording, ours: Recording, raw: bool = False) -> list[str]:
    """The lines in which two recordings differ, by step; empty if they are equal.

    :param raw: append all requests of the steps that differ.
    """
    lines: list[str] = []
    for one, other in zip(kafka.steps, ours.steps, strict=True):
        if one.compared == other.compared:
            continue
        lines.append(f"== {one.name}")
        lines += [f"  kafka   {line}" for line in one.compared if line not in other.compared]
        lines += [f"  odradek {line}" for line in other.compared if line not in one.compared]
        if set(one.compared) == set(other.compared):
            lines += [
                "  only the order differs:",
                *difflib.unified_diff(one.compared, other.compared, "kafka", "odradek", lineterm="", n=2),
            ]
        if raw:
            lines += ["  kafka sent", *one.raw(), "  odradek sent", *other.raw()]
    return lines
