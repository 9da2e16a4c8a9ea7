"""The reporter of a real broker under real clients: what it tells, and what deaths do to it."""

import gzip
import itertools
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from odradek.protocol.schemas import incremental_alter_configs
from odradek.testing import Broker
from tests.committing import commit
from tests.metrics.scraping import get, scrape, scrape_with_groups
from tests.waiting import until
from tests.wire import Wire

pytestmark = [pytest.mark.xdist_group("metrics-reporter"), pytest.mark.timeout(600)]

CONFIG = {
    "metrics.listener": "127.0.0.1:0",
    "num.network.threads": 2,
    "offsets.topic.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with Broker(CONFIG, {"t": 3}, directory=tmp_path_factory.mktemp("metrics")) as one:
        produce(one, "t", 0, 10)
        commit(one.bootstrap_servers, "g", "t", 0, 4)
        yield one


def produce(broker, topic, partition, count, size=100):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "writer"})
    for _ in range(count):
        producer.produce(topic, b"x" * size, partition=partition)
    assert producer.flush(60) == 0


def process(broker, kind, ordinal=0):
    return next(one for one in broker.processes() if one["kind"] == kind and one["ordinal"] == ordinal)


def kill(broker, kind):
    """kill -9, and wait until a successor serves."""
    before = until(lambda: (one := process(broker, kind))["state"] == "serving" and one, f"the {kind}")
    os.kill(before["pid"], signal.SIGKILL)

    def restarted():
        now = process(broker, kind)
        return now["restarts"] > before["restarts"] and now["state"] == "serving"

    until(restarted, f"a successor of the {kind}")


def is_ready(broker):
    try:
        return get(broker, "/readyz")[1] == b"ready\n"
    except urllib.error.HTTPError as error:
        assert error.code == 503
        return False


def test_promtool_finds_nothing_to_say(broker):
    result = subprocess.run(
        ["promtool", "check", "metrics"], input=get(broker, "/metrics")[1], capture_output=True, timeout=60, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


def test_openmetrics_is_read_by_prometheus_clients_parser(broker):
    def group_family():
        headers, body = get(
            broker, "/metrics", Accept="application/openmetrics-text; version=1.0.0", **{"Accept-Encoding": "gzip"}
        )
        assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        families = {family.name: family for family in parse_openmetrics(gzip.decompress(body).decode())}
        assert families["kafka_server_brokertopicmetrics_bytesin"].type == "counter"
        return families.get("kafka_consumergroup_lag_sum")

    assert until(group_family, "groups in the metrics").type == "unknown"


def test_a_request_receives_only_the_series_that_it_names(broker):
    _, body = get(broker, "/metrics?name[]=odradek_build_info&name[]=kafka_server_brokertopicmetrics_bytesin_total")
    names = {sample.name for family in parse(body.decode()) for sample in family.samples}
    assert names == {"odradek_build_info", "kafka_server_brokertopicmetrics_bytesin_total"}


def test_health_readiness_and_the_status_name_the_address(broker):
    assert get(broker, "/healthz")[1] == b"ok\n"
    until(lambda: is_ready(broker), "readiness")
    status = subprocess.run(
        [sys.executable, "-m", "odradek.cli.main", "status", "--pid", str(broker.pid)],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    assert f"{broker.metrics_url}/metrics" in status and "reporter" in status


def test_the_lag_of_a_group_is_exact_and_ages(broker):
    found = scrape_with_groups(broker)
    place = {"consumergroup": "g", "topic": "t", "partition": "0"}
    assert found.value("kafka_consumergroup_current_offset", **place) == 4
    assert found.value("kafka_topic_partition_current_offset", topic="t", partition="0") == 10
    assert found.value("kafka_consumergroup_lag", **place) == 6
    assert found.value("kafka_consumergroup_lag_sum", consumergroup="g", topic="t") == 6
    assert found.value("kafka_consumergroup_members", consumergroup="g") == 0
    young = found.value("odradek_consumergroup_lag_seconds", **place)
    until(
        lambda: scrape_with_groups(broker).value("odradek_consumergroup_lag_seconds", **place) > max(0.5, young),
        "a greater age",
    )
    commit(broker.bootstrap_servers, "g", "t", 0, 10)
    found = scrape_with_groups(broker)
    assert found.value("kafka_consumergroup_lag", **place) == 0
    assert found.value("odradek_consumergroup_lag_seconds", **place) == 0
    commit(broker.bootstrap_servers, "g", "t", 0, 4)


def test_members_of_a_group_are_counted(broker):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "members"})
    consumer.subscribe(["t"])
    try:
        until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "an assignment")
        found = scrape_with_groups(broker)
        assert found.value("kafka_consumergroup_members", consumergroup="members") == 1
    finally:
        consumer.close()


