"""Families about requests and usage, from the meter pages and from the sums of the ledger."""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache

from odradek._ext.shm.replication_quota import QuotaSide, reassigned_bytes
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.metrics import ledger as column
from odradek.metrics import pages
from odradek.metrics.exposition import NO_LABELS, Family, Labels, Sample
from odradek.metrics.ledger import Ledger
from odradek.metrics.names import METRICS
from odradek.metrics.names.traffic import BATCH_BYTES, QUANTILES
from odradek.metrics.processes import ProcessPlace
from odradek.protocol.errors import ErrorCode
from odradek.protocol.registry import UnknownApiError, by_key
from odradek.shm.published_jwks import Provider

PRODUCE, FETCH = 0, 1
UNKNOWN = "unknown"
"""Kafka's label value for clients that did not send their software name."""
WINDOW_MS = 300_000
SNAPSHOT_EVERY_MS = 15_000
_MS = 1000  # microseconds
_PHASES = {
    "queue": "kafka_network_requestmetrics_requestqueuetimems",
    "local": "kafka_network_requestmetrics_localtimems",
    "remote": "kafka_network_requestmetrics_remotetimems",
    "send": "kafka_network_requestmetrics_responsesendtimems",
    "total": "kafka_network_requestmetrics_totaltimems",
}
_TOPIC_SUMS = (
    ("bytesin", PRODUCE, column.BYTES_IN),
    ("bytesout", FETCH, column.BYTES_OUT),
    ("messagesin", PRODUCE, column.RECORDS_IN),
    ("totalproducerequests", PRODUCE, column.REQUESTS),
    ("totalfetchrequests", FETCH, column.REQUESTS),
    ("failedproducerequests", PRODUCE, column.ERRORS),
    ("failedfetchrequests", FETCH, column.ERRORS),
)
_COUNTED = {
    "bytesrejected": "bytes_rejected",
    "replicationbytesin": "replication_bytes_in",
    "replicationbytesout": "replication_bytes_out",
}
_REASSIGNED = {
    "reassignmentbytesin": QuotaSide.QUOTA_FOLLOWER,
    "reassignmentbytesout": QuotaSide.QUOTA_LEADER,
}
_USAGE = (
    ("bytes_in", column.BYTES_IN),
    ("bytes_out", column.BYTES_OUT),
    ("records_in", column.RECORDS_IN),
    ("records_out", column.RECORDS_OUT),
    ("requests", column.REQUESTS),
    ("errors", column.ERRORS),
)

_ERROR_NAMES = {int(code): code.name for code in ErrorCode}

Histogram = tuple[int, ...]
TimesKey = tuple[int, str]
"""(API key, phase)."""


@cache
def api_name(key: int) -> str:
    """Return Kafka's name of an API; "" for usage that belongs to no request, "unknown" for an unknown key."""
    if key == pages.NO_API:
        return ""
    try:
        return by_key(key).name
    except UnknownApiError:
        return "unknown"


@cache
def error_name(code: int) -> str:
    """Return Kafka's name of an error; its number as text if it has no name here."""
    return _ERROR_NAMES.get(code, str(code))


