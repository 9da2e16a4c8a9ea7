"""Transactions in the metrics: the coordinator's report, open transactions in slots, counts that outlive a coordinator."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek._ext.shm.metering import count
from odradek._ext.testing import slot_probe
from odradek.metrics.coordinator_report import MalformedParts, Parts, decode_parts, encode_parts
from odradek.metrics.transactions import (
    LATE_AFTER_MS,
    STATES,
    UNKNOWN,
    MalformedReport,
    OpenTransactions,
    TransactionReport,
    decode_transactions,
    encode_transactions,
)
from odradek.processes.coordinator.transactions.metering import LOAD_WINDOW_MS, LoadTimes, TransactionMeter
from odradek.processes.reporter import NOTHING, decode_coordinated
from odradek.storage.batch import COMMIT, TRANSACTIONAL, build_end_marker
from tests.metrics.test_collector import SETTINGS, Clock, collector, measured, samples, value
from tests.shm.one_broker import OneBroker, batch

MAX_TIMEOUT_MS = 900_000
REPORT = TransactionReport(
    ids_by_state=dict.fromkeys(STATES, 0) | {"Empty": 4, "Ongoing": 2},
    completing=3,
    oldest_completing_ms=1500,
    unknown_destinations=5,
    append_retries=1,
    loading=7,
    load_max_ms=80,
    load_avg_ms=30,
)


@pytest.fixture
def broker(tmp_path):
    with OneBroker(tmp_path, max_slots=64) as one:
        yield one


def open_transaction(slot, producer_id=7):
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "attributes": TRANSACTIONAL}
    ((error, offset, _),) = slot_probe.append(slot, [batch(2, **fields)])
    assert error == 0
    return offset


def end_transaction(slot, producer_id=7):
    marker = build_end_marker(
        COMMIT, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, base_offset=0, timestamp=0
    )
    ((error, _, _),) = slot_probe.append(slot, [marker])
    assert error == 0


COUNTS = st.integers(0, 2**32 - 1)


@given(
    st.builds(
        TransactionReport,
        ids_by_state=st.fixed_dictionaries(dict.fromkeys(STATES, COUNTS)),
        completing=COUNTS,
        oldest_completing_ms=st.integers(-1, 2**62),
        unknown_destinations=COUNTS,
        append_retries=COUNTS,
        loading=COUNTS,
        load_max_ms=st.integers(-1, 2**62),
        load_avg_ms=st.integers(-1, 2**62),
    )
)
def test_a_report_is_decoded_as_it_was_encoded(report):
    assert decode_transactions(encode_transactions(report)) == report


def test_a_report_of_another_length_is_malformed():
    data = encode_transactions(REPORT)
    for wrong in (data[:-1], data + b"\0", b""):
        with pytest.raises(MalformedReport):
            decode_transactions(wrong)


@pytest.mark.parametrize("groups", [None, b"", b"groups"])
@pytest.mark.parametrize("transactions", [None, b"", b"transactions"])
def test_each_part_of_the_coordinators_answer_may_be_absent(groups, transactions):
    data = encode_parts(Parts(groups, transactions))
    assert decode_parts(data) == Parts(groups, transactions)
    for end in range(len(data) - len(groups or b"")):
        with pytest.raises(MalformedParts):
            decode_parts(data[:end])


def test_the_reporter_decodes_what_the_coordinator_sends():
    assert decode_coordinated(encode_parts(Parts(None, None))) == NOTHING
    decoded = decode_coordinated(encode_parts(Parts(b"", encode_transactions(REPORT))))
    assert decoded.groups == [] and decoded.transactions == REPORT


def test_the_age_of_a_transaction_begins_when_it_is_first_seen():
    found = OpenTransactions()
    found.update([(3, 1, 40), (4, 1, 0)], 1000)
    found.update([(3, 1, 40), (4, 1, 90)], 5000)
    assert (len(found), found.oldest_ms(6000)) == (2, 5000)
    limit = MAX_TIMEOUT_MS + LATE_AFTER_MS
    assert found.late(1000 + limit, MAX_TIMEOUT_MS) == 0
    assert found.late(1001 + limit, MAX_TIMEOUT_MS) == 1
    assert found.late(5001 + limit, MAX_TIMEOUT_MS) == 2
    found.update([(3, 2, 40)], 9000)  # the slot belongs to another partition now
    assert (len(found), found.oldest_ms(9500)) == (1, 500)
    found.update([], 9600)
    assert (len(found), found.oldest_ms(9999)) == (0, 0)


def test_open_transactions_are_read_from_the_slots(broker):
    slot, other = broker.create("t", 0), broker.create("u", 0)
    clock = Clock()
    made = measured(collector(broker, clock=clock))
    slot_probe.append(other, [batch(3)])
    open_transaction(slot)
    open_transaction(slot, producer_id=8)
    place = {"topic": "t", "partition": "0"}
    lag, late = (
        "kafka_cluster_partition_laststableoffsetlag",
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
    )
    found = samples(made)
    assert value(found, lag, **place) == 4
    assert value(found, lag, topic="u", partition="0") == 0
    assert value(found, "odradek_partitions_with_open_transactions") == 1
    assert value(found, late) == 0
    clock.ms += MAX_TIMEOUT_MS + LATE_AFTER_MS + 1
    found = samples(made)
    assert value(found, late) == 1
    assert value(found, "odradek_oldest_open_transaction_seconds") > MAX_TIMEOUT_MS / 1000
    end_transaction(slot)
    found = samples(made)
    assert (value(found, lag, **place), value(found, late)) == (3, 0)
    end_transaction(slot, producer_id=8)
    found = samples(made)
    assert value(found, lag, **place) == 0
    assert value(found, "odradek_partitions_with_open_transactions") == 0


def test_the_limit_of_late_transactions_is_the_brokers(broker):
    open_transaction(broker.create("t", 0))
    clock = Clock()
    made = measured(collector(broker, settings=SETTINGS._replace(max_transaction_ms=1000), clock=clock))
    clock.ms += 1000 + LATE_AFTER_MS + 1
    assert value(samples(made), "kafka_server_replicamanager_partitionswithlatetransactionscount") == 1


def test_topics_without_series_have_one_lag_together(broker):
    for topic in ("a", "b", "c"):
        open_transaction(broker.create(topic, 0))
    bounded = samples(measured(collector(broker, settings=SETTINGS._replace(max_topics=1))))
    lags = {labels: lag for (name, labels), lag in bounded.items() if name.endswith("laststableoffsetlag")}
    assert len(lags) == 2 and set(lags.values()) == {2}
    assert (("partition", "other"), ("topic", "other")) in lags


def test_what_the_coordinator_reports_is_shown(broker):
    made = measured(collector(broker))
    with made.lock:
        families = {family.metric.name: list(family.samples) for family in made.families(None, REPORT)}
    assert {
        labels.pairs[0][1]: number for _, labels, number in families["odradek_transactional_ids"]
    } == REPORT.ids_by_state
    for name, number in {
        "odradek_transactions_completing": 3,
        "odradek_oldest_completing_transaction_seconds": 1.5,
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize": 5,
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize": 1,
        "odradek_transaction_partitions_loading": 7,
        "kafka_server_transaction_coordinator_metrics_partition_load_time_max": 80,
        "kafka_server_transaction_coordinator_metrics_partition_load_time_avg": 30,
    }.items():
        ((_, _, shown),) = families[name]
        assert shown == number, name


def test_what_is_not_known_is_absent(broker):
    made = measured(collector(broker))
    report = replace(REPORT, oldest_completing_ms=UNKNOWN, load_max_ms=UNKNOWN, load_avg_ms=UNKNOWN)
    with made.lock:
        some = {family.metric.name for family in made.families(None, report)}
    with made.lock:
        none = {family.metric.name for family in made.families(None)}
    assert "odradek_transactional_ids" in some and "odradek_transactional_ids" not in none
    assert not [name for name in some if "load_time" in name or "oldest_completing" in name]


def test_counts_of_the_coordinator_go_to_its_page_once(broker):
    made = measured(collector(broker))
    counts = SimpleNamespace(
        committed=0, aborted=0, completion_ms=0, timed_out=0, fenced=0, markers=0, marker_failures=0, expired=0
    )
    meter = TransactionMeter(counts)
    counts.committed, counts.aborted, counts.completion_ms, counts.timed_out = 3, 1, 60, 1
    meter.tick()
    counts.committed, counts.fenced, counts.markers, counts.marker_failures, counts.expired = 5, 2, 9, 4, 6
    meter.tick()
    meter.tick()
    found = samples(made)
    assert value(found, "odradek_transactions_completed_total", outcome="committed") == 5
    assert value(found, "odradek_transactions_completed_total", outcome="aborted") == 1
    assert value(found, "odradek_transactions_aborted_by_coordinator_total", reason="timeout") == 1
    assert value(found, "odradek_transactions_aborted_by_coordinator_total", reason="fenced") == 2
    assert value(found, "odradek_transaction_completion_seconds_sum") == pytest.approx(0.06)
    assert value(found, "odradek_transaction_completion_seconds_count") == 6
    assert value(found, "odradek_transaction_markers_total") == 9
    assert value(found, "odradek_transaction_marker_failures_total") == 4
    assert value(found, "odradek_transactional_ids_expired_total") == 6


def test_verifications_of_workers_are_counted(broker):
    made = measured(collector(broker))
    for word, number in (("verifications", 4), ("verification_us", 6000), ("verification_failures", 2)):
        count(word, number)
    found = samples(made)
    prefix = "kafka_server_addpartitionstotxnmanager_"
    assert value(found, prefix + "verificationfailurerate_count") == 2
    assert value(found, prefix + "verificationtimems_sum") == 6
    assert value(found, prefix + "verificationtimems_count") == 4


def test_the_times_of_loads_are_those_of_the_last_half_minute():
    times = LoadTimes()
    assert times.recent(0) == (-1, -1)
    times.add(1000, 50)
    times.add(2000, 100)
    assert times.recent(2000) == (100, 75)
    assert times.recent(1001 + LOAD_WINDOW_MS) == (100, 100)
    assert times.recent(2001 + LOAD_WINDOW_MS) == (-1, -1)