def test_standard_metrics_of_every_process_are_those_of_the_kernel(broker):
    found = scrape(broker)
    for one in broker.processes():
        labels = {"process": one["kind"], "ordinal": str(one["ordinal"])}
        assert found.value("odradek_process_up", **labels) == 1
        assert found.value("process_cpu_seconds_total", **labels) >= 0
        assert found.value("process_resident_memory_bytes", **labels) > 1 << 20
        descriptors = len(list(Path(f"/proc/{one['pid']}/fd").iterdir()))
        assert abs(found.value("process_open_fds", **labels) - descriptors) < 20
        with open(f"/proc/{one['pid']}/stat") as stat:
            ticks = int(stat.read().rpartition(") ")[2].split()[19])
        with open("/proc/stat") as stat:
            boot = next(int(line.split()[1]) for line in stat if line.startswith("btime"))
        started = found.value("process_start_time_seconds", **labels)
        assert started == pytest.approx(boot + ticks / os.sysconf("SC_CLK_TCK"), abs=1.5)


def test_settings_of_the_broker_change_without_waiting_for_the_reporter(broker):
    """Whoever is kept from running for two seconds is waited for in vain: once, and not each time as one that does not look."""
    values = itertools.count(400_000)
    with Wire(broker.host, broker.port) as client:
        make = incremental_alter_configs.Request

        def changed_without_waiting():
            before = len(broker.log_file.read_text())
            for value in (str(next(values)), str(next(values))):
                config = make.AlterableConfig(name="log.retention.ms", config_operation=0, value=value)
                resource = make.AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
                answer = client.ask(make(resources=[resource]), incremental_alter_configs.API_KEY, 1)
                assert answer.responses[0].error_code == 0
            text = broker.log_file.read_text()[before:]
            assert f"changed the settings of all brokers: log.retention.ms={value}\n" in text
            return "have not applied the new settings" not in text

        until(changed_without_waiting, "a change that everybody takes over in time")


def test_a_coordinator_that_hangs_costs_the_groups_alone(broker):
    pid = process(broker, "coordinator")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        found = scrape(broker)
        assert not [key for key in found.samples if "consumergroup" in key[0]]
        assert found.value("kafka_topic_partition_current_offset", topic="t", partition="0") == 10
    finally:
        os.kill(pid, signal.SIGCONT)
    until(
        lambda: scrape(broker).value("kafka_consumergroup_members", consumergroup="g") is not None, "the group's return"
    )


@pytest.mark.parametrize("kind", ["reporter", "coordinator", "worker", "cleaner"])
def test_no_counter_goes_back_when_a_process_is_killed(broker, kind):
    produce(broker, "t", 1, 20)
    before = scrape(broker)
    restarts = before.value("odradek_process_restarts_total", process=kind, ordinal="0")
    kill(broker, kind)
    after = scrape(broker)
    for (name, labels), value in before.counters().items():
        if name != "process_cpu_seconds_total":
            assert after.samples.get((name, labels), -1) >= value, (name, labels)
    assert after.value("odradek_process_restarts_total", process=kind, ordinal="0") == restarts + 1
    assert after.value("odradek_boot_time_seconds") == before.value("odradek_boot_time_seconds")
    until(lambda: is_ready(broker), "readiness")


def test_a_scrape_waits_for_the_reporters_successor(broker):
    """The listening socket is the supervisor's: nobody is refused while there is no reporter."""
    os.kill(process(broker, "reporter")["pid"], signal.SIGKILL)
    assert get(broker, "/healthz")[1] == b"ok\n"
    until(lambda: process(broker, "reporter")["state"] == "serving", "the successor")


def test_a_port_in_use_stops_the_start_with_one_line(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = subprocess.run(
            [
                *(sys.executable, "-m", "odradek.cli.main", "start"),
                *("--set", f"metrics.listener=127.0.0.1:{port}"),
                *("--set", "listeners=PLAINTEXT://127.0.0.1:0"),
                *("--set", f"log.dirs={tmp_path}/data"),
            ],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert result.returncode == 1 and "Traceback" not in result.stderr
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("odradek: ")]
    assert f"metrics.listener=127.0.0.1:{port}" in line and "in use" in line


@pytest.mark.parametrize("address", ["9404", "127.0.0.1:99999", "[::1:9404", "host:port"])
def test_an_invalid_address_is_reported(tmp_path, address):
    result = subprocess.run(
        [sys.executable, "-m", "odradek.cli.main", "start", "--set", f"metrics.listener={address}"],
        capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 1
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("odradek: ")]
    assert f"metrics.listener={address}" in line and "host:port" in line


def test_without_listener_and_spool_there_is_no_reporter(tmp_path):
    with Broker(directory=tmp_path) as broker:
        assert broker.status()["metrics"] is None
        assert "reporter" not in {one["kind"] for one in broker.processes()}


def test_readiness_ends_with_the_coordinator(tmp_path):
    with Broker(CONFIG, directory=tmp_path) as broker:
        url, pid = broker.metrics_url, process(broker, "coordinator")["pid"]

        def reason():
            try:
                with urllib.request.urlopen(f"{url}/readyz", timeout=60) as answer:
                    assert answer.read() == b"ready\n"
            except urllib.error.HTTPError as error:
                assert error.code == 503
                return error.read().decode()
            return None

        until(lambda: reason() is None, "readiness")  # the reporter itself may still be starting
        os.kill(broker.pid, signal.SIGSTOP)  # nobody restarts the coordinator
        try:
            os.kill(pid, signal.SIGTERM)
            assert "coordinator is stopping" in until(reason, "a reason")
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        until(lambda: reason() is None, "readiness")
