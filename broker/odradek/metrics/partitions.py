"""Families about topics, partitions, the broker and its log directories: from the slots and the header of the mapping."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from odradek._ext.shm.layout import ProcessKind, ProcessState, SlotState
from odradek._ext.shm.overview import Partition
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.metrics.exposition import Family, Labels, Sample
from odradek.metrics.log_sizes import LogSize, LogSizes
from odradek.metrics.names import METRICS
from odradek.metrics.processes import Place, single

RUNNING, SHUTTING_DOWN = 3, 7
OTHER = "other"
OTHER_PARTITIONS = Labels(topic=OTHER, partition=OTHER)

_PRODUCER_EVENTS = {
    "odradek_producers_evicted_total": {
        "client": "evicted_for_client",
        "silent": "evicted_silent",
        "early": "forgotten_early",
        "start": "dropped_at_start",
    },
    "odradek_producer_batches_refused_total": {
        "client": "refused_client",
        "partition": "refused_partition",
        "memory": "refused_arena",
    },
}

Rows = Mapping[str, Sequence[Partition]]
"""The partitions of each topic, by its name."""


class Address(NamedTuple):
    """Where clients reach a broker."""

    broker_id: int
    address: str


class PartitionLabels:
    """Labels of partitions, kept from scrape to scrape. :param most: how many, before all are made anew."""

    def __init__(self, most: int = 1 << 17) -> None:
        self._most = most
        self._made: dict[tuple[str, int], Labels] = {}

    def __call__(self, topic: str, partition: int) -> Labels:
        found = self._made.get((topic, partition))
        if found is None:
            if len(self._made) >= self._most:
                self._made.clear()
            found = self._made[topic, partition] = Labels(topic=topic, partition=str(partition))
        return found


def serves(row: Partition) -> bool:
    """Whether offsets of the partition mean something: its log is open here."""
    return bool(row.state == SlotState.SLOT_ONLINE)


def partition_families(rows: Rows, named: set[str], sizes: LogSizes, labels: PartitionLabels) -> Iterator[Family]:
    """What is told of each partition of the topics that have names; of the others the sums."""
    counts: list[Sample] = [("", Labels(topic=topic), len(found)) for topic, found in rows.items() if topic in named]
    others = sum(len(found) for topic, found in rows.items() if topic not in named)
    if others:
        counts.append(("", Labels(topic=OTHER), others))
    yield Family(METRICS["kafka_topic_partitions"], counts)
    shown = [
        (row, labels(topic, row.partition), sizes.of(row))
        for topic, found in rows.items()
        if topic in named
        for row in found
    ]
    prefix = "kafka_topic_partition_"
    yield Family(METRICS[prefix + "leader"], [("", one, row.leader_id) for row, one, _ in shown])
    preferred: list[Sample] = [("", one, int(row.leader_id == row.preferred_id)) for row, one, _ in shown]
    yield Family(METRICS[prefix + "leader_is_preferred"], preferred)
    yield Family(METRICS[prefix + "replicas"], [("", one, row.replicas) for row, one, _ in shown])
    yield Family(METRICS[prefix + "in_sync_replica"], [("", one, row.in_sync) for row, one, _ in shown])
    under: list[Sample] = [("", one, int(row.in_sync < row.replicas)) for row, one, _ in shown]
    yield Family(METRICS[prefix + "under_replicated_partition"], under)
    yield from _min_in_sync(rows, named, [(row, one) for row, one, _ in shown])
    served = [(row, one, size) for row, one, size in shown if serves(row)]
    yield Family(METRICS[prefix + "current_offset"], [("", one, row.high_watermark) for row, one, _ in served])
    yield Family(METRICS[prefix + "oldest_offset"], [("", one, row.log_start_offset) for row, one, _ in served])
    yield Family(METRICS["kafka_log_log_logstartoffset"], [("", one, row.log_start_offset) for row, one, _ in served])
    yield Family(METRICS["kafka_log_log_logendoffset"], [("", one, row.log_end_offset) for row, one, _ in served])
    measured = [(one, size) for _, one, size in served if size is not None]
    yield Family(METRICS["kafka_log_log_size"], [("", one, size.size_bytes) for one, size in measured])
    yield Family(METRICS["kafka_log_log_numlogsegments"], [("", one, size.segments) for one, size in measured])
    yield Family(METRICS["odradek_topic_stored_bytes"], list(_stored(rows, named, sizes)))


def _min_in_sync(rows: Rows, named: set[str], shown: Sequence[tuple[Partition, Labels]]) -> Iterator[Family]:
    """Under and at min.insync.replicas: sums over all series are those of the broker, so that a dashboard misses none."""
    rest = [row for topic, found in rows.items() if topic not in named for row in found]
    for name, meant in (
        ("underminisr", lambda row: row.in_sync < _least_in_sync(row)),
        ("atminisr", lambda row: row.in_sync == _least_in_sync(row)),
    ):
        samples: list[Sample] = [("", one, int(_leads_here(row) and meant(row))) for row, one in shown]
        if rest:
            samples.append(("", OTHER_PARTITIONS, sum(_leads_here(row) and meant(row) for row in rest)))
        yield Family(METRICS[f"kafka_cluster_partition_{name}"], samples)


def _least_in_sync(row: Partition) -> int:
    """Which min.insync.replicas counts: of no more replicas than there are, as in Kafka 4."""
    return min(row.min_in_sync, row.replicas)


def _leads_here(row: Partition) -> bool:
    return bool(row.leads) and serves(row)


def _stored(rows: Rows, named: set[str], sizes: LogSizes) -> Iterator[Sample]:
    others = 0
    for topic, found in rows.items():
        size = stored_bytes(found, sizes)
        if topic not in named:
            others += size or 0
        elif size is not None:
            yield "", Labels(topic=topic), size
    if others:
        yield "", Labels(topic=OTHER), others


def stored_bytes(rows: Sequence[Partition], sizes: LogSizes) -> int | None:
    """Bytes of a topic's logs that are open here; None while some are not known."""
    found: list[LogSize | None] = [sizes.of(row) for row in rows if serves(row)]
    if any(size is None for size in found):
        return None
    return sum(size.size_bytes for size in found if size is not None)


