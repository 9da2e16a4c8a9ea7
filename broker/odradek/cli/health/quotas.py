"""Checks of `odradek doctor` on the quotas of clients, from a broker's metrics."""

from collections.abc import Iterator

from odradek.cli.framework.output import abbreviate, span
from odradek.cli.health.finding import Finding
from odradek.cli.inspection.metrics_text import samples
from odradek.cli.inspection.throttled_clients import ThrottledClient, throttled_clients

LONG_MS = 5000
"""The remaining throttle time above which a throttled client is a finding: about half more than its limit was sent."""


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
