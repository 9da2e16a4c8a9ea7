"""What a broker's metrics say about the quotas of clients: who is throttled now, and whether the table of clients is full."""

from collections.abc import Iterator
from typing import NamedTuple

from odradek.cli.finding import Finding, abbreviate
from odradek.cli.metrics_text import samples
from odradek.cli.output import span

LONG_MS = 5000
"""The remaining throttle time above which a throttled client is a finding: about half more than its limit was sent."""
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


def judge_quotas(text: str) -> Iterator[Finding]:
    """The findings about quotas in the text of a broker's metrics."""
    long = [client for client in throttled_clients(text) if client.remaining_ms > LONG_MS]
    if long:
        worst = long[0]
        yield Finding(
            "warning",
            f"{'client' if len(long) == 1 else 'clients'} {abbreviate(map(_name, long))}",
            f"the {worst.quota} of {worst.limit:,.0f} is exceeded; the client must wait for another "
            f"{span(int(worst.remaining_ms))}",
            "the requests of the client wait so long, and may exceed its time-outs",
            "let the client send or fetch less, or raise its quota (`odradek quota list`, `odradek quota set`)",
        )
    overflows = sum(value for name, _, value in samples(text) if name == "odradek_quota_overflows_total")
    if overflows > 0:
        yield Finding(
            "warning",
            "quotas",
            f"the table of clients was full {overflows:,.0f} times",
            "clients without a place in it share their quota with others of their address",
            "find out who sends requests with many client ids or users (`odradek usage`), and give them one quota by user "
            "instead of one for each client id",
        )


def _name(client: ThrottledClient) -> str:
    names = [name for name in (client.user, client.client_id) if name is not None]
    return "/".join(names) or "all"
