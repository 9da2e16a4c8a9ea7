"""All of /metrics from a mapping that the test fills: complete, bounded, and exact over a reporter's death."""

import errno
import os
import re

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from odradek._ext.shm import client_quotas
from odradek._ext.shm.client_quotas import QuotaKind
from odradek._ext.shm.metering import count, count_loop_delay, gauge
from odradek._ext.testing import slot_probe
from odradek._ext.testing.client_quota_probe import Use
from odradek._ext.testing.meter_probe import count_usage, put_reader_position, use_clock
from odradek.metrics.collector import Collector, Settings
from odradek.metrics.exposition import Family, pieces
from odradek.metrics.group_rows import GroupRow
from odradek.metrics.groups import READER_ENDS_AFTER_MS, readers
from odradek.metrics.lag import EndHistory
from odradek.metrics.names import METRICS
from odradek.metrics.pages import PositionRow
from odradek.metrics.partitions import Address
from odradek.metrics.registry import Exposition
from odradek.metrics.transactions import TransactionReport
from odradek.shm.published_pages import PublishedPages
from odradek.shm.published_tasks import Failing, TaskState
from tests.metrics.scraping import parsed
from tests.shm.one_broker import OneBroker, batch

PRODUCE, FETCH = 0, 1
NOW_MS = 1_700_000_000_000
ANYBODY = b"User:ANONYMOUS"
SETTINGS = Settings(100, 100, 3_600_000, ["PLAINTEXT"], Address(1, "host:9092"))

IN_CLUSTERS = {
    "kafka_server_fetcherlagmetrics_consumerlag",
    "odradek_broker_registered",
    "odradek_zookeeper_disconnected_seconds",
}
"""The families that only brokers of clusters have."""


@pytest.fixture
def broker(tmp_path):
    with OneBroker(tmp_path, max_slots=256) as one:
        use_clock(NOW_MS)
        yield one
    use_clock(0)


@pytest.fixture
def memory():
    fd = os.memfd_create("test")
    yield lambda: PublishedPages(fd)
    os.close(fd)


class Clock:
    ms = 1_000_000

    def __call__(self):
        return self.ms


def collector(broker, memory=None, settings=SETTINGS, clock=None):
    return Collector(broker.shm, [broker.path], settings, memory, clock or Clock(), lambda: NOW_MS)


def measured(made):
    while made.tick():
        pass
    return made


def text(made, groups=(), transactions=None, openmetrics=False):
    with made.lock:
        return b"".join(pieces(made.families(groups, transactions), openmetrics)).decode()


def samples(made, groups=()):
    """{(name, labels): value}."""
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in parse(text(made, groups))
        for one in family.samples
    }


def value(found, name, **labels):
    return found[name, tuple(sorted(labels.items()))]


def use(
    client, topic, api, *, requests=1, errors=0, bytes_in=0, bytes_out=0, records_in=0, records_out=0, connection=0
):
    values = (requests, errors, bytes_in, bytes_out, records_in, records_out, 0, connection)
    count_usage(ANYBODY, client, topic, api, values)


def test_partition_families_match_the_slots(broker):
    slot = broker.create("t", 3)
    slot_probe.append(slot, [batch(10), batch(5)])
    found = samples(measured(collector(broker)))
    place = {"topic": "t", "partition": "3"}
    assert value(found, "kafka_topic_partition_current_offset", **place) == 15
    assert value(found, "kafka_topic_partition_oldest_offset", **place) == 0
    assert value(found, "kafka_topic_partition_leader", **place) == 1
    assert value(found, "kafka_topic_partition_leader_is_preferred", **place) == 1
    assert value(found, "kafka_topic_partition_replicas", **place) == 2
    assert value(found, "kafka_topic_partition_in_sync_replica", **place) == 1
    assert value(found, "kafka_topic_partition_under_replicated_partition", **place) == 1
    assert value(found, "kafka_topic_partitions", topic="t") == 1
    assert value(found, "kafka_server_replicamanager_underreplicatedpartitions") == 1
    assert value(found, "kafka_server_replicamanager_atminisrpartitioncount") == 1
    assert value(found, "kafka_server_replicamanager_leadercount") == 1
    assert value(found, "kafka_broker_info", id="1", address="host:9092") == 1
    assert value(found, "kafka_cluster_partition_atminisr", **place) == 1
    assert value(found, "kafka_cluster_partition_underminisr", **place) == 0


