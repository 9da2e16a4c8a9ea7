"""What the doctor reads in a broker's metrics."""

import re
from collections.abc import Iterator

from odradek.cli.finding import Finding, some
from odradek.cli.usage_source import Place, Source, UsageError

FETCH_BYTES = 1 << 20
"""Consumers' default limit for a partition in one answer: `max.partition.fetch.bytes`, `fetch.message.max.bytes` before 0.9."""
OLD_FETCHES = ("0", "1", "2")
"""Versions of Fetch in which an answer may hold only a part of a batch, which such a client then never gets whole."""
_SAMPLE = re.compile(r"(\w+)\{([^}]*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def examine_metrics(address: str, timeout: float) -> list[Finding]:
    """All findings. :param address: HOST:PORT. :param timeout: in seconds, for an answer."""
    try:
        text = Source(Place(address), timeout).metrics()
    except UsageError as error:
        return [
            Finding(
                "warning",
                "metrics",
                f"they cannot be read: {error}",
                "the sizes of batches were not checked, which only the metrics contain",
                "check that its reporter runs (`odradek status`), and name its metrics.listener with --metrics HOST:PORT",
            )
        ]
    return list(judge_metrics(text))


def judge_metrics(text: str) -> Iterator[Finding]:
    """What is wrong in the metrics of a broker."""
    large: dict[str, int] = {}
    old = False
    for line in text.splitlines():
        found = _SAMPLE.match(line)
        if found is None:
            continue
        name, labels, value = found[1], dict(_LABEL.findall(found[2])), float(found[3])
        if name == "odradek_topic_largest_batch_bytes" and value > FETCH_BYTES:
            large[labels["topic"]] = int(value)
        elif name == "kafka_network_requestmetrics_requests_total" and labels["request"] == "Fetch":
            old |= labels["version"] in OLD_FETCHES and value > 0
    if not large:
        return
    reason = "a consumer needs memory for the whole batch, and receives such batches one by one, each in an answer of its own"
    if old:
        reason += (
            "; clients older than 0.10.1, of which this broker has some, never get past a batch larger than their limit"
        )
    largest = max(large.values())
    names = sorted(large, key=lambda one: -large[one])
    yield Finding(
        "warning",
        f"{'topic' if len(large) == 1 else 'topics'} {some(names)}",
        f"batches of up to {largest:,} bytes were sent; the default limit of consumers is {FETCH_BYTES:,} for a partition",
        reason,
        f"raise the limit of its consumers to {largest:,} bytes (max.partition.fetch.bytes; fetch.message.max.bytes before"
        " 0.9), or make the batches of its producers smaller (batch.size; batch.num.messages in librdkafka)",
    )
