"""What a worker reports to Prometheus, with a clock of the test."""

import re

from prometheus_client.parser import text_string_to_metric_families

from odradek.metrics.exposition import pieces
from odradek.metrics.names.mirror import MIRROR_METRICS
from odradek.mirror.metrics import MirrorMetrics
from odradek.mirror.routes import Moved, Route
from odradek.mirror.status import Stopped

ROUTE = Route(("orders", 3), ("a.orders", 3))


class Clock:
    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


def made():
    clock = Clock()
    metrics = MirrorMetrics("1.2", "w1", clock)
    return clock, metrics, metrics.flow("a", "b")


def text_of(metrics):
    return b"".join(pieces(metrics.families(), False)).decode()


def values(metrics, name):
    """The samples of a metric without the prefix: labels of the partition -> value."""
    families = {family.name: family for family in text_string_to_metric_families(text_of(metrics))}
    family = families.get(f"odradek_mirror_{name}".removesuffix("_total"))
    return [] if family is None else [sample.value for sample in family.samples]


def test_batches_are_counted_and_positions_give_the_lag():
    clock, metrics, flow = made()
    flow.progress(ROUTE, 10, 25, 0)
    flow.moved(Moved(ROUTE, 0, 7, 10, 10, 1234, int((clock.now - 5) * 1000)))
    assert values(metrics, "records_total") == [10] and values(metrics, "bytes_total") == [1234]
    assert values(metrics, "lag_records") == [15]
    assert values(metrics, "last_commit_timestamp_seconds") == [clock.now]
    flow.progress(ROUTE, 25, 25, 0)
    assert values(metrics, "lag_records") == values(metrics, "lag_seconds") == [0]


def test_the_lag_in_seconds_is_the_age_of_the_newest_record_while_newer_ones_wait():
    clock, metrics, flow = made()
    flow.progress(ROUTE, 10, 25, 0)
    assert values(metrics, "lag_seconds") == []  # nothing is known yet
    flow.moved(Moved(ROUTE, 0, 0, 10, 10, 1, int((clock.now - 3600) * 1000)))
    assert values(metrics, "lag_seconds") == [3600]
    clock.now += 10
    assert values(metrics, "lag_seconds") == [3610]


def test_a_new_record_in_a_topic_that_was_silent_for_an_hour_is_not_an_hour_of_lag():
    clock, metrics, flow = made()
    flow.moved(Moved(ROUTE, 0, 0, 10, 10, 1, int(clock.now * 1000)))
    flow.progress(ROUTE, 10, 10, 0)
    clock.now += 3600
    flow.progress(ROUTE, 10, 11, 0)
    clock.now += 2
    assert values(metrics, "lag_seconds") == [2]
    flow.progress(ROUTE, 11, 11, 0)
    assert values(metrics, "lag_seconds") == [0]


def test_a_stopped_partition_has_its_reason_until_it_is_mirrored_again():
    _, metrics, flow = made()
    reason = 'the target refuses the batch at offset 7: "too large"\\'
    flow.stopped(ROUTE, reason)
    assert values(metrics, "partition_stopped") == [1]
    assert Stopped([text_of(metrics)]).reasons == {("a", "b", "a.orders", 3): reason}
    flow.moved(Moved(ROUTE, 0, 0, 1, 1, 1, 1))  # what stands before the batch
    assert values(metrics, "partition_stopped") == [1]
    flow.resumed(ROUTE)
    assert values(metrics, "partition_stopped") == []


def test_partitions_that_other_workers_have_now_keep_their_counters_and_lose_their_gauges():
    _, metrics, flow = made()
    other = Route(("orders", 4), ("a.orders", 4))
    for route in (ROUTE, other):
        flow.progress(route, 0, 5, 0)
        flow.moved(Moved(route, 0, 0, 1, 1, 1, 1))
        flow.stopped(route, "x")
    flow.keep([other.target])
    assert values(metrics, "records_total") == [1, 1]
    assert values(metrics, "lag_records") == [5]
    assert values(metrics, "partition_stopped") == [1]


def test_all_metrics_of_the_table_are_reported_with_their_labels_and_no_other():
    _, metrics, flow = made()
    flow.progress(ROUTE, 0, 5, 0)
    flow.moved(Moved(ROUTE, 0, 0, 1, 1, 1, 1))
    flow.stopped(ROUTE, "x")
    flow.last_refresh = 1.0
    found = {}
    for line in text_of(metrics).splitlines():
        if not line.startswith("#"):
            name, _, labels = re.match(r"(\w+)(\{(.*)\})?", line).groups()
            found[name] = set(re.findall(r'(\w+)="', labels or ""))
    assert found == {name: set(metric.labels) for name, metric in MIRROR_METRICS.items()}