@pytest.mark.parametrize(
    ("wanted", "alone", "under", "at"), [(3, True, 1, 0), (3, False, 0, 1), (2, True, 1, 0), (1, False, 0, 0)]
)
def test_min_in_sync_is_limited_by_the_number_of_replicas(broker, wanted, alone, under, at):
    broker.create("t", 0, alone=alone, min_in_sync_replicas=wanted)
    found = samples(measured(collector(broker)))
    place = {"topic": "t", "partition": "0"}
    assert value(found, "kafka_cluster_partition_underminisr", **place) == under
    assert value(found, "kafka_cluster_partition_atminisr", **place) == at
    assert value(found, "kafka_server_replicamanager_underminisrpartitioncount") == under
    assert value(found, "kafka_server_replicamanager_atminisrpartitioncount") == at


def test_partitions_below_min_in_sync_are_the_brokers_whichever_topics_have_names(broker):
    for topic in ("a", "b", "c"):
        broker.create(topic, 0)
    bounded = samples(measured(collector(broker, settings=SETTINGS._replace(max_topics=1))))
    other = {"topic": "other", "partition": "other"}
    assert value(bounded, "kafka_cluster_partition_atminisr", **other) == 2
    assert value(bounded, "kafka_cluster_partition_underminisr", **other) == 0
    for name in ("atminisr", "underminisr"):
        total = sum(found for (one, _), found in bounded.items() if one == f"kafka_cluster_partition_{name}")
        assert total == value(bounded, f"kafka_server_replicamanager_{name}partitioncount")


def test_a_logs_size_is_that_of_its_files_across_rolls(broker):
    slot, made = broker.create("t", 0), collector(broker)
    for segments in (1, 2, 3):
        if segments > 1:
            slot_probe.roll(slot)
        slot_probe.append(slot, [batch(10)])
        found = samples(measured(made))
        size = sum(path.stat().st_size for path in (broker.path / "t-0").glob("*.log"))
        assert value(found, "kafka_log_log_size", topic="t", partition="0") == size > 0
        assert value(found, "kafka_log_log_numlogsegments", topic="t", partition="0") == segments
        assert value(found, "odradek_topic_stored_bytes", topic="t") == size


def test_a_deleted_topic_has_no_series(broker):
    slot, made = broker.create("gone", 0), collector(broker)
    assert 'topic="gone"' in text(measured(made))
    broker.table.delete(slot)
    broker.table.announce([slot])
    assert 'topic="gone"' not in text(made)


def test_sums_over_clients_are_the_brokers_and_the_topics_figures(broker):
    broker.create("t", 0)
    use(b"one", b"t", PRODUCE, requests=3, bytes_in=1000, records_in=30, errors=1)
    use(b"two", b"t", PRODUCE, requests=2, bytes_in=70, records_in=7)
    use(b"two", b"t", FETCH, requests=9, bytes_out=555, records_out=37)
    use(b"two", None, FETCH, requests=8, bytes_in=80, bytes_out=90)
    use(b"two", None, -1, requests=0, connection=2500)
    count("bytes_rejected", 77)
    found = samples(measured(collector(broker)))
    for labels in ({}, {"topic": "t"}):
        prefix = "kafka_server_brokertopicmetrics_"
        assert value(found, prefix + "bytesin_total", **labels) == 1070
        assert value(found, prefix + "bytesout_total", **labels) == 555
        assert value(found, prefix + "messagesin_total", **labels) == 37
        assert value(found, prefix + "totalproducerequests_total", **labels) == 5
        assert value(found, prefix + "failedproducerequests_total", **labels) == 1
        assert value(found, prefix + "totalfetchrequests_total", **labels) == 9
    assert value(found, prefix + "bytesrejected_total") == 77
    who = {"principal": "User:ANONYMOUS", "client_id": "two"}
    assert value(found, "odradek_usage_bytes_out_total", topic="t", api="Fetch", **who) == 555
    assert value(found, "odradek_usage_bytes_out_total", topic="", api="Fetch", **who) == 90
    assert value(found, "odradek_usage_connection_seconds_total", **who) == 2.5


