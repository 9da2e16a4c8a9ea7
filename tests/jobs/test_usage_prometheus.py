"""From a real Prometheus to the tables: equal to the spool of the same broker, and to plain additions."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.jobs.usage_report import job, prometheus, spool_sources
from odradek.jobs.usage_report.errors import ReportError
from odradek.jobs.usage_report.options import Source
from odradek.jobs.usage_report.prometheus_http import Labels, Prometheus, Query, Samples
from tests.jobs import spools
from tests.jobs.conftest import Report
from tests.jobs.prometheus_server import PrometheusServer, Proxy, Sample
from tests.jobs.spools import HOUR_MS, MINUTE_MS, VALUES, at

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200), pytest.mark.java]

DAY = at("2025-11-20")
NEXT_DAY = at("2025-11-21")
NAMES = ("bytes_in", "bytes_out", "records_in", "records_out", "requests", "errors")


def place_of(broker: int) -> dict[str, str]:
    return {"instance": f"b{broker}:9404", "job": "odradek"}


def scrape(boot: spools.Boot, began_ms: int) -> list[Sample]:
    """What the broker's exporter says at the end of an interval: sums over pages that do not go back, zeros left out."""
    sums: dict[tuple[str, str, str | None, str], list[int]] = defaultdict(lambda: [0] * len(VALUES))
    for (_, *key), values in boot.truth.items():
        total = sums[tuple(key)]  # type: ignore[index]
        total[:] = [a + b for a, b in zip(total, values, strict=True)]
    found: list[tuple[str, dict[str, str], float]] = [("odradek_boot_time_seconds", {}, began_ms / 1000)]
    found.append(("odradek_broker_info", {"id": str(boot.broker)}, 1.0))
    members = boot.state.get(("cluster",), {"brokers": [boot.broker]})["brokers"]
    found += [("kafka_broker_info", {"id": str(member), "address": "localhost:9092"}, 1.0) for member in members]
    connected: dict[tuple[str, str], int] = defaultdict(int)
    for (principal, client, topic, api), values in sums.items():
        labels = {"principal": principal, "client_id": client, "topic": topic or "", "api": api}
        found += [
            (f"odradek_usage_{name}_total", labels, float(values[n])) for n, name in enumerate(NAMES) if values[n]
        ]
        if values[6]:
            found.append(("odradek_usage_throttle_seconds_total", labels, values[6] / 1000))
        connected[(principal, client)] += values[7]
    for (principal, client), ms in connected.items():
        if ms:
            labels = {"principal": principal, "client_id": client}
            found.append(("odradek_usage_connection_seconds_total", labels, ms / 1000))
    for row in boot.state.values():
        if row["kind"] != "cluster":
            found += STATE[row["kind"]](row)
    return [(metric, labels | place_of(boot.broker), boot.wall_ms, value) for metric, labels, value in found]


