"""Families about topics, partitions, the broker and its log directories, from the slots and the header of the shared memory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import odradek._ext.shm.brokers as brokers
from odradek._ext.shm.layout import ProcessKind, ProcessState
from odradek._ext.shm.overview import Partition
from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.shm.slot import SlotState
from odradek.metrics.exposition import Family, Labels, Sample
from odradek.metrics.log_sizes import LogSize, LogSizes
from odradek.metrics.names import METRICS
from odradek.metrics.processes import ProcessPlace, single
from odradek.topic_partition import TopicPartition

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
"""{topic: its partitions}."""


class Address(NamedTuple):
    """The id of a broker and the address at which clients connect to it."""

    broker_id: int
    address: str


class PartitionLabels:
    """A cache of the labels of partitions, kept between scrapes. :param most: its maximum size; a full cache is cleared."""

    def __init__(self, most: int = 1 << 17) -> None:
        self._most = most
        self._cache: dict[TopicPartition, Labels] = {}

    def __call__(self, topic: str, partition: int) -> Labels:
        labels = self._cache.get((topic, partition))
        if labels is None:
            if len(self._cache) >= self._most:
                self._cache.clear()
            labels = self._cache[topic, partition] = Labels(topic=topic, partition=str(partition))
        return labels


def serves(row: Partition) -> bool:
    """Whether the partition's log is open on this broker, so that its offsets are valid."""
    return bool(row.state == SlotState.SLOT_ONLINE)


def partition_families(rows: Rows, named: set[str], sizes: LogSizes, labels: PartitionLabels) -> Iterator[Family]:
    """Yield the families of the partitions of named topics; all other topics are summed as OTHER."""
    counts: list[Sample] = [
        ("", Labels(topic=topic), len(partitions)) for topic, partitions in rows.items() if topic in named
    ]
    others = sum(len(partitions) for topic, partitions in rows.items() if topic not in named)
    if others:
        counts.append(("", Labels(topic=OTHER), others))
    yield Family(METRICS["kafka_topic_partitions"], counts)
    shown = [
        (row, labels(topic, row.partition), sizes.of(row))
        for topic, partitions in rows.items()
        if topic in named
        for row in partitions
    ]
    prefix = "kafka_topic_partition_"
    yield Family(METRICS[prefix + "leader"], [("", place, row.leader_id) for row, place, _ in shown])
    preferred: list[Sample] = [("", place, int(row.leader_id == row.preferred_id)) for row, place, _ in shown]
    yield Family(METRICS[prefix + "leader_is_preferred"], preferred)
    yield Family(METRICS[prefix + "replicas"], [("", place, row.replicas) for row, place, _ in shown])
    yield Family(METRICS[prefix + "in_sync_replica"], [("", place, row.in_sync) for row, place, _ in shown])
    under: list[Sample] = [("", place, int(row.in_sync < row.replicas)) for row, place, _ in shown]
    yield Family(METRICS[prefix + "under_replicated_partition"], under)
    yield from _min_in_sync(rows, named, [(row, place) for row, place, _ in shown])
    lags: list[Sample] = [("", place, row.lag) for row, place, _ in shown if row.lag >= 0]
    yield Family(METRICS["kafka_server_fetcherlagmetrics_consumerlag"], lags)
    served = [(row, place, size) for row, place, size in shown if serves(row)]
    yield Family(METRICS[prefix + "current_offset"], [("", place, row.high_watermark) for row, place, _ in served])
    yield Family(METRICS[prefix + "oldest_offset"], [("", place, row.log_start_offset) for row, place, _ in served])
    yield Family(
        METRICS["kafka_log_log_logstartoffset"], [("", place, row.log_start_offset) for row, place, _ in served]
    )
    yield Family(METRICS["kafka_log_log_logendoffset"], [("", place, row.log_end_offset) for row, place, _ in served])
    measured = [(place, size) for _, place, size in served if size is not None]
    yield Family(METRICS["kafka_log_log_size"], [("", place, size.size_bytes) for place, size in measured])
    yield Family(METRICS["kafka_log_log_numlogsegments"], [("", place, size.segments) for place, size in measured])
    yield Family(METRICS["odradek_topic_stored_bytes"], list(_stored(rows, named, sizes)))