def test_groups_lag_in_records_and_seconds(broker):
    clock = Clock()
    slot, made = broker.create("t", 0), collector(broker, clock=clock)
    made.tick()
    slot_probe.append(slot, [batch(10)])
    clock.ms += 10_000
    groups = [GroupRow("g", "Stable", 2, {"t": {0: 4, 9: 1}, "gone": {0: 1}}), GroupRow("idle", "Empty", 0, {})]
    found = samples(measured(made), groups)
    place = {"consumergroup": "g", "topic": "t", "partition": "0"}
    assert value(found, "kafka_consumergroup_current_offset", **place) == 4
    assert value(found, "kafka_consumergroup_lag", **place) == 6
    assert value(found, "odradek_consumergroup_lag_seconds", **place) == 5.0
    assert value(found, "kafka_consumergroup_lag_sum", consumergroup="g", topic="t") == 6
    assert value(found, "kafka_consumergroup_current_offset_sum", consumergroup="g", topic="t") == 4
    assert value(found, "kafka_consumergroup_members", consumergroup="g") == 2
    assert value(found, "kafka_consumergroup_members", consumergroup="idle") == 0
    states = "kafka_coordinator_group_groupmetadatamanager_numgroups"
    assert value(found, states, state="Stable") == 1 and value(found, states, state="Dead") == 0
    assert not [key for key in found if ("topic", "gone") in key[1] or ("partition", "9") in key[1]]
    nobody = samples(made, None)
    assert not [key for key in nobody if "consumergroup" in key[0] or key[0] == states]


def test_readers_that_never_commit_have_a_lag(broker):
    clock = Clock()
    slot, made = broker.create("t", 0), collector(broker, clock=clock)
    made.tick()
    slot_probe.append(slot, [batch(10)])
    clock.ms += 10_000
    put_reader_position(ANYBODY, b"spark", slot, slot_probe.incarnation_of(slot), 4)
    use(b"spark", b"t", FETCH)
    found = samples(made)
    place = {"principal": "User:ANONYMOUS", "client_id": "spark", "topic": "t", "partition": "0"}
    assert value(found, "odradek_reader_position", **place) == 4
    assert value(found, "odradek_reader_lag", **place) == 6
    assert value(found, "odradek_reader_lag_seconds", **place) == 5.0


def test_only_a_reader_whose_position_moved_back_has_the_time_of_that(broker):
    slot, made = broker.create("t", 0), collector(broker)
    slot_probe.append(slot, [batch(10)])
    incarnation = slot_probe.incarnation_of(slot)
    for client, offsets in ((b"export", (4, 9, 4)), (b"spark", (4, 9, 9))):
        for number, offset in enumerate(offsets):
            use_clock(NOW_MS - 9000 + number)
            put_reader_position(ANYBODY, client, slot, incarnation, offset, ended=True)
            use_clock(NOW_MS)
        use(client, b"t", FETCH)
    times = [
        (dict(key[1])["client_id"], at)
        for key, at in samples(made).items()
        if key[0].endswith("last_back_timestamp_seconds")
    ]
    assert times == [("export", (NOW_MS - 8998) / 1000)]
    rows = [
        PositionRow(page, "User:a", "c", slot, incarnation, 3, NOW_MS, 0, back_ms) for page, back_ms in ((1, 7), (2, 0))
    ]
    assert [reader.back_ms for reader in readers(rows, rows_by_slot(broker), EndHistory(), 0)] == [7]
    former = PositionRow(3, "User:a", "c", slot, incarnation - 1, 3, NOW_MS - 1, 0, 99)
    assert [reader.back_ms for reader in readers([former, *rows], rows_by_slot(broker), EndHistory(), 0)] == [7]


def test_a_reader_that_ended_has_no_lag_two_minutes_later(broker):
    clock = Clock()
    slot, made = broker.create("t", 0), collector(broker, clock=clock)
    slot_probe.append(slot, [batch(10)])
    incarnation = slot_probe.incarnation_of(slot)
    for client, ago_ms, ended in (
        (b"left", READER_ENDS_AFTER_MS, True),
        (b"left-before", READER_ENDS_AFTER_MS + 1, True),
        (b"quiet", SETTINGS.idle_ms, False),
        (b"forgotten", SETTINGS.idle_ms + 1, False),
    ):
        use_clock(NOW_MS - ago_ms)
        put_reader_position(ANYBODY, client, slot, incarnation, 4, ended)
        use_clock(NOW_MS)
        use(client, b"t", FETCH)
    found = samples(made)
    lags = {dict(labels)["client_id"]: lag for (name, labels), lag in found.items() if name == "odradek_reader_lag"}
    assert lags == {"left": 6, "quiet": 6}