def of_topic(row: dict[str, Any]) -> list[tuple[str, dict[str, str], float]]:
    topic = {"topic": row["topic"]}
    halves = [({**topic, "partition": str(n)}, n) for n in range(2)]
    return [
        ("kafka_topic_partitions", topic, float(row["partitions"])),
        ("odradek_topic_stored_bytes", topic, float(row["bytes"])),
        ("odradek_topic_retention_seconds", topic, row["retention_ms"] / 1000),
        ("odradek_topic_retention_bytes", topic, float(row["retention_bytes"])),
        *(("kafka_log_log_size", place, float(row["largest"] - n)) for place, n in halves),
        *(("kafka_topic_partition_current_offset", place, float((row["end"] + n) // 2)) for place, n in halves),
        *(("kafka_topic_partition_oldest_offset", place, float((row["start"] + n) // 2)) for place, n in halves),
    ]


def of_group(row: dict[str, Any]) -> list[tuple[str, dict[str, str], float]]:
    labels = {"consumergroup": row["group"], "topic": row["topic"]}
    found = [("kafka_consumergroup_lag_sum", labels, float(row["lag"]))]
    if row["lag_s"] is not None:
        found.append(("odradek_consumergroup_lag_seconds", labels | {"partition": "0"}, float(row["lag_s"])))
    return found


def of_reader(row: dict[str, Any]) -> list[tuple[str, dict[str, str], float]]:
    labels = {"principal": row["principal"], "client_id": row["client"], "topic": row["topic"]}
    return [
        *(("odradek_reader_lag", labels | {"partition": str(n)}, float((row["lag"] + n) // 2)) for n in range(2)),
        ("odradek_reader_lag_seconds", labels | {"partition": "0"}, float(row["lag_s"])),
        *(
            ("odradek_reader_last_back_timestamp_seconds", labels | {"partition": str(n)}, row["back"] / 1000 - n)
            for n in range(2)
        ),
    ]


def of_worker(row: dict[str, Any]) -> list[tuple[str, dict[str, str], float]]:
    labels = {"worker": str(row["worker"])}
    return [
        ("odradek_worker_connections", labels, float(row["connections"])),
        ("odradek_worker_busy_seconds_total", labels, row["busy_us"] / 1e6),
        ("odradek_socket_bytes_in_total", labels, float(row["in"])),
        ("odradek_socket_bytes_out_total", labels, float(row["out"])),
    ]


def of_log_dir(row: dict[str, Any]) -> list[tuple[str, dict[str, str], float]]:
    labels = {"log_dir": row["path"]}
    return [
        ("odradek_log_dir_free_bytes", labels, float(row["free"])),
        ("odradek_log_dir_total_bytes", labels, float(row["total"])),
    ]


STATE = {"topic": of_topic, "group": of_group, "reader": of_reader, "worker": of_worker, "log_dir": of_log_dir}


def live(boot: spools.Boot, minutes: int, seed: int, scraped: list[Sample], began_ms: int, leads: bool = True) -> None:
    """Random minutes, written to a spool and scraped at their ends.

    :param leads: whether the broker is the coordinator of the group; only one of a cluster is
    """
    chance = random.Random(seed)
    clients = [
        (chance.randrange(2), f"User:u{n % 3}", f"client-{n}", chance.choice(["orders", 'a "quoted",\\topic', "päge", None]),
         chance.choice(["Produce", "Fetch"]))
        for n in range(6)
    ]  # fmt: skip
    busy_us = chance.randrange(1_000_000)
    for minute in range(minutes):
        for series in clients:
            if chance.random() < 0.5 and minute > series[0] * 20:  # some come late
                boot.count(series, [*(chance.randrange(1000) for _ in VALUES[:-1]), 0])
            boot.count((series[0], series[1], series[2], None, ""), [0] * 7 + [chance.randrange(60_000)])
        busy_us += chance.randrange(60_000_000)
        boot.set(
            kind="worker",
            worker=0,
            connections=chance.randrange(50),
            busy_us=busy_us,
            **{"in": busy_us, "out": busy_us // 2},
        )
        boot.set(kind="topic", topic="orders", id="01", partitions=2, replicas=2, bytes=chance.randrange(10**12),
                 largest=minute + 7, end=minute * 10, start=minute, retention_ms=7, retention_bytes=-1)  # fmt: skip
        boot.set(kind="log_dir", path="/data", free=chance.randrange(10**12), total=10**13, online=True)
        lag, lag_s = chance.randrange(1000), chance.randrange(100) / 8
        if leads:
            boot.set(kind="group", group="g", topic="orders", lag=lag, lag_s=lag_s, members=2)
        boot.set(
            kind="reader", principal="User:s", client="spark", topic="orders", lag=chance.randrange(1000), lag_s=0.25,
            back=boot.wall_ms - 9_000,
        )  # fmt: skip
        boot.tick()
        scraped += scrape(boot, began_ms)


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, PrometheusServer, list[spools.Boot]]]:
    """A broker that was restarted in the middle: its spool, the Prometheus that scraped it, and the expected counts."""
    directory = tmp_path_factory.mktemp("lives")
    spool = directory / "spool"
    spool.mkdir()
    scraped: list[Sample] = []
    first = spools.Boot(spool, "aa01", at("2025-11-19T22:30:30"))
    live(first, 200, 1, scraped, first.wall_ms)
    began_ms = first.wall_ms + 12 * MINUTE_MS
    second = spools.Boot(spool, "bb02", began_ms)
    live(second, 150, 2, scraped, began_ms)
    server = PrometheusServer(directory / "prometheus", scraped)
    yield spool, server, [first, second]
    server.stop()


def test_spool_and_prometheus_agree(
    report: Report, tmp_path: Path, lives: tuple[Path, PrometheusServer, list[spools.Boot]]
) -> None:
    spool, server, boots = lives
    of_spool = Report(tmp_path / "of-spool")
    of_spool.run(Source(spools=(str(spool),)), DAY, NEXT_DAY)
    report.run(Source(prometheus=server.url), DAY, NEXT_DAY)
    ends = [boots[0].wall_ms, boots[0].wall_ms + 12 * MINUTE_MS, boots[1].wall_ms]
    for name in ("traffic_hourly", "topics_hourly", "log_dirs_hourly", "lag_hourly", "workers_hourly"):
        ours, theirs = report.rows(name), of_spool.rows(name)
        for row in (*ours, *theirs):
            # where a life ends Prometheus takes its last samples for five minutes more, and where one begins it looks
            # half a minute later: means are shifted
            if row["hour"] in [at_ms // HOUR_MS * HOUR_MS for at_ms in ends]:
                row.pop("lag_avg", None)
                row.pop("busy_share", None)
        assert len(ours) == len(theirs) > 0, name
        for one, other in zip(ours, theirs, strict=True):
            assert one == pytest.approx(other, rel=1e-9), (name, one, other)
    truth = {key: values for key, values in spools.traffic(*boots).items() if DAY <= key[0] < NEXT_DAY}
    assert sum(row["bytes_in"] for row in report.rows("traffic_hourly")) == sum(values[0] for values in truth.values())
    gaps = report.rows("gaps")
    assert any("restarted" in row["reason"] for row in gaps)
    down = [row for row in gaps if row["reason"] == "the broker was not scraped"]
    assert len(down) == 2 and down[0]["to"] - down[0]["from"] > 6 * MINUTE_MS and down[1]["to"] == NEXT_DAY

    # what Prometheus answers in part changes nothing
    before = {name: report.rows(name) for name in ("traffic_hourly", "gaps", "coverage_hourly")}
    proxy = Proxy(server.url)
    try:
        proxy.change = lambda document: document.update(
            {"warnings": ["a store is away"]} if "consumergroup" in str(document)[:3000] else {}
        )
        with pytest.raises(ReportError, match="returned a partial response: a store is away"):
            report.run(Source(prometheus=proxy.url), DAY, NEXT_DAY)
    finally:
        proxy.stop()
    assert {name: report.rows(name) for name in before} == before


def a_cluster(directory: Path, scraped: list[Sample], ids: tuple[int, ...] = (1, 2, 3)) -> list[spools.Boot]:
    """Brokers of a topic with a replica on each, with a spool each, and what a Prometheus has scraped."""
    boots = []
    for broker in ids:
        (directory / str(broker)).mkdir(parents=True)
        boot = spools.Boot(directory / str(broker), f"{broker:04x}", at("2025-11-19T23:10:30"), broker)
        boot.set(kind="cluster", brokers=[*ids])
        live(boot, 130, broker, scraped, boot.wall_ms, leads=broker == 2)
        boots.append(boot)
    return boots


def test_the_spools_and_the_prometheus_of_a_cluster_agree(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic has a replica on each broker: its offsets count once, its bytes for each replica, traffic at its leader.

    The job reads for an hour: what the brokers write meanwhile is not missing.
    """
    scraped: list[Sample] = []
    boots = a_cluster(tmp_path / "spools", scraped)
    of_spools = Report(tmp_path / "of-spools")

    def now_of(running: Report) -> int:
        return boots[0].wall_ms + HOUR_MS * any(line.startswith("reading ") for line in running.said)

    for module in (job, spool_sources):
        monkeypatch.setattr(module, "now_ms", lambda: now_of(of_spools))
    said = of_spools.run(Source(spools=tuple(str(boot.directory) for boot in boots)), DAY, NEXT_DAY)
    assert any(line.startswith("3 brokers, ") for line in said), said
    server = PrometheusServer(tmp_path / "prometheus", scraped)
    monkeypatch.setattr(job, "now_ms", lambda: now_of(report))
    try:
        report.run(Source(prometheus=server.url), DAY, NEXT_DAY)
    finally:
        server.stop()
    assert not [row for source in (report, of_spools) for row in source.rows("gaps") if row["to"] > boots[0].wall_ms]
    ends = boots[0].wall_ms // HOUR_MS * HOUR_MS
    for name in (
        "traffic_hourly",
        "topics_hourly",
        "topic_dirs_hourly",
        "log_dirs_hourly",
        "lag_hourly",
        "workers_hourly",
    ):
        ours, theirs = report.rows(name), of_spools.rows(name)
        assert len(ours) == len(theirs) > 0, name
        for one, other in zip(ours, theirs, strict=True):
            if one.get("kind") == "reader":  # the largest sum is at most the sum of the largest
                assert one.pop("lag_max") <= other.pop("lag_max")
            if one["hour"] == ends:  # Prometheus takes the last samples for five minutes more
                for row in (one, other):
                    row.pop("lag_avg", None)
                    row.pop("busy_share", None)
            assert one == pytest.approx(other, rel=1e-9), (name, one, other)
    truth = {key: values for key, values in spools.traffic(*boots).items() if DAY <= key[0] < NEXT_DAY}
    for number, name in enumerate(spools.COLUMNS):
        assert sum(row[name] for row in report.rows("traffic_hourly")) == sum(row[number] for row in truth.values()), (
            name
        )
    [first, *_] = of_spools.rows("topics_hourly")
    state = boots[0].state["topic", "orders"]
    assert (first["partitions"], first["replicas"]) == (2, 6)
    last = of_spools.rows("topics_hourly")[-1]
    assert (last["end_offsets"], last["start_offsets"]) == (state["end"], state["start"])
    assert last["stored_bytes"] == sum(boot.state["topic", "orders"]["bytes"] for boot in boots)
    assert {(row["broker"], row["path"]) for row in of_spools.rows("log_dirs_hourly")} == {
        (n, "/data") for n in (1, 2, 3)
    }


def test_a_broker_whose_spool_or_scrapes_are_missing_is_named(report: Report, tmp_path: Path) -> None:
    scraped: list[Sample] = []
    boots = a_cluster(tmp_path / "spools", scraped)
    places = [str(boot.directory) for boot in boots]
    report.run(Source(spools=tuple(places)), DAY, NEXT_DAY)
    whole = report.rows("traffic_hourly")
    unread = "broker 3 was a live member of the cluster, but its data are not in this report"
    assert not any(row["reason"] == unread for row in report.rows("gaps"))

    # a smaller source does not replace the tables of the day
    said = report.run(Source(spools=tuple(places[:2])), DAY, NEXT_DAY)
    assert any("hours of broker 3 from which they were written" in line for line in said), said
    assert report.rows("traffic_hourly") == whole

    two = Report(tmp_path / "two")
    two.run(Source(spools=tuple(places[:2])), DAY, NEXT_DAY)
    gaps = [row for row in two.rows("gaps") if row["reason"] == unread]
    assert [(row["from"], row["source"]) for row in gaps] == [(DAY, "broker 3")]
    ended = [row["source"] for row in two.rows("gaps") if row["reason"] == "there is no interval"]
    assert ended == [f"broker {broker}: after the last interval of the spool" for broker in (1, 2)]

    server = PrometheusServer(
        tmp_path / "prometheus", [sample for sample in scraped if sample[1]["instance"] != "b3:9404"]
    )
    scrapes = Report(tmp_path / "scrapes")
    try:
        scrapes.run(Source(prometheus=server.url), DAY, NEXT_DAY)
    finally:
        server.stop()
    assert [row["source"] for row in scrapes.rows("gaps") if row["reason"] == unread] == ["broker 3"]


def test_offsets_of_a_topic_are_unknown_while_the_broker_of_a_partition_is_not_scraped(tmp_path: Path) -> None:
    """A sum without this partition would look like a topic that shrinks."""
    step_ms = 10 * MINUTE_MS  # a sample counts for five minutes
    scraped: list[Sample] = []
    for step in range(3):
        at_ms = DAY + step * step_ms
        for broker in (1, 2, 3):
            if (step, broker) != (1, 3):
                place = {"topic": "events", **place_of(broker)}
                scraped.append(("kafka_topic_partitions", place, at_ms, 3.0))
                for name in ("current", "oldest"):
                    metric = f"kafka_topic_partition_{name}_offset"
                    scraped.append((metric, {**place, "partition": str(broker)}, at_ms, 100.0 * broker + step))
    server = PrometheusServer(tmp_path / "prometheus", scraped)
    try:
        source = Prometheus(server.url, 'job="odradek"', step_ms // 1000)
        queries = [metric.query for metric in prometheus.METRICS if metric.column in ("end_offsets", "start_offsets")]
        for query in queries:
            ((labels, found),) = source.samples(query, DAY, DAY + 2 * step_ms)
            assert (labels, found) == ({"topic": "events"}, [(DAY, 600.0), (DAY + 2 * step_ms, 606.0)])
    finally:
        server.stop()
    assert len(queries) == 2


def test_a_prometheus_that_never_scraped_the_broker_is_reported(
    report: Report, lives: tuple[Path, PrometheusServer, Any]
) -> None:
    _, server, _ = lives
    with pytest.raises(
        ReportError, match=r'has no samples of odradek_boot_time_seconds with \{job="other"\} from 2025-11-20T00'
    ):
        report.run(Source(prometheus=server.url, match='job="other"'), DAY, NEXT_DAY)
    with pytest.raises(ReportError, match="has no samples of odradek_boot_time_seconds from 2025-11-12T00"):
        report.run(Source(prometheus=server.url), at("2025-11-12"), at("2025-11-13"))


class Sampled:
    """A replacement of Prometheus with samples by metric."""

    step_ms = MINUTE_MS

    def __init__(self, boots: Samples, counter: Samples) -> None:
        self._of = {"odradek_boot_time_seconds": boots, "c_total": counter}

    def samples(self, query: Query, start_ms: int, end_ms: int) -> Iterator[tuple[Labels, Samples]]:
        some = [(at_ms, value) for at_ms, value in self._of[query.metric] if start_ms <= at_ms <= end_ms]
        if some:
            yield {"job": "j", "instance": "i"}, some


def minutes(values: dict[int, float]) -> Samples:
    return [(DAY + minute * MINUTE_MS, value) for minute, value in values.items()]


OLD, NEW = DAY / 1000 - 9 * 3600, DAY / 1000 + 630  # when the broker was started
COUNTER = prometheus.Metric("traffic", "bytes_in", Query("c_total"), True)


@pytest.mark.parametrize(
    ("boots", "counter", "gained", "unknown"),
    [
        ({0: OLD, 1: OLD, 2: OLD}, {0: 100, 1: 130, 2: 131}, 31, 0),
        ({-1: OLD, 0: OLD, 1: OLD}, {1: 30}, 30, 0),  # a new series of a broker that was scraped before
        ({1: OLD, 2: OLD}, {1: 30, 2: 35}, 5, 1),  # nothing is known before
        ({11: NEW, 12: NEW}, {11: 30, 12: 35}, 35, 0),  # the broker is as new as its series
        ({0: OLD, 5: OLD, 6: OLD}, {0: 100, 5: 140, 6: 150}, 50, 0),  # not scraped in between
        ({0: OLD, 11: NEW, 12: NEW}, {0: 100, 11: 130, 12: 131}, 131, 0),  # a restart, and more than before already
        ({0: OLD, 1: OLD, 2: OLD, 3: OLD}, {0: 100, 3: 130}, 130, 0),  # lost its name, and has it again: from 0
        ({0: OLD, 1: OLD, 2: OLD}, {0: 100, 1: 40, 2: 45}, 45, 0),  # went back, whatever the reason
        ({-30: OLD, -29: OLD, 20: OLD}, {-29: 100, 20: 130}, 30, 0),  # known from before the period
    ],
)
def test_gains_of_a_counter(boots: dict[int, float], counter: dict[int, float], gained: int, unknown: int) -> None:
    source: Any = Sampled(minutes(boots), minutes(counter))
    rows = list(prometheus.gains(source, COUNTER, DAY, NEXT_DAY))
    assert (sum(row["gained"] for row in rows), sum(row["unknown"] for row in rows)) == (gained, unknown)
    assert {row["hour"] for row in rows} == {DAY}


def test_the_increase_after_a_restart_belongs_to_the_time_since_it() -> None:
    source: Any = Sampled(minutes({0: OLD, 11: NEW, 12: NEW}), minutes({0: 100, 11: 130, 12: 131}))
    [row] = prometheus.gains(source, COUNTER, DAY, NEXT_DAY)
    assert row["elapsed_ms"] == 12 * MINUTE_MS - round(NEW * 1000 - DAY)


def test_a_step_that_ends_on_the_hour_belongs_to_the_hour_before() -> None:
    source: Any = Sampled(minutes(dict.fromkeys(range(62), OLD)), minutes({minute: minute for minute in range(62)}))
    rows = prometheus.gains(source, COUNTER, DAY, NEXT_DAY)
    assert {row["hour"]: row["gained"] for row in rows} == {DAY: 60, DAY + HOUR_MS: 1}


def test_time_is_split_by_days_or_by_the_limit_of_prometheus() -> None:
    assert prometheus.chunks(DAY, DAY + 30 * HOUR_MS, 60_000) == [(DAY, NEXT_DAY), (NEXT_DAY, DAY + 30 * HOUR_MS)]
    fine = prometheus.chunks(DAY, NEXT_DAY, 1000)
    assert fine[0] == (DAY, DAY + 2 * HOUR_MS) and fine[-1][1] == NEXT_DAY
    assert all((end - start + prometheus.LOOK_BACK_MS) // 1000 <= 11_000 for start, end in fine)
