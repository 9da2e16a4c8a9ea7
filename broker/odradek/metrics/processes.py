"""Families about the broker's processes, from the process table, /proc, and the meter pages.

Pids come from the shared memory and are checked in /proc: the process must be the supervisor or a child of it.
"""

import os
import resource
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from odradek._ext.shm.layout import ProcessKind, ProcessState
from odradek._ext.shm.replication_quota import QuotaSide, byte_rate, total_bytes
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.metrics import pages
from odradek.metrics.exposition import NO_LABELS, Family, Labels, Sample
from odradek.metrics.names import METRICS
from odradek.metrics.names.processes import LOOP_DELAYS_US

NAMES = {
    ProcessKind.SUPERVISOR: "supervisor",
    ProcessKind.WORKER: "worker",
    ProcessKind.COORDINATOR: "coordinator",
    ProcessKind.CLEANER: "cleaner",
    ProcessKind.REPLICATOR: "replicator",
    ProcessKind.REPORTER: "reporter",
}
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = resource.getpagesize()
_CLOSED = "closed_"
_PARKED = {
    "other": "parked_other",
    "Fetch": "parked_fetches",
    "Produce": "parked_produces",
    "forward": "parked_forwards",
}
PURGATORIES = ("Fetch", "Produce")
"""Kinds of `odradek_purgatory_size` for which Kafka has a purgatory too."""
_FIGURES = (  # the fields of ProcessFigures
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_open_fds",
    "process_max_fds",
    "process_start_time_seconds",
    "kafka_server_kafkaserver_linux_disk_read_bytes",
    "kafka_server_kafkaserver_linux_disk_write_bytes",
)
_OF_WORKER = {
    "odradek_sendfile_bytes_total": "sendfile_bytes",
    "odradek_socket_bytes_in_total": "socket_bytes_in",
    "odradek_socket_bytes_out_total": "socket_bytes_out",
    "odradek_unsent_bytes_total": "unsent_bytes",
    "odradek_bad_frames_total": "bad_frames",
    "odradek_idle_connections_memory_bytes": "kept_bytes",
    "odradek_idle_connections_memory_dropped_bytes_total": "forgotten_bytes",
    "odradek_tls_resumed_handshakes_total": "tls_resumed",
    "odradek_failed_authentications_total": "failed_authentications",
    "odradek_unauthenticated_connections_closed_total": "unauthenticated_closed",
}


_SESSIONS = {
    "numincrementalfetchsessions": "fetch_sessions",
    "numincrementalfetchpartitionscached": "fetch_session_partitions",
    "incrementalfetchsessionevictions_total": "fetch_sessions_evicted",
}


_REPLICAS = {"maxlag": "replica_max_lag", "failedpartitionscount": "replica_failed"}


SIDES = {QuotaSide.QUOTA_LEADER: "leader", QuotaSide.QUOTA_FOLLOWER: "follower"}


class ProcessPlace(NamedTuple):
    """A place of the process table (loaders are left out): the index of its meter page, its number within its kind, its
    state."""

    page: int
    kind: ProcessKind
    name: str
    ordinal: int
    state: ProcessState
    pid: int
    incarnation: int
    connections: int


class ProcessFigures(NamedTuple):
    """Figures of a process from /proc."""

    cpu_seconds: float
    resident_bytes: int
    virtual_bytes: int
    open_fds: int
    max_fds: float
    start_seconds: float
    disk_read_bytes: int
    disk_write_bytes: int


def places(shm: SharedMemory) -> list[ProcessPlace]:
    """Return all places except those of loaders."""
    result = []
    ordinals: dict[ProcessKind, int] = {}
    for info in shm.processes():
        ordinal = ordinals[info.kind] = ordinals.get(info.kind, -1) + 1
        if info.kind != ProcessKind.LOADER:
            name = NAMES[info.kind]
            result.append(
                ProcessPlace(
                    info.index, info.kind, name, ordinal, info.state, info.pid, info.incarnation, info.connections
                )
            )
    return result


