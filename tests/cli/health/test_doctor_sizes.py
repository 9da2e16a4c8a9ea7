"""What `odradek doctor` says about the sizes of record batches, from the text of a broker's metrics."""

import pytest

from odradek.cli.health.sizes import BUSY, judge_sizes
from odradek.cli.inspection.metrics_text import samples

NOW = 1_000_000.0
TRAFFIC = "kafka_server_brokertopicmetrics_"


def traffic(topic, requests, records, size, seconds=1000):
    """The metrics of so many seconds, in each of which so much was produced."""
    counts = {"totalproducerequests": requests, "messagesin": records, "bytesin": size}
    lines = [f'{TRAFFIC}{name}_total{{topic="{topic}"}} {count * seconds}' for name, count in counts.items()]
    return "\n".join([*lines, f"{TRAFFIC}messagesin_total 1e12", f"odradek_boot_time_seconds {NOW - seconds}", ""])


def limits(topic, largest, limit):
    return (
        f'odradek_topic_largest_batch_bytes{{topic="{topic}"}} {largest}\n'
        f'odradek_topic_max_message_bytes{{topic="{topic}"}} {limit}\n'
    )


@pytest.mark.parametrize(
    ("largest", "limit", "found"),
    [(1_000_000, 1_048_588, False), (1_048_588, 1_048_588, True), (1_017_131, 1_048_588, True), (0, 0, False)],
    ids=["full batch of librdkafka", "the largest batch", "97 percent", "unknown limit"],
)
def test_a_batch_near_the_limit_of_its_topic_is_found(largest, limit, found):
    findings = list(judge_sizes(limits("orders", largest, limit) + limits("small", 100, 1_048_588), NOW))
    assert [finding.subject for finding in findings] == ["topic orders"] * found
    for finding in findings:
        assert f"{largest:,} bytes" in finding.what and "1,048,588" in finding.what
        assert "config set --topic orders max.message.bytes=2097176" in finding.remedy


def test_refused_batches_are_found():
    error = 'kafka_network_requestmetrics_errors_total{request="%s",error="%s"} %d\n'
    (finding,) = judge_sizes(error % ("Produce", "MESSAGE_TOO_LARGE", 3) + error % ("Fetch", "UNKNOWN", 5), NOW)
    assert finding.subject == "producers" and finding.what.startswith("3 batches were larger than max.message.bytes")
    assert not list(judge_sizes(error % ("Fetch", "UNKNOWN", 5), NOW))


@pytest.mark.parametrize(
    ("requests", "records", "size", "found"),
    [
        (BUSY, BUSY, 100 * BUSY, True),
        (BUSY - 1, BUSY - 1, 100 * BUSY, False),
        (BUSY, 5 * BUSY, 100 * BUSY, False),
        (BUSY, BUSY, 4096 * BUSY, False),
    ],
    ids=["small", "few requests", "many records", "large records"],
)
def test_many_small_requests_are_found(requests, records, size, found):
    findings = list(judge_sizes(traffic("t", requests, records, size) + traffic("other", 10_000, 1, 1), NOW))
    assert [finding.subject for finding in findings] == ["topic t"] * found
    for finding in findings:
        assert finding.what.startswith("500 Produce requests per second with 1.0 records and 100 bytes each")
        assert "linger.ms" in finding.remedy


def test_topics_with_small_requests_are_one_finding_with_the_busiest_first():
    text = traffic("a", BUSY, BUSY, 1) + traffic("b", 3 * BUSY, 3 * BUSY, 1)
    assert [finding.subject for finding in judge_sizes(text, NOW)] == ["topics b, a"]


def test_labels_may_contain_what_ends_labels():
    (sample,) = samples('# HELP x of.\nx{client_id="a}\\" b",user="u,{"} 5\n\n')
    assert sample == ("x", {"client_id": 'a}" b', "user": "u,{"}, 5.0)