class RequestTimes:
    """Histograms of the last five minutes: the current histograms minus those of five minutes ago. One per reporter."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, dict[TimesKey, Histogram]]] = deque()
        self.sums_us: dict[TimesKey, int] = {}
        self.now: dict[TimesKey, Histogram] = {}

    def read(self, shm: SharedMemory, places: Sequence[ProcessPlace], now_ms: int) -> None:
        """Read the current histograms of the pages; keep a snapshot every SNAPSHOT_EVERY_MS."""
        total: dict[TimesKey, list[int]] = {}
        self.sums_us = {}
        for place in places:
            for key, times in pages.request_times(shm, place.page).items():
                self.sums_us[key] = self.sums_us.get(key, 0) + times.sum_us
                known = total.get(key)
                total[key] = (
                    list(times.buckets) if known is None else [a + b for a, b in zip(known, times.buckets, strict=True)]
                )
        self.now = {key: tuple(buckets) for key, buckets in total.items()}
        if not self._kept or now_ms - self._kept[-1][0] >= SNAPSHOT_EVERY_MS:
            self._kept.append((now_ms, self.now))
        while len(self._kept) > 1 and self._kept[1][0] <= now_ms - WINDOW_MS:
            self._kept.popleft()

    def recent(self, key: TimesKey) -> Histogram:
        """Return the histogram of the last five minutes, or since the first read."""
        now = self.now[key]
        then = self._kept[0][1].get(key) if self._kept else None
        return now if then is None else tuple(new - old for new, old in zip(now, then, strict=True))


def quantile(buckets: Histogram, share: float) -> float:
    """Return the quantile `share` of a histogram in microseconds; NaN if the histogram is empty.

    Values are assumed to be spread evenly within their bucket, so the error is at most half of the bucket.
    """
    total = sum(buckets)
    if total <= 0:
        return float("nan")
    rank, passed = share * total, 0
    for power, count in enumerate(buckets):
        if count and passed + count >= rank:
            low = float(1 << power >> 1) if power else 0.0
            return low + (float(1 << power) - low) * (rank - passed) / count
        passed += count
    return float(1 << len(buckets))


def request_families(shm: SharedMemory, places: Sequence[ProcessPlace], times: RequestTimes) -> Iterator[Family]:
    """Yield the families of requests by version, errors by code, and times by phase.

    :param places: all processes, because the process that executes a request counts its errors.
    """
    requests: dict[tuple[int, int], int] = {}
    errors: dict[tuple[int, int], int] = {}
    for place in places:
        for key, count in pages.request_counts(shm, place.page).items():
            requests[key] = requests.get(key, 0) + count
        for key, count in pages.request_errors(shm, place.page).items():
            errors[key] = errors.get(key, 0) + count
    counted: list[Sample] = [
        ("", Labels(request=api_name(api), version=str(version)), n) for (api, version), n in requests.items()
    ]
    yield Family(METRICS["kafka_network_requestmetrics_requests_total"], counted)
    failed: list[Sample] = [
        ("", Labels(request=api_name(api), error=error_name(code)), n) for (api, code), n in errors.items()
    ]
    yield Family(METRICS["kafka_network_requestmetrics_errors_total"], failed)
    for phase, name in _PHASES.items():
        samples = [sample for key in times.now if key[1] == phase for sample in _summary(key, times)]
        yield Family(METRICS[name], samples)


def _summary(key: TimesKey, times: RequestTimes) -> Iterator[Sample]:
    request = api_name(key[0])
    recent = times.recent(key)
    for share in QUANTILES:
        yield "", Labels(request=request, quantile=f"{share:g}"), quantile(recent, share) / _MS
    yield "_sum", Labels(request=request), times.sums_us[key] / _MS
    yield "_count", Labels(request=request), sum(times.now[key])


def topic_families(sums: Ledger, words: Sequence[Mapping[str, int]]) -> Iterator[Family]:
    """Yield Kafka's BrokerTopicMetrics of the broker and of each topic. :param words: the counters of all pages."""
    for name, api, index in _TOPIC_SUMS:
        broker = sums.of_api.get((api, True))
        samples: list[Sample] = [("", NO_LABELS, broker[index] if broker is not None else 0)]
        samples += [
            ("", Labels(topic=topic), values[index]) for (topic, key), values in sums.of_topic.items() if key == api
        ]
        yield Family(METRICS[f"kafka_server_brokertopicmetrics_{name}_total"], samples)
    for name, word in _COUNTED.items():
        total = sum(counters[word] for counters in words)
        yield Family(METRICS[f"kafka_server_brokertopicmetrics_{name}_total"], [("", NO_LABELS, total)])
    for name, side in _REASSIGNED.items():
        yield Family(
            METRICS[f"kafka_server_brokertopicmetrics_{name}_total"], [("", NO_LABELS, reassigned_bytes(side))]
        )


def batch_families(
    shm: SharedMemory, places: Sequence[ProcessPlace], record_bytes: int, topics: Collection[str]
) -> Iterator[Family]:
    """Yield the sizes of all batches that producers sent, and the size of the largest appended batch of each topic.

    :param record_bytes: bytes of all records that producers sent: the sum of the sizes. :param topics: topics that have series.
    """
    sizes = [sum(column) for column in zip(*(pages.batch_sizes(shm, place.page) for place in places), strict=True)]
    counts = [(str(bound), sum(sizes[: bound.bit_length()])) for bound in BATCH_BYTES]  # number i: up to 2**i
    samples: list[Sample] = [("_bucket", Labels(le=bound), count) for bound, count in (*counts, ("+Inf", sum(sizes)))]
    samples += [("_sum", NO_LABELS, record_bytes), ("_count", NO_LABELS, sum(sizes))]
    yield Family(METRICS["odradek_produced_batch_bytes"], samples)
    largest: dict[str, int] = {}
    for place in places:
        for topic, size in pages.largest_batches(shm, place.page).items():
            name = topic if topic in topics else pages.OTHER
            largest[name] = max(largest.get(name, 0), size)
    named: list[Sample] = [("", Labels(topic=topic), size) for topic, size in sorted(largest.items())]
    yield Family(METRICS["odradek_topic_largest_batch_bytes"], named)