@cache
def _boot_seconds() -> float:
    """Return the boot time of the machine by the wall clock; cached. /proc/stat cannot be read under ProcSubset=pid."""
    return round(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME), 2)


def read_process(pid: int, supervisor: int, boot_seconds: float) -> ProcessFigures | None:
    """Return figures of a process of this broker from /proc; None if it has ended, or another process has the pid now.

    Raises OSError if /proc does not permit to read them.
    """
    try:
        place = Path("/proc") / str(pid)
        fields = (place / "stat").read_bytes().rpartition(b") ")[2].split()
        if pid != supervisor and int(fields[1]) != supervisor:
            return None
        with os.scandir(place / "fd") as fds:
            open_fds = sum(1 for _ in fds)
        limits = (place / "limits").read_text()
        disk = dict(line.split(": ") for line in (place / "io").read_text().splitlines())
    except (FileNotFoundError, ProcessLookupError):
        return None
    soft = next(line.split()[3] for line in limits.splitlines() if line.startswith("Max open files"))
    return ProcessFigures(
        cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
        resident_bytes=int(fields[21]) * _PAGE_BYTES,
        virtual_bytes=int(fields[20]),
        open_fds=open_fds,
        max_fds=float("inf") if soft == "unlimited" else float(soft),
        start_seconds=round(boot_seconds + int(fields[19]) / _TICKS, 2),
        disk_read_bytes=int(disk["read_bytes"]),
        disk_write_bytes=int(disk["write_bytes"]),
    )


def families(shm: SharedMemory, places: Iterable[ProcessPlace]) -> Iterator[Family]:
    """Yield the families of all processes: figures from /proc, up, restarts."""
    boot = _boot_seconds()
    samples: dict[str, list[Sample]] = {name: [] for name in _FIGURES}
    samples |= {"odradek_process_up": [], "odradek_process_restarts_total": []}
    supervisor = os.getppid()
    for place in places:
        labels = Labels(process=place.name, ordinal=str(place.ordinal))
        figures = read_process(place.pid, supervisor, boot) if place.state != ProcessState.DEAD and place.pid else None
        for name, value in zip(_FIGURES, figures or (), strict=False):
            samples[name].append(("", labels, value))
        samples["odradek_process_up"].append(("", labels, int(place.state == ProcessState.SERVING)))
        samples["odradek_process_restarts_total"].append(("", labels, max(0, place.incarnation - 1)))
    for name, values in samples.items():
        yield Family(METRICS[name], values)


def _tls_families(counters: Mapping[int, Mapping[str, int]]) -> Iterator[Family]:
    """The families of TLS handshakes. :param counters: of the workers, by ordinal."""
    handshakes: list[Sample] = []
    seconds: list[Sample] = []
    for worker, words in counters.items():
        old = words["tls_1_2"]
        for version, number in (("TLSv1.2", old), ("TLSv1.3", words["tls_handshakes"] - old)):
            handshakes.append(("", Labels(worker=str(worker), version=version), number))
        seconds.append(("", Labels(worker=str(worker)), words["tls_handshake_us"] / 1e6))
    yield Family(METRICS["odradek_tls_handshakes_total"], handshakes)
    yield Family(METRICS["odradek_tls_handshake_seconds_total"], seconds)