def settings_families(settings: Mapping[str, tuple[int, int, int]]) -> Iterator[Family]:
    """Yield the families of settings of topics. :param settings: (retention in ms and in bytes, largest batch in bytes)."""
    known = [(Labels(topic=topic), *values) for topic, values in sorted(settings.items())]
    seconds: list[Sample] = [("", topic, ms / 1000 if ms >= 0 else -1) for topic, ms, _, _ in known]
    yield Family(METRICS["odradek_topic_retention_seconds"], seconds)
    yield Family(METRICS["odradek_topic_retention_bytes"], [("", topic, size) for topic, _, size, _ in known])
    yield Family(METRICS["odradek_topic_max_message_bytes"], [("", topic, size) for topic, _, _, size in known])


def _min_in_sync(rows: Rows, named: set[str], shown: Sequence[tuple[Partition, Labels]]) -> Iterator[Family]:
    """Yield the families of partitions under and at min.insync.replicas.

    The sum over all series is the broker's number, so that a dashboard misses no partition.
    """
    rest = [row for topic, partitions in rows.items() if topic not in named for row in partitions]
    conditions: tuple[tuple[str, Callable[[Partition], bool]], ...] = (
        ("underminisr", lambda row: row.in_sync < _least_in_sync(row)),
        ("atminisr", lambda row: row.in_sync == _least_in_sync(row)),
    )
    for name, condition in conditions:
        samples: list[Sample] = [("", place, int(_leads_here(row) and condition(row))) for row, place in shown]
        if rest:
            samples.append(("", OTHER_PARTITIONS, sum(_leads_here(row) and condition(row) for row in rest)))
        yield Family(METRICS[f"kafka_cluster_partition_{name}"], samples)


def _least_in_sync(row: Partition) -> int:
    """Return the effective min.insync.replicas: at most the number of replicas, as in Kafka 4."""
    return min(row.min_in_sync, row.replicas)


def _leads_here(row: Partition) -> bool:
    return bool(row.leads) and serves(row)


def _stored(rows: Rows, named: set[str], sizes: LogSizes) -> Iterator[Sample]:
    others = 0
    for topic, partitions in rows.items():
        size = stored_bytes(partitions, sizes)
        if topic not in named:
            others += size or 0
        elif size is not None:
            yield "", Labels(topic=topic), size
    if others:
        yield "", Labels(topic=OTHER), others


def stored_bytes(rows: Sequence[Partition], sizes: LogSizes) -> int | None:
    """Return the bytes of a topic's logs that are open on this broker; None until all of them are measured."""
    log_sizes: list[LogSize | None] = [sizes.of(row) for row in rows if serves(row)]
    if any(size is None for size in log_sizes):
        return None
    return sum(size.size_bytes for size in log_sizes if size is not None)


def cluster_families(rows: Rows, broker: Address, listener: str) -> Iterator[Family]:
    """Yield the families of the cluster. As in Kafka, only the active controller reports the numbers of the controller.

    :param listener: the name of the listener whose addresses identify the brokers.
    """
    clustered = brokers.clustered()
    live = list(_live_brokers(listener)) if clustered else [broker]
    active = not clustered or brokers.controller()[0] == broker.broker_id
    yield single("kafka_brokers", len(live))
    infos: list[Sample] = [
        ("", Labels(id=str(live_broker.broker_id), address=live_broker.address), 1) for live_broker in live
    ]
    yield Family(METRICS["kafka_broker_info"], infos)
    prefix = "kafka_controller_kafkacontroller_"
    yield single(prefix + "activecontrollercount", int(active))
    # A partition without replicas is a log that a former topic left here: the controller has not published it.
    everything = [row for partitions in rows.values() for row in partitions if row.replicas] if active else []
    ids = {live_broker.broker_id for live_broker in live}
    if clustered:
        offline = sum(row.leader_id not in ids for row in everything)
    else:
        offline = sum(row.leader_id < 0 or row.state == SlotState.SLOT_OFFLINE for row in everything)
    yield single(prefix + "offlinepartitionscount", offline)
    yield single(
        prefix + "preferredreplicaimbalancecount", sum(row.leader_id != row.preferred_id for row in everything)
    )
    yield single(prefix + "activebrokercount", len(live) if active else 0)
    yield single(prefix + "globaltopiccount", sum(map(bool, rows.values())) if active else 0)
    yield single(prefix + "globalpartitioncount", len(everything))


