"""The clients that a broker throttles now, from its metrics."""

from typing import NamedTuple

from odradek.cli.inspection.metrics_text import samples

_RATES = {
    "kafka_server_produce_byte_rate": "producer_byte_rate",
    "kafka_server_fetch_byte_rate": "consumer_byte_rate",
    "kafka_server_request_request_time": "request_percentage",
}
_THROTTLES = {
    "kafka_server_produce_throttle_time": "producer_byte_rate",
    "kafka_server_fetch_throttle_time": "consumer_byte_rate",
    "kafka_server_request_throttle_time": "request_percentage",
}


class ThrottledClient(NamedTuple):
    """A client that is throttled now. The names are None if its quota does not tell users, or client ids, apart."""

    user: str | None
    client_id: str | None
    quota: str
    limit: float
    rate: float
    remaining_ms: float


def throttled_clients(text: str) -> list[ThrottledClient]:
    """The throttled clients, those that wait longest first. :param text: a broker's metrics."""
    limits: dict[tuple[str | None, ...], float] = {}
    rates: dict[tuple[str | None, ...], float] = {}
    waits: dict[tuple[str | None, ...], float] = {}
    for name, labels, value in samples(text):
        quota = _RATES.get(name) or _THROTTLES.get(name) or labels.get("quota")
        key = (labels.get("user"), labels.get("client_id"), quota)
        if name in _RATES:
            rates[key] = value
        elif name in _THROTTLES:
            waits[key] = value
        elif name == "odradek_quota_limit":
            limits[key] = value
    found = [
        ThrottledClient(key[0], key[1], str(key[2]), limits.get(key, 0.0), rates.get(key, 0.0), wait)
        for key, wait in waits.items()
        if wait > 0
    ]
    return sorted(found, key=lambda client: -client.remaining_ms)