def worker_families(shm: SharedMemory, places: Iterable[ProcessPlace]) -> Iterator[Family]:
    """Yield the families of workers: sockets, event loops, and requests that wait."""
    workers = [place for place in places if place.kind == ProcessKind.WORKER]
    labels = {place.page: Labels(worker=str(place.ordinal)) for place in workers}
    words = {place.page: pages.counters(shm, place.page) for place in workers}
    yield Family(METRICS["odradek_worker_connections"], [("", labels[w.page], w.connections) for w in workers])
    busy: list[Sample] = [("", labels[index], counters["busy_us"] / 1e6) for index, counters in words.items()]
    yield Family(METRICS["odradek_worker_busy_seconds_total"], busy)
    for name, word in _OF_WORKER.items():
        yield Family(METRICS[name], [("", labels[index], counters[word]) for index, counters in words.items()])
    yield from _tls_families({place.ordinal: words[place.page] for place in workers})
    closed: list[Sample] = [
        ("", Labels(worker=str(place.ordinal), reason=word.removeprefix(_CLOSED)), value)
        for place in workers
        for word, value in words[place.page].items()
        if word.startswith(_CLOSED)
    ]
    yield Family(METRICS["odradek_connections_closed_total"], closed)
    parked: list[Sample] = [
        ("", Labels(worker=str(place.ordinal), kind=kind), words[place.page][word])
        for place in workers
        for kind, word in _PARKED.items()
    ]
    yield Family(METRICS["odradek_purgatory_size"], parked)
    waiting: list[Sample] = [
        ("", Labels(delayedoperation=kind), sum(counters[_PARKED[kind]] for counters in words.values()))
        for kind in PURGATORIES
    ]
    yield Family(METRICS["kafka_server_delayedoperationpurgatory_purgatorysize"], waiting)
    for name, word in _SESSIONS.items():
        yield single(f"kafka_server_fetchsessioncache_{name}", sum(counters[word] for counters in words.values()))
    delays = [sample for place in workers for sample in _delays(shm, place)]
    yield Family(METRICS["odradek_worker_loop_delay_seconds"], delays)


def late_families(shm: SharedMemory, places: Iterable[ProcessPlace]) -> Iterator[Family]:
    """Yield the family of requests that were not executed because their clients had closed the connection long before."""
    kinds = (ProcessKind.WORKER, ProcessKind.COORDINATOR)
    late: list[Sample] = [
        ("", Labels(process=place.name, ordinal=str(place.ordinal)), pages.counters(shm, place.page)["late_requests"])
        for place in places
        if place.kind in kinds
    ]
    yield Family(METRICS["odradek_late_requests_total"], late)


def replica_families(shm: SharedMemory, places: Iterable[ProcessPlace]) -> Iterator[Family]:
    """Yield how the partitions that this broker follows are fetched. Without a cluster, all values are 0."""
    words = [pages.counters(shm, place.page) for place in places if place.kind == ProcessKind.REPLICATOR]
    for name, word in _REPLICAS.items():
        yield single(f"kafka_server_replicafetchermanager_{name}", sum(counters[word] for counters in words))
    for side, name in SIDES.items():
        yield single(f"kafka_server_{name}replication_byte_rate", byte_rate(side))
    throttled: list[Sample] = [("", Labels(role=name), total_bytes(side)) for side, name in SIDES.items()]
    yield Family(METRICS["odradek_throttled_replication_bytes_total"], throttled)


def _delays(shm: SharedMemory, place: ProcessPlace) -> Iterator[Sample]:
    times = pages.loop_delay(shm, place.page)
    worker = str(place.ordinal)
    for bound_us in LOOP_DELAYS_US:
        count = sum(times.buckets[: bound_us.bit_length()])  # bucket i: shorter than 2**i
        yield "_bucket", Labels(worker=worker, le=repr(bound_us / 1e6)), count
    total = sum(times.buckets)
    yield "_bucket", Labels(worker=worker, le="+Inf"), total
    yield "_sum", Labels(worker=worker), times.sum_us / 1e6
    yield "_count", Labels(worker=worker), total


def idle_share(before: Mapping[int, int], now: Mapping[int, int], elapsed_us: float) -> float | None:
    """Return the fraction of the time in which the workers' loops were idle, 0 to 1; None without earlier values.

    :param before: busy microseconds by page, `elapsed_us` ago. :param now: the current ones.
    """
    shares = [(now[page] - before[page]) / elapsed_us for page in now if page in before] if elapsed_us > 0 else []
    return max(0.0, min(1.0, 1 - sum(shares) / len(shares))) if shares else None


def single(name: str, value: float) -> Family:
    """Return a family with one sample without labels."""
    return Family(METRICS[name], [("", NO_LABELS, value)])
