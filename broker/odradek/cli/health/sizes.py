"""Checks of `odradek doctor` on the sizes of record batches in a broker's metrics: batches near the limit of their topic,
refused ones, and topics whose producers send a request for each few records."""

from collections import defaultdict
from collections.abc import Iterator

from odradek.cli.framework.output import abbreviate
from odradek.cli.health.finding import Finding
from odradek.cli.inspection.metrics_text import samples

NEAR = 0.97
"""The share of max.message.bytes from which the largest batch of a topic is a finding. librdkafka fills batches up to 1,000,000
bytes, 95 % of the default limit, without any risk: it begins another batch."""
BUSY = 500
"""Produce requests for a topic in a second, on average since the start, from which small requests are a finding."""
FEW_RECORDS, SMALL_BYTES = 5, 4096
"""Requests with fewer records, and fewer bytes, on average are small."""

_TRAFFIC = "kafka_server_brokertopicmetrics_"
_COUNTED = {
    f"{_TRAFFIC}totalproducerequests_total": "requests",
    f"{_TRAFFIC}messagesin_total": "records",
    f"{_TRAFFIC}bytesin_total": "bytes",
    "odradek_topic_largest_batch_bytes": "largest",
    "odradek_topic_max_message_bytes": "limit",
}
_OTHER = "other"  # the topics without series of their own


def judge_sizes(text: str, now: float) -> Iterator[Finding]:
    """The findings in the text of a broker's metrics. :param now: Unix time in seconds."""
    topics: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(_COUNTED.values(), 0.0))
    seconds = refused = 0.0
    for sample in samples(text):
        match sample:
            case name, {"topic": topic}, value if name in _COUNTED and topic != _OTHER:
                topics[topic][_COUNTED[name]] = value
            case "odradek_boot_time_seconds", _, value:
                seconds = now - value
            case "kafka_network_requestmetrics_errors_total", {"error": "MESSAGE_TOO_LARGE"}, value:
                refused += value
    yield from _near_the_limit(topics)
    if refused:
        yield Finding(
            "warning",
            "producers",
            f"{refused:,.0f} batches were larger than max.message.bytes and were refused since the start (MESSAGE_TOO_LARGE)",
            "their records are lost if the application does not handle the error",
            "reduce the producers' records or batches, or raise max.message.bytes of the topic (`odradek config set --topic`); "
            "the broker's log and `odradek usage show --by client --by topic` show whose they are",
        )
    if seconds > 0:
        yield from _small(topics, seconds)


def _near_the_limit(topics: dict[str, dict[str, float]]) -> Iterator[Finding]:
    for topic, of in sorted(topics.items()):
        if of["limit"] and of["largest"] >= NEAR * of["limit"]:
            yield Finding(
                "warning",
                f"topic {topic}",
                f"its largest batch has {of['largest']:,.0f} bytes, {of['largest'] / of['limit']:.0%} of max.message.bytes "
                f"({of['limit']:,.0f})",
                "the broker refuses a batch above the limit (MESSAGE_TOO_LARGE)",
                f"if single records are so large: odradek config set --topic {topic} max.message.bytes={2 * of['limit']:.0f},"
                " and raise the limits of producers (max.request.size; message.max.bytes in librdkafka) and consumers "
                "(max.partition.fetch.bytes); else reduce the producers' batch.size",
            )


def _small(topics: dict[str, dict[str, float]], seconds: float) -> Iterator[Finding]:
    small = {
        topic: of
        for topic, of in topics.items()
        if of["requests"] / seconds >= BUSY
        and of["records"] < FEW_RECORDS * of["requests"]
        and of["bytes"] < SMALL_BYTES * of["requests"]
    }
    if not small:
        return
    names = sorted(small, key=lambda topic: -small[topic]["requests"])
    requests, records, size = (sum(of[name] for of in small.values()) for name in ("requests", "records", "bytes"))
    yield Finding(
        "warning",
        f"{'topic' if len(small) == 1 else 'topics'} {abbreviate(names)}",
        f"{requests / seconds:,.0f} Produce requests per second with {records / requests:.1f} records and "
        f"{size / requests:,.0f} bytes each, on average since the start",
        "a request costs the broker and its clients more than a record: the same records in fewer requests need less CPU time",
        "let the producers wait for more records: linger.ms=5 to 20 with batch.size=65536 or more, and send without waiting "
        "for each record's acknowledgement",
    )
