"""Checks of `odradek doctor` on a broker's metrics: batches larger than consumers' fetch limits, certificates, logins, groups
that are behind."""

import time
from collections.abc import Iterator

from odradek.cli.framework.output import abbreviate
from odradek.cli.health.finding import Finding
from odradek.cli.health.groups import judge_late_groups
from odradek.cli.health.quotas import judge_quotas
from odradek.cli.health.security import SECURITY_METRICS, judge_security_sample
from odradek.cli.health.sizes import judge_sizes
from odradek.cli.health.tasks import judge_task_sample
from odradek.cli.inspection.metrics_text import samples
from odradek.cli.inspection.usage_source import Source, UsageError, UsageLocation

FETCH_BYTES = 1 << 20
"""Consumers' default limit of bytes of a partition in a response: `max.partition.fetch.bytes`; before 0.9
`fetch.message.max.bytes`."""
OLD_FETCHES = ("0", "1", "2")
"""Versions of Fetch whose response may contain only part of a batch, so that the client never receives all of it."""
METRICS_LISTENER = "METRICS"


def examine_metrics(address: str, timeout: float, status_judged: bool = False) -> list[Finding]:
    """All findings of the broker whose metrics.listener is at `address` (HOST:PORT). :param timeout: in seconds.
    :param status_judged: see `judge_metrics`."""
    try:
        text = Source(UsageLocation(address), timeout).metrics()
    except UsageError as error:
        return [
            Finding(
                "warning",
                "metrics",
                f"the metrics cannot be read: {error}",
                "what only the metrics contain, such as the sizes of batches and throttled clients, was not checked",
                "check that the broker's reporter runs (`odradek status`), that --metrics names its metrics.listener, and that "
                "--command-config has what this listener requires",
            )
        ]
    return [*judge_metrics(text, status_judged=status_judged), *judge_sizes(text, time.time()), *judge_quotas(text)]


def judge_metrics(text: str, now: float | None = None, status_judged: bool = False) -> Iterator[Finding]:
    """The findings in the text of a broker's metrics.

    :param now: Unix time in seconds; None: the present time. :param status_judged: the findings in the broker's status are
        known, which has more about the security of all listeners except the metrics listener.
    """
    now = time.time() if now is None else now
    large: dict[str, int] = {}
    old = False
    behind: dict[tuple[str, str], float] = {}
    members: dict[str, float] = {}
    for sample in samples(text):
        match sample:
            case "odradek_topic_largest_batch_bytes", {"topic": topic}, value if value > FETCH_BYTES:
                large[topic] = int(value)
            case name, labels, value if name in SECURITY_METRICS:
                if not status_judged or labels.get("listener") == METRICS_LISTENER:
                    yield from judge_security_sample(name, labels.get("listener", ""), value, now)
            case name, {"task": task}, value if name.startswith("odradek_task_"):
                if not status_judged:
                    yield from judge_task_sample(name, task, value)
            case "odradek_jwks_keys", {"listener": listener}, 0:
                yield Finding(
                    "error",
                    f"listener {listener}",
                    "the broker has no keys of the identity provider",
                    "no client can log in with OAUTHBEARER",
                    "see the ERROR lines of odradek.security in the broker's log, and check sasl.oauthbearer.jwks.endpoint.url",
                )
            case "kafka_network_requestmetrics_requests_total", {"request": "Fetch", "version": version}, value:
                old |= version in OLD_FETCHES and value > 0
            case "odradek_consumergroup_lag_seconds", {"consumergroup": group, "topic": topic}, value:
                behind[group, topic] = max(value, behind.get((group, topic), 0.0))
            case "kafka_consumergroup_members", {"consumergroup": group}, value:
                members[group] = value
    yield from judge_late_groups({place: age for place, age in behind.items() if members.get(place[0])})
    if not large:
        return
    reason = "a consumer needs memory for the whole batch, and receives each such batch in a separate response"
    if old:
        reason += (
            "; consumers older than 0.10.1, which this broker serves too, cannot read past a batch above their limit"
        )
    largest = max(large.values())
    names = sorted(large, key=lambda topic: -large[topic])
    yield Finding(
        "warning",
        f"{'topic' if len(large) == 1 else 'topics'} {abbreviate(names)}",
        f"batches of up to {largest:,} bytes were sent; consumers' default limit is {FETCH_BYTES:,} bytes per partition",
        reason,
        f"raise the consumers' limit to {largest:,} bytes (max.partition.fetch.bytes; fetch.message.max.bytes before 0.9),"
        " or reduce the producers' batches (batch.size; batch.num.messages in librdkafka)",
    )