def _live_brokers(listener: str) -> Iterator[Address]:
    """Yield the live brokers with their addresses of this listener, or of their first one."""
    for info in brokers.brokers():
        endpoint = info.endpoint(listener) or next(iter(info.endpoints), None)
        host = "" if endpoint is None else f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        yield Address(info.id, "" if endpoint is None else f"{host}:{endpoint.port}")


def broker_families(rows: Rows, shm: SharedMemory, places: Sequence[ProcessPlace]) -> Iterator[Family]:
    """Yield the families of this broker's partitions and of its state."""
    everything = [row for partitions in rows.values() for row in partitions]
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
    """Yield the families of log directories: free space, failures, and the progress of the last start."""
    labels = [Labels(log_dir=str(path)) for path in log_dirs]
    loading = shm.loading_dirs
    for name, word in (
        ("odradek_recovery_bytes", "bytes_to_recover"),
        ("odradek_recovered_bytes", "bytes_recovered"),
        ("odradek_recovery_logs", "logs"),
        ("odradek_recovered_logs", "logs_done"),
        ("odradek_recovery_truncated_bytes", "truncated_bytes"),
    ):
        yield Family(METRICS[name], [("", log_dir, row[word]) for log_dir, row in zip(labels, loading, strict=True)])
    online: list[Sample] = [("", log_dir, int(not shm.log_dir_offline(n))) for n, log_dir in enumerate(labels)]
    yield Family(METRICS["odradek_log_dir_online"], online)
    disks = [(log_dir, *shm.disk(number)) for number, log_dir in enumerate(labels)]
    yield Family(METRICS["odradek_log_dir_full_state"], [("", log_dir, int(state)) for log_dir, state, *_ in disks])
    measured = [disk for disk in disks if disk[2] >= 0]  # -1 until the cleaner has measured the disk
    yield Family(METRICS["odradek_log_dir_free_bytes"], [("", log_dir, free) for log_dir, _, free, _, _ in measured])
    yield Family(METRICS["odradek_log_dir_total_bytes"], [("", log_dir, total) for log_dir, _, _, total, _ in measured])
    yield Family(METRICS["odradek_log_dir_full_total"], [("", log_dir, times) for log_dir, _, _, _, times in disks])


def producer_families(shm: SharedMemory) -> Iterator[Family]:
    """Yield the families of the state of idempotent producers: its memory, evicted producers, refused batches."""
    state = shm.producer_state
    yield single("odradek_producer_state_bytes", state["used_bytes"])
    yield single("odradek_producer_state_max_bytes", state["max_bytes"])
    yield single("odradek_producer_state_producers", state["producers"])
    for name, reasons in _PRODUCER_EVENTS.items():
        samples: list[Sample] = [("", Labels(reason=reason), state[word]) for reason, word in reasons.items()]
        yield Family(METRICS[name], samples)


def not_ready(shm: SharedMemory, places: Sequence[ProcessPlace]) -> str | None:
    """Return the reason why the broker is not ready for requests; None if it is ready."""
    if shm.stopping:
        return "the broker is stopping"
    if not any(place.kind == ProcessKind.WORKER and place.state == ProcessState.SERVING for place in places):
        return "no worker is up"
    for place in places:
        if place.kind == ProcessKind.COORDINATOR and place.state != ProcessState.SERVING:
            return f"the coordinator is {place.state.name.lower()}"
    return None
