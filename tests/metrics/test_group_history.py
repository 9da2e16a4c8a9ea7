"""Groups that clients invent do not push the history of usage out of the spool."""

import json

import pytest

from odradek.metrics.collector import Collector, Settings
from odradek.metrics.group_rows import GroupRow, decode_groups, encode_group, encode_offsets
from odradek.metrics.partitions import Address
from odradek.metrics.usage_reports import DAY_MS, LEAST_GROUP_BYTES, UsageReports
from tests.shm.one_broker import OneBroker

NOW_MS = 1_700_000_000_000


@pytest.fixture
def broker(tmp_path):
    with OneBroker(tmp_path, max_slots=256) as one:
        one.create("t")
        yield one


def reports(broker, tmp_path, max_bytes, interval_ms):
    settings = Settings(100, 100, 3_600_000, ["PLAINTEXT"], Address(1, "host:9092"))
    collector = Collector(broker.shm, [broker.path], settings, None, lambda: 1_000_000, lambda: NOW_MS)
    return UsageReports(broker.shm, collector, [tmp_path], {}, 1, None, max_bytes, interval_ms)


def group_rows(made, groups):
    with made._collector.lock:
        return [row for row in made._all_rows(groups) if row["kind"] == "group"]


@pytest.mark.parametrize(("max_bytes", "interval_ms"), [(1 << 30, 60_000), (1 << 30, 2_000), (1 << 20, 60_000)])
def test_the_rows_of_groups_take_at_most_a_day_s_share_of_the_spool(broker, tmp_path, max_bytes, interval_ms):
    made = reports(broker, tmp_path, max_bytes, interval_ms)
    groups = [GroupRow(f"group-{number:05}" + "g" * 200, "Empty", 0, {"t": {0: 0}}) for number in range(5_000)]
    rows = group_rows(made, groups)
    size = sum(len(json.dumps(row)) + 1 for row in rows)
    most = max(LEAST_GROUP_BYTES, max_bytes * interval_ms // DAY_MS)
    assert most - 1_000 < size <= most
    again = group_rows(made, groups[::-1])
    assert [row["group"] for row in again] == [row["group"] for row in rows], "it is always the same ones"


def test_long_ids_are_cut_in_rows(broker, tmp_path):
    made = reports(broker, tmp_path, 1 << 30, 60_000)
    encoded = b"".join(
        encode_group(first + "g" * 30_000, "Empty", 0, 1) + encode_offsets("t", {0: 0}) for first in ("a", "b")
    )
    rows = group_rows(made, list(decode_groups(encoded)))
    assert len({row["group"] for row in rows}) == 2
    assert all(len(row["group"]) <= 240 for row in rows)