def cluster_families(rows: Rows, broker: Address) -> Iterator[Family]:
    """The cluster: this broker alone, which is its controller."""
    everything = [row for found in rows.values() for row in found]
    yield single("kafka_brokers", 1)
    info = Labels(id=str(broker.broker_id), address=broker.address)
    yield Family(METRICS["kafka_broker_info"], [("", info, 1)])
    prefix = "kafka_controller_kafkacontroller_"
    yield single(prefix + "activecontrollercount", 1)
    offline = sum(row.leader_id < 0 or row.state == SlotState.SLOT_OFFLINE for row in everything)
    yield single(prefix + "offlinepartitionscount", offline)
    yield single(prefix + "globaltopiccount", len(rows))
    yield single(prefix + "globalpartitioncount", len(everything))


def broker_families(rows: Rows, shm: SharedMemory, places: Sequence[Place]) -> Iterator[Family]:
    """What this broker has of them."""
    everything = [row for found in rows.values() for row in found]
    led = [row for row in everything if _leads_here(row)]
    prefix = "kafka_server_replicamanager_"
    yield single(prefix + "leadercount", len(led))
    yield single(prefix + "partitioncount", sum(row.state != SlotState.SLOT_REMOTE for row in everything))
    yield single(prefix + "underreplicatedpartitions", sum(row.in_sync < row.replicas for row in led))
    yield single(prefix + "underminisrpartitioncount", sum(row.in_sync < _least_in_sync(row) for row in led))
    yield single(prefix + "atminisrpartitioncount", sum(row.in_sync == _least_in_sync(row) for row in led))
    yield single(prefix + "offlinereplicacount", sum(row.state == SlotState.SLOT_OFFLINE for row in everything))
    failed = sum(shm.log_dir_offline(number) for number in range(shm.log_dir_count))
    yield single("kafka_log_logmanager_offlinelogdirectorycount", failed)
    yield single("kafka_server_kafkaserver_brokerstate", SHUTTING_DOWN if shm.stopping else RUNNING)


def log_dir_families(shm: SharedMemory, log_dirs: Sequence[Path]) -> Iterator[Family]:
    """Room, failures, and how the last start went, of each log directory."""
    labels = [Labels(log_dir=str(path)) for path in log_dirs]
    loading = shm.loading_dirs
    for name, word in (
        ("odradek_recovery_bytes", "bytes_to_recover"),
        ("odradek_recovered_bytes", "bytes_recovered"),
        ("odradek_recovery_logs", "logs"),
        ("odradek_recovered_logs", "logs_done"),
        ("odradek_recovery_truncated_bytes", "truncated_bytes"),
    ):
        yield Family(METRICS[name], [("", one, row[word]) for one, row in zip(labels, loading, strict=True)])
    online: list[Sample] = [("", one, int(not shm.log_dir_offline(n))) for n, one in enumerate(labels)]
    yield Family(METRICS["odradek_log_dir_online"], online)
    disks = [(one, *shm.disk(number)) for number, one in enumerate(labels)]
    yield Family(METRICS["odradek_log_dir_full_state"], [("", one, int(state)) for one, state, *_ in disks])
    seen = [disk for disk in disks if disk[2] >= 0]  # the cleaner has looked
    yield Family(METRICS["odradek_log_dir_free_bytes"], [("", one, free) for one, _, free, _, _ in seen])
    yield Family(METRICS["odradek_log_dir_total_bytes"], [("", one, total) for one, _, _, total, _ in seen])
    yield Family(METRICS["odradek_log_dir_full_total"], [("", one, times) for one, _, _, _, times in disks])


def producer_families(shm: SharedMemory) -> Iterator[Family]:
    """The memory for the state of idempotent producers, and whom it had no room for."""
    state = shm.producer_state
    yield single("odradek_producer_state_bytes", state["used_bytes"])
    yield single("odradek_producer_state_max_bytes", state["max_bytes"])
    yield single("odradek_producer_state_producers", state["producers"])
    for name, reasons in _PRODUCER_EVENTS.items():
        samples: list[Sample] = [("", Labels(reason=reason), state[word]) for reason, word in reasons.items()]
        yield Family(METRICS[name], samples)


def not_ready(shm: SharedMemory, places: Sequence[Place]) -> str | None:
    """Why the broker is not to be sent requests now; None if it is ready."""
    if shm.stopping:
        return "the broker stops"
    if not any(place.kind == ProcessKind.WORKER and place.state == ProcessState.SERVING for place in places):
        return "no worker serves"
    for place in places:
        if place.kind == ProcessKind.COORDINATOR and place.state != ProcessState.SERVING:
            return f"the coordinator is {place.state.name.lower()}"
    return None