@pytest.mark.parametrize("order", [1, -1])
def test_a_position_that_is_still_read_counts_if_several_workers_have_one(broker, order):
    slot = broker.create("t", 0)
    slot_probe.append(slot, [batch(10)])
    rows = rows_by_slot(broker)
    key = ("User:a", "c", slot, slot_probe.incarnation_of(slot))
    found = [
        PositionRow(1, *key, 3, NOW_MS - 50_000, 1),
        PositionRow(2, *key, 5, NOW_MS - 60_000, 1),
        PositionRow(3, *key, 9, NOW_MS, 0),
    ]
    (reader,) = readers(found[::order], rows, EndHistory(), 0)
    assert (reader.lag.offset, reader.lag.lag) == (3, 7)
    (ended,) = readers([row._replace(readers=0) for row in found[::order]], rows, EndHistory(), 0)
    assert (ended.lag.offset, ended.lag.lag) == (9, 1)


def rows_by_slot(broker):
    return {row.slot: (topic, row) for topic, found in collector(broker).partitions().items() for row in found}


def test_counters_go_on_over_the_death_of_a_reporter(broker, memory):
    settings = SETTINGS._replace(max_clients=2)
    broker.create("t", 0)
    for number in range(4):
        use(b"client-%d" % number, b"t", PRODUCE, bytes_in=100 * (4 - number))
    first = samples(measured(collector(broker, memory(), settings)))
    use(b"client-0", b"t", PRODUCE, bytes_in=5)
    use(b"client-3", b"t", PRODUCE, bytes_in=5000)
    second = samples(measured(collector(broker, memory(), settings)))
    assert {key for key in first if "usage" in key[0]} == {key for key in second if "usage" in key[0]}
    for key, before in first.items():
        if key[0].endswith("_total") and not key[0].startswith("process"):
            assert second[key] >= before, key
    labels = {"topic": "t", "api": "Produce"}
    name = "odradek_usage_bytes_in_total"
    assert value(second, name, principal="User:ANONYMOUS", client_id="client-0", **labels) == 405
    assert value(second, name, principal="other", client_id="other", **labels) == 5300
    # Without what the predecessor left it would name the largest, and "other" would jump.
    alone = samples(measured(collector(broker, None, settings)))
    assert value(alone, name, principal="other", client_id="other", **labels) == 500


def test_the_state_of_another_shared_memory_is_ignored(broker, memory, tmp_path_factory):
    broker.create("t", 0)
    use(b"c", b"t", PRODUCE, bytes_in=7)
    samples(measured(collector(broker, memory())))
    with OneBroker(tmp_path_factory.mktemp("other")) as other:
        found = samples(measured(collector(other, memory())))
    assert value(found, "kafka_server_brokertopicmetrics_bytesin_total") == 0


def test_topics_and_clients_beyond_the_bounds_are_others(broker):
    settings = SETTINGS._replace(max_topics=2, max_clients=3)
    for number in range(6):
        slot_probe.append(broker.create(f"t{number}", 0), [batch(number + 1)])
        use(b"c%d" % number, b"t%d" % number, PRODUCE, bytes_in=10 + number)
    found = samples(measured(collector(broker, settings=settings)))
    for name in ("kafka_log_log_size", "kafka_topic_partition_leader"):
        assert {dict(labels)["topic"] for key, labels in found if key == name} == {"t4", "t5"}
    assert value(found, "kafka_topic_partitions", topic="other") == 4
    used = [(dict(labels), n) for (name, labels), n in found.items() if name == "odradek_usage_bytes_in_total"]
    assert sum(n for _, n in used) == sum(10 + number for number in range(6))
    assert {labels["client_id"] for labels, _ in used} == {"c3", "c4", "c5", "other"}
    assert {labels["topic"] for labels, _ in used} == {"t4", "t5", "other"}


def test_a_hundred_thousand_client_ids_keep_the_page_and_the_memory_bounded(broker, memory):
    broker.create("t", 0)
    made = measured(collector(broker, memory()))
    before = len(text(made))
    for number in range(100_000):
        use(b"random-%d" % number, b"t", PRODUCE, bytes_in=3)
        if number % 20_000 == 0:
            made.tick()
    whole = text(made)
    assert len(whole) < before + 100_000
    used = sum(
        one.value for family in parse(whole) for one in family.samples if one.name == "odradek_usage_bytes_in_total"
    )
    assert used == 300_000
    assert len(memory().read()[1]) < 4 << 20
    assert len(made.ledger._last) < 20_000


