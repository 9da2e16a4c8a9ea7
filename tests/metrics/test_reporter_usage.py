"""The spool that a reporter writes, and what it answers to `odradek usage`."""

import json
import os
import signal
import subprocess
import sys
import urllib.error

import pytest

from odradek.metrics.spool_files import list_files
from odradek.metrics.spool_reader import Interval, read_file
from odradek.testing import Broker
from tests.committing import commit
from tests.metrics.scraping import get, scrape
from tests.metrics.test_reporter import CONFIG, kill, process, produce
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("metrics-reporter"), pytest.mark.timeout(600)]

SPOOLING = CONFIG | {"usage.spool.max.bytes": 1 << 20, "usage.spool.interval.ms": 1000}


def intervals(directory):
    """All that there are; not amid the writing of one."""

    def whole():
        found[:] = [one for file in list_files(directory) for one in read_file(file.path)]
        return all(isinstance(one, Interval) for one in found)

    found = []
    until(whole, lambda: f"nothing but whole intervals: {found}")
    return found


def rows(found, kind):
    return [row for one in found for row in map(json.loads, one.rows) if row["kind"] == kind]


def test_the_spool_contains_all_rows_until_the_end(tmp_path):
    with Broker(SPOOLING, {"t": 2}, directory=tmp_path) as broker:
        directory = broker.data_dir
        produce(broker, "t", 0, 10)
        commit(broker.bootstrap_servers, "g", "t", 0, 4)
        until(lambda: directory.exists() and rows(intervals(directory), "group"), "a group's row")
        kill(broker, "reporter")
        seen = len(intervals(directory))
        until(lambda: len(intervals(directory)) > seen, "an interval of the successor")
        until(lambda: scrape(broker).value("odradek_spool_intervals_total"), "the successor's intervals")
        metrics = scrape(broker)
        assert metrics.value("odradek_spool_bytes") > 0 and metrics.value("odradek_spool_failures_total") == 0
        produce(broker, "t", 1, 7)  # what comes last is in the last interval, which the stop writes
        broker.stop()
        found = intervals(directory)
    assert [one.seq for one in found] == list(range(1, len(found) + 1))
    topic = [row for row in rows(found, "topic") if row["topic"] == "t"][-1]
    assert (topic["partitions"], topic["end"], topic["start"]) == (2, 17, 0)
    assert topic["bytes"] == sum(path.stat().st_size for path in broker.data_dir.glob("t-*/*.log"))
    group = rows(found, "group")[-1]
    assert (group["group"], group["topic"], group["lag"], group["members"]) == ("g", "t", 6, 0)
    assert rows(found, "log_dir")[-1]["path"] == str(broker.data_dir)
    assert rows(found, "stored") == [], "a broker with one log directory needs no rows by log directory"
    assert {row["worker"] for row in rows(found, "worker")} == {0, 1}


def test_the_spool_contains_a_topics_bytes_in_each_of_several_log_directories(tmp_path):
    directories = [tmp_path / name for name in ("one", "two")]
    config = SPOOLING | {"log.dirs": ",".join(map(str, directories))}
    with Broker(config, {"t": 2}, directory=tmp_path) as broker:
        produce(broker, "t", 0, 10)
        produce(broker, "t", 1, 30)
        sizes = {str(path): sum(log.stat().st_size for log in path.glob("t-*/*.log")) for path in directories}
        assert all(sizes.values()), f"each directory has a partition: {sizes}"

        def spooled_sizes():
            found = rows(intervals(broker.data_dir), "stored")
            return {row["path"]: row["bytes"] for row in found if row["topic"] == "t"}

        until(lambda: spooled_sizes() == sizes, lambda: f"{sizes} in the spool, which has {spooled_sizes()}")


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with Broker(CONFIG, {"t": 2}, directory=tmp_path_factory.mktemp("usage")) as one:
        produce(one, "t", 0, 10)
        commit(one.bootstrap_servers, "g", "t", 0, 4)
        yield one


def test_usage_is_answered_as_json(broker):
    def group_rows():
        document.update(json.loads(get(broker, "/usage?name=t")[1]))
        return document["groups"]  # empty while the coordinator is slow

    document = {}
    until(group_rows, "groups")
    assert document["topic"]["end"] == 10 and document["spool"] is None
    assert [(one["group"], one["lag"]) for one in document["groups"]] == [("g", 6)]
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(broker, "/usage?no=1")
    assert refused.value.code == 400 and "no" in json.loads(refused.value.read())["error"]


def test_the_command_shows_the_reporters_usage(broker):
    result = subprocess.run(
        [sys.executable, "-m", "odradek.cli.main", "usage", "topic", "t", "--pid", str(broker.pid)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result
    assert "g" in result.stdout


def test_a_topic_is_reported_while_the_coordinator_hangs(broker):
    pid = process(broker, "coordinator")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        document = json.loads(get(broker, "/usage?name=t")[1])
    finally:
        os.kill(pid, signal.SIGCONT)
    assert document["topic"]["end"] == 10 and document["groups"] == []
