"""Families about the quotas of clients, from their buckets in the shared memory."""

from collections.abc import Iterator
from typing import NamedTuple

from odradek._ext.shm import client_quotas
from odradek.metrics.exposition import Family, Labels
from odradek.metrics.names import METRICS
from odradek.metrics.processes import single
from odradek.quotas.quotas import CONNECTIONS, OF_REQUESTS, US_OF_PERCENT

_RATES = ("kafka_server_produce_byte_rate", "kafka_server_fetch_byte_rate", "kafka_server_request_request_time")
_THROTTLES = (
    "kafka_server_produce_throttle_time",
    "kafka_server_fetch_throttle_time",
    "kafka_server_request_throttle_time",
)
_UNITS = (1.0, 1.0, US_OF_PERCENT)
OTHER = "other"
"""The client id of a bucket that clients without a place in the table share."""


class Bucket(NamedTuple):
    """A row of `client_quotas.buckets`."""

    kind: int
    user: bytes | None
    client_id: bytes | None
    limit: float
    rate: float
    throttles: int
    throttled_ms: int
    remaining_ms: int
    total: int


def families(most: int) -> Iterator[Family]:
    """Yield the families. :param most: the largest number of clients with series of their own: those that were throttled
    longest."""
    counts = client_quotas.counters()
    yield single("odradek_quota_buckets", counts["used"])
    yield single("odradek_quota_buckets_limit", counts["room"])
    yield single("odradek_quota_overflows_total", counts["overflows"])
    yield single("odradek_quota_evictions_total", counts["evicted"])
    throttles = zip((*OF_REQUESTS, CONNECTIONS), (*counts["throttles"], counts["connections"]), strict=True)
    yield Family(
        METRICS["odradek_quota_throttled_requests_total"],
        [("", Labels(quota=key), number) for key, number in throttles],
    )
    buckets = [Bucket(*row) for row in client_quotas.buckets()]
    yield single("odradek_quota_throttled_clients", sum(bucket.remaining_ms > 0 for bucket in buckets))
    buckets.sort(key=lambda bucket: (bucket.remaining_ms, bucket.throttled_ms, bucket.rate), reverse=True)
    shown = [(bucket, _labels(bucket)) for bucket in buckets[:most]]
    for kind, unit in enumerate(_UNITS):
        of_kind = [(bucket, labels) for bucket, labels in shown if bucket.kind == kind]
        yield Family(METRICS[_RATES[kind]], [("", Labels(**labels), bucket.rate / unit) for bucket, labels in of_kind])
        yield Family(
            METRICS[_THROTTLES[kind]], [("", Labels(**labels), bucket.remaining_ms) for bucket, labels in of_kind]
        )
    yield Family(
        METRICS["odradek_quota_limit"],
        [("", _of_quota(bucket, labels), bucket.limit / _UNITS[bucket.kind]) for bucket, labels in shown],
    )
    yield Family(
        METRICS["odradek_quota_throttled_seconds_total"],
        [("", _of_quota(bucket, labels), bucket.throttled_ms / 1000) for bucket, labels in shown],
    )


def _labels(bucket: Bucket) -> dict[str, str]:
    if bucket.user == b"" and bucket.client_id == b"":
        return {"client_id": OTHER}
    names = (("user", bucket.user), ("client_id", bucket.client_id))
    return {label: name.decode("utf-8", "replace") for label, name in names if name is not None}


def _of_quota(bucket: Bucket, labels: dict[str, str]) -> Labels:
    return Labels(quota=OF_REQUESTS[bucket.kind], **labels)