def test_tasks_and_logs_that_were_set_aside_are_counted(broker):
    made = collector(broker)
    failing = (Failing("t-0", "no", NOW_MS),)
    made.tasks = lambda: [TaskState("retention", 300_000, NOW_MS, NOW_MS - 5000, 4, 21, failing)]
    stray = broker.path / ("t-1." + "0" * 32 + "-stray")
    stray.mkdir()
    (stray / "0.log").write_bytes(b"x" * 70)
    (broker.path / "mine-stray").mkdir()
    found = samples(measured(made))
    wanted = {
        "last_run_timestamp_seconds": NOW_MS / 1000,
        "last_success_timestamp_seconds": NOW_MS / 1000 - 5,
        "interval_seconds": 300,
        "failed_runs": 4,
        "failing_objects": 21,
    }
    assert {name: value(found, f"odradek_task_{name}", task="retention") for name in wanted} == wanted
    assert value(found, "odradek_stray_logs", log_dir=str(broker.path)) == 1
    assert value(found, "odradek_stray_log_bytes", log_dir=str(broker.path)) == 70


def test_a_log_that_cannot_be_read_does_not_end_the_scrape_and_is_named(broker, monkeypatch, caplog):
    broker.create("t", 3)
    made = collector(broker)

    scandir = os.scandir

    def refused(path):
        if str(path).endswith("t-3"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", refused)
        for _ in range(2):
            found = samples(made)
    assert value(found, "kafka_topic_partitions", topic="t") == 1
    assert ("kafka_log_log_size", (("partition", "3"), ("topic", "t"))) not in found
    assert made.sizes.failures == {"t-3": "cannot measure the log: [Errno 13] Permission denied"}
    assert caplog.text.count("cannot measure the log of t-3: [Errno 13] Permission denied") == 1
    assert value(samples(made), "kafka_log_log_size", topic="t", partition="3") == 0
    assert made.sizes.failures == {}


def test_every_metric_except_those_of_the_spool_has_samples(broker):
    """Which families come needs no more than something of each kind; what is in them, others test."""
    clock = Clock()
    slot, made = broker.create("t", 0), collector(broker, clock=clock)
    made.tasks = lambda: [TaskState("retention", 1000, NOW_MS, NOW_MS)]
    made.tick()
    slot_probe.append(slot, [batch(10)])
    clock.ms += 60_000
    for offset in (6, 4):  # it goes back
        put_reader_position(ANYBODY, b"c", slot, slot_probe.incarnation_of(slot), offset, ended=True)
    count_usage(ANYBODY, b"c", b"t", PRODUCE, (1, 1, 1, 1, 1, 1, 1, 1))
    gauge("parked_fetches", 2)
    count("closed_eof")
    count_loop_delay(70)
    broker.shm.set_disk(0, 0, 10, 20)
    client_quotas.set_windows(11, 1)
    for kind in QuotaKind:
        Use(kind, b"alice", None, 1000.0)
    groups = [GroupRow("g", "Stable", 1, {"t": {0: 4}})]
    report = TransactionReport(load_max_ms=1, load_avg_ms=1)
    shown = [(metric, list(samples)) for metric, samples in measured(made).families(groups, report)]
    families = {metric.name for metric, samples in shown if samples}
    by_workers_alone = {name for name in METRICS if "requestmetrics" in name or "socket_server_metrics" in name}
    by_workers_alone |= {
        "odradek_topic_largest_batch_bytes",
        "odradek_failing_broker_logins",
        "odradek_tls_reload_failed",
    }
    by_workers_alone |= {name for name in METRICS if re.match("odradek_tls_(certificate|truststore)_", name)}
    by_workers_alone |= {name for name in METRICS if name.startswith("odradek_jwks_")}  # of listeners with OAUTHBEARER
    by_spool = {name for name in METRICS if name.startswith("odradek_spool")}
    of_processes = {name for name in METRICS if name.startswith("process_")}  # the test is no child of a supervisor
    assert set(METRICS) - families - of_processes == by_workers_alone | by_spool | IN_CLUSTERS
    assert families <= set(METRICS)
    registry = Exposition(METRICS.values(), lambda: shown).registry
    for openmetrics, oracle, parser in (
        (False, generate_latest, parse),
        (True, generate_openmetrics, parse_openmetrics),
    ):
        ours = b"".join(pieces(map(Family._make, shown), openmetrics)).decode()
        assert parsed(parser, ours) == parsed(parser, oracle(registry).decode())