def usage_families(sums: Ledger) -> Iterator[Family]:
    """Yield usage by principal, client id, topic and API. Zeros are left out, except errors and throttle time of requests."""
    labels = {
        key: Labels(principal=key[0], client_id=key[1], topic=key[2] or "", api=api_name(key[3])) for key in sums.usage
    }
    for name, index in _USAGE:
        samples: list[Sample] = [
            ("", labels[key], values[index])
            for key, values in sums.usage.items()
            if values[index] or (index == column.ERRORS and values[column.REQUESTS])
        ]
        yield Family(METRICS[f"odradek_usage_{name}_total"], samples)
    throttled: list[Sample] = [
        ("", labels[key], values[column.THROTTLE_MS] / 1000)
        for key, values in sums.usage.items()
        if values[column.THROTTLE_MS] or (key[2] is None and values[column.REQUESTS])
    ]
    yield Family(METRICS["odradek_usage_throttle_seconds_total"], throttled)
    connected: dict[tuple[str, str], int] = {}
    for key, values in sums.usage.items():
        if values[column.CONNECTION_MS]:
            connected[key[:2]] = connected.get(key[:2], 0) + values[column.CONNECTION_MS]
    seconds: list[Sample] = [
        ("", Labels(principal=principal, client_id=client_id), ms / 1000)
        for (principal, client_id), ms in connected.items()
    ]
    yield Family(METRICS["odradek_usage_connection_seconds_total"], seconds)


def connection_families(
    shm: SharedMemory, places: Sequence[ProcessPlace], listeners: Sequence[str]
) -> Iterator[Family]:
    """Yield open connections by listener and worker, and by client software. :param listeners: names by index."""
    counts: list[Sample] = []
    software: list[Sample] = []
    for place in places:
        worker = str(place.ordinal)
        by_software = pages.software(shm, place.page)
        for index, connections in pages.listeners(shm, place.page).items():
            counts.append(("", Labels(listener=_listener(listeners, index), networkprocessor=worker), connections.open))
            named = sum(open_ for (_, _, listener), open_ in by_software.items() if listener == index)
            if connections.open > named:
                key = (UNKNOWN, UNKNOWN, index)
                by_software[key] = by_software.get(key, 0) + connections.open - named
        for (name, version, index), open_ in by_software.items():
            labels = Labels(
                clientsoftwarename=name,
                clientsoftwareversion=version,
                listener=_listener(listeners, index),
                networkprocessor=worker,
            )
            software.append(("", labels, open_))
    yield Family(METRICS["kafka_server_socket_server_metrics_connection_count"], counts)
    yield Family(METRICS["kafka_server_socket_server_metrics_connections"], software)


LOGIN_METRICS = {
    "succeeded": "kafka_server_socket_server_metrics_successful_authentication_total",
    "failed": "kafka_server_socket_server_metrics_failed_authentication_total",
    "renewed": "kafka_server_socket_server_metrics_successful_reauthentication_total",
    "renewal_failed": "kafka_server_socket_server_metrics_failed_reauthentication_total",
}
EXPIRED = "kafka_server_socket_server_metrics_expired_connections_killed_total"


def login_families(shm: SharedMemory, places: Sequence[ProcessPlace], listeners: Sequence[str]) -> Iterator[Family]:
    """Yield the ended logins, and the connections that outlived their session. :param listeners: names by index."""
    counts: dict[str, list[Sample]] = {metric: [] for metric in (*LOGIN_METRICS.values(), EXPIRED)}
    for place in places:
        worker = str(place.ordinal)
        for (index, mechanism, outcome), number in pages.logins(shm, place.page).items():
            labels = Labels(listener=_listener(listeners, index), mechanism=mechanism, networkprocessor=worker)
            counts[LOGIN_METRICS[outcome]].append(("", labels, number))
        for index, number in pages.expired_killed(shm, place.page).items():
            labels = Labels(listener=_listener(listeners, index), networkprocessor=worker)
            counts[EXPIRED].append(("", labels, number))
    for metric, samples in counts.items():
        yield Family(METRICS[metric], samples)


def provider_families(providers: Sequence[Provider]) -> Iterator[Family]:
    """Yield the state of the keys of identity providers, by the listeners that use them."""
    rows = [(listener, provider) for provider in providers for listener in provider.listeners]
    for name, value_of in _OF_PROVIDERS.items():
        yield Family(
            METRICS[name], [("", Labels(listener=listener), value_of(provider)) for listener, provider in rows]
        )


_OF_PROVIDERS: dict[str, Callable[[Provider], float]] = {
    "odradek_jwks_keys": lambda provider: len(provider.keys),
    "odradek_jwks_read_timestamp_seconds": lambda provider: provider.read_ms / 1000,
    "odradek_jwks_read_failures_total": lambda provider: provider.failures,
}


def _listener(listeners: Sequence[str], index: int) -> str:
    return listeners[index] if index < len(listeners) else str(index)
