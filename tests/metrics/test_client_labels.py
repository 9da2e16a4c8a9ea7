"""Texts that clients choose are cut before they become labels, and the text of a scrape is bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.metrics.client_labels import FROM_CLIENTS, MOST_BYTES, cut
from odradek.metrics.exposition import FAMILY_SHARE, Family, Labels, TextLimit, pieces
from odradek.metrics.group_rows import GroupRow, decode_groups, encode_group, encode_offsets
from odradek.metrics.groups import group_families
from odradek.metrics.lag import EndHistory
from odradek.metrics.metric import GAUGE, Metric
from odradek.metrics.names import METRICS

BOUNDED = {
    "topic": "a name of a topic has at most 249 characters",
    **dict.fromkeys(("partition", "networkprocessor", "ordinal", "worker", "id"), "a number"),
    **dict.fromkeys(
        ("api", "request", "version", "error", "quantile", "le"), "the protocol or the code has a list of them"
    ),
    **dict.fromkeys(
        ("kind", "reason", "result", "outcome", "state", "role", "process", "quota", "task"), "the code has a list"
    ),
    **dict.fromkeys(("delayedoperation", "mechanism"), "the code has a list"),
    **dict.fromkeys(("listener", "log_dir", "address"), "the configuration of brokers"),
}
"""Labels whose values clients do not choose, or that something else bounds."""


def test_every_label_of_every_metric_is_cut_or_bounded_otherwise():
    labels = {label for metric in METRICS.values() for label in metric.labels}
    assert labels - FROM_CLIENTS - set(BOUNDED) == set(), (
        "does a client choose its value? Then it belongs into FROM_CLIENTS"
    )
    assert not FROM_CLIENTS & set(BOUNDED)
    assert labels >= FROM_CLIENTS, "a label that no metric has"


@pytest.mark.parametrize("name", sorted(FROM_CLIENTS))
def test_long_values_of_labels_from_clients_are_cut(name):
    long = Labels(**{name: "g" * 30_000})
    other = Labels(**{name: "g" * 29_999 + "h"})
    assert len(long.text.encode()) <= MOST_BYTES + len(name) + 5
    assert long.text != other.text


@given(st.text(min_size=1, max_size=400), st.text(max_size=3))
def test_a_cut_text_is_short_and_differs_from_that_of_any_other(text, more):
    shown = cut(text)
    assert len(shown.encode()) <= MOST_BYTES
    assert (shown == text) == (len(text.encode()) <= MOST_BYTES)
    assert cut(shown) == shown
    assert (cut(text + more) == shown) == (more == "")


def test_the_coordinator_reports_long_group_ids_cut():
    encoded = encode_group("g" * 30_000, "Empty", 0, 1) + encode_offsets("t", {0: 1})
    assert len(encoded) < 400
    (group,) = decode_groups(encoded)
    assert group.group_id == cut("g" * 30_000) and group.offsets == {"t": {0: 1}}


def family(name, count):
    metric = Metric(name, GAUGE, ("consumergroup",), "of groups.")
    return Family(metric, [("", Labels(consumergroup=f"group-{number:06}"), number) for number in range(count)])


def test_the_text_of_families_with_labels_of_clients_is_bounded_and_the_rest_counted():
    limit = TextLimit(1 << 20)
    safe = Family(
        Metric("safe", GAUGE, ("topic",), "of topics."), [("", Labels(topic=f"t{n}"), n) for n in range(5_000)]
    )
    families = [*(family(f"f{number}", 10_000) for number in range(2 * FAMILY_SHARE)), safe]
    text = b"".join(pieces(families, False, limit)).decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert sum(len(line) + 1 for line in lines if line.startswith("f")) <= 1 << 20
    assert sum(line.startswith("safe") for line in lines) == 5_000
    assert limit.left_out == 2 * FAMILY_SHARE * 10_000 + 5_000 - len(lines)
    each = [sum(line.startswith(f"f{number}{{") for line in lines) for number in range(FAMILY_SHARE)]
    assert min(each) > 1_000 and max(each) - min(each) < 100, "no family takes the room of another one"


def test_a_large_family_is_written_in_pieces():
    parts = list(pieces([family("f", 30_000)], False))
    assert len(parts) > 10 and max(map(len, parts)) < 200_000
    assert b"".join(parts).count(b"\n") == 30_002


def test_a_group_with_very_many_partitions_does_not_push_the_others_out():
    limit = TextLimit(1 << 20)
    groups = [
        GroupRow(name, "Empty", 0, {"t": dict.fromkeys(range(n), 5)}) for name, n in (("huge", 60_000), ("small", 3))
    ]

    class Row:
        def __init__(self, partition):
            self.partition, self.state = partition, -1

    rows = {"t": [Row(number) for number in range(60_000)]}
    families = group_families(groups, rows, {"t"}, {"huge", "small"}, EndHistory(), 0, limit)
    text = b"".join(pieces(families, False, limit)).decode()
    assert 'kafka_consumergroup_current_offset{consumergroup="small",partition="2",topic="t"} 5' in text
    assert 'current_offset{consumergroup="huge"' not in text
    assert limit.left_out >= 3 * 60_000
    assert 'kafka_consumergroup_members{consumergroup="huge"} 0' in text
