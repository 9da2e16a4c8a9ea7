"""Texts that clients choose are cut before they become labels, and the text of a scrape is bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.metrics import groups as of_groups
from odradek.metrics.client_labels import FROM_CLIENTS, MOST_BYTES, cut
from odradek.metrics.exposition import FAMILY_SHARE, Family, Labels, TextLimit, pieces
from odradek.metrics.group_rows import GroupRow, decode_groups, encode_group, encode_offsets
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
    text = b"".join(pieces(map(limit.limited, families), False)).decode()
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


class Row:
    """A partition with a lag of as many records as its number, for the committed offset 0."""

    incarnation = 1

    def __init__(self, number):
        self.slot = self.partition = self.high_watermark = number


def lines_of(sizes, monkeypatch, offset=0, partitions=60_000, name=lambda name: name):
    """The lines of the series of groups, and their limit. :param sizes: by group: the number of partitions."""
    monkeypatch.setattr(of_groups, "serves", lambda row: True)
    limit = TextLimit(1 << 20)
    rows = {"t": [Row(number) for number in range(partitions)]}
    groups = [GroupRow(name(group), "Empty", 0, {"t": dict.fromkeys(range(n), offset)}) for group, n in sizes.items()]
    names = {group.group_id for group in groups}
    families = of_groups.group_families(groups, rows, {"t"}, names, EndHistory(), 0, limit)
    text = b"".join(pieces(map(limit.limited, families), False)).decode()
    return [line for line in text.splitlines() if not line.startswith("#")], limit


def test_of_a_group_with_very_many_partitions_those_with_the_least_lag_are_left_out(monkeypatch):
    lines, limit = lines_of({"huge": 60_000, "small": 3}, monkeypatch)
    for family in ("current_offset", "lag"):
        assert sum(f'{family}{{consumergroup="small",' in line for line in lines) == 3
        shown = [line for line in lines if f'{family}{{consumergroup="huge",' in line]
        assert 300 < len(shown) < 1_000
        numbers = {int(line.partition('partition="')[2].partition('"')[0]) for line in shown}
        assert numbers == set(range(60_000 - len(shown), 60_000)), "those with the largest lag"
    assert f'kafka_consumergroup_lag_sum{{consumergroup="huge",topic="t"}} {sum(range(60_000))}' in lines
    assert 'kafka_consumergroup_members{consumergroup="huge"} 0' in lines
    shown = sum('{consumergroup="huge",partition' in line for line in lines)
    assert limit.left_out == 3 * 60_000 - shown, "no other place of the text leaves out series of groups"


@pytest.mark.parametrize("name", [str, lambda group: group + '"' * 30_000], ids=["short", "long-escaped"])
def test_groups_share_the_text_equally_and_what_small_ones_leave_is_for_the_others(name, monkeypatch):
    sizes = {f"g{number}": 10_000 for number in range(5)} | {f"small-{number:02}": 2 for number in range(20)}
    lines, _ = lines_of(sizes, monkeypatch, name=name)
    count = {
        group: sum(f'kafka_consumergroup_lag{{consumergroup="{group}' in line for line in lines) for group in sizes
    }
    assert all(count[group] == 2 for group in sizes if group.startswith("small"))
    large = [count[group] for group in sizes if group.startswith("g")]
    assert min(large) > 10 and max(large) - min(large) <= 1


def test_the_work_of_a_scrape_is_bounded(monkeypatch):
    monkeypatch.setattr(of_groups, "MOST_LAGS", 1_000)
    computed = []

    def lag_of(topic, row, *_):
        computed.append(row)
        return of_groups.Lag(topic, row.partition, 0, 1, 0)

    monkeypatch.setattr(of_groups, "lag_of", lag_of)
    lines, _ = lines_of({"huge": 900, "middle": 400, "small": 3}, monkeypatch, partitions=1_000)
    assert len(computed) == 403
    assert 'kafka_consumergroup_members{consumergroup="huge"} 0' in lines
    assert any('kafka_consumergroup_lag_sum{consumergroup="middle"' in line for line in lines)
