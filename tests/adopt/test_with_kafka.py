"""Adoption and return: a real Kafka's directory is adopted, read and written, and opened by that Kafka again."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from odradek.metrics.spool_files import list_files
from odradek.testing import Broker
from tests.adopt.kafka_writes import KAFKA_CONFIG, RECORDS, TOPICS, append, fingerprint, group_offset, read, write
from tests.clients.kafka_peer import Peer

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]


def odradek(*arguments):
    command = [sys.executable, "-m", "odradek.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def same(one, other):
    """Contents must be equal; for compacted logs only the newest values, because compaction may have run in between."""
    assert one.keys() == other.keys()
    for place in one:
        if place[0] == "compacted":
            assert one[place][:2] == other[place][:2]
            assert newest(one[place][2]) == newest(other[place][2])
        else:
            assert one[place] == other[place], place


def newest(records):
    return {record[1]: record for record in records}


@pytest.mark.parametrize(("version", "end"), [("4.3.0", "kill"), ("3.9.1", "clean")])
def test_there_and_back(tmp_path, version, end):
    there_and_back(tmp_path, version, end)


@pytest.mark.parametrize(("version", "end"), [("4.3.0", "clean"), ("3.9.1", "kill")])
def test_there_and_back_in_the_other_ways(tmp_path, version, end):
    there_and_back(tmp_path, version, end)


def there_and_back(tmp_path, version, end):
    kafka = Peer(tmp_path / "kafka", KAFKA_CONFIG, version)
    with kafka:
        write(kafka.bootstrap_servers)
        before = read(kafka.bootstrap_servers)
        uncommitted = read(kafka.bootstrap_servers, "read_uncommitted")
        refused = odradek("adopt", "--yes", kafka.data_dir)
        assert refused.returncode == 1 and "another broker uses" in refused.stderr and not refused.stdout
        if end == "kill":
            kafka.kill()
    assert sum(len(records) for _, _, records in before.values()) > 4 * RECORDS
    meta = (kafka.data_dir / "meta.properties").read_bytes()
    metadata = fingerprint(kafka.data_dir / "__cluster_metadata-0")

    files = fingerprint(kafka.data_dir)
    checked = odradek("adopt", "--check", "--json", kafka.data_dir)
    assert fingerprint(kafka.data_dir) == files, "--check wrote"
    assert checked.returncode == 0, checked
    report = json.loads(checked.stdout)
    assert report["mode"] == "KRaft" and not report["obstacles"] and report["cluster_id"] == "MkU3OEVBNTcwNTJENDM2Qk"
    topics = {topic["name"]: topic for topic in report["topics"]}
    for name, (count, config) in TOPICS.items():
        if name == "gone":
            assert name not in topics
        else:
            assert (topics[name]["partitions"], topics[name]["here"]) == (count, count)
            assert topics[name]["configs"] == config

    adopted = odradek("adopt", "--yes", kafka.data_dir)
    assert adopted.returncode == 0, adopted
    config = {"log.dirs": kafka.data_dir, "offsets.topic.num.partitions": 3, "usage.spool.max.bytes": 1 << 20}
    with Broker(config, directory=tmp_path / "ours") as ours:
        same(uncommitted, read(ours.bootstrap_servers, "read_uncommitted"))
        same(before, read(ours.bootstrap_servers))
        assert group_offset(ours.bootstrap_servers) == 7
        append(ours.bootstrap_servers, "ours", "lz4")
        after = read(ours.bootstrap_servers, "read_uncommitted")
        added = sum(after[place][1] - uncommitted[place][1] for place in after)
        assert added == 3 * RECORDS
        if end == "kill":  # no leader epoch begins that Kafka would not know
            ours.kill()
            ours.start()
            same(after, read(ours.bootstrap_servers, "read_uncommitted"))
            append(ours.bootstrap_servers, "killed", "lz4")
            after = read(ours.bootstrap_servers, "read_uncommitted")
    assert list_files(kafka.data_dir), "there is a spool"
    verified = odradek("log", "verify", "--deep", kafka.data_dir)
    assert verified.returncode == 0, verified
    assert (kafka.data_dir / "meta.properties").read_bytes() == meta
    assert fingerprint(kafka.data_dir / "__cluster_metadata-0") == metadata

    with kafka:
        same(after, read(kafka.bootstrap_servers, "read_uncommitted"))
        committed = read(kafka.bootstrap_servers)
        assert [committed[place] for place in committed if place[0] == "txn"] == [
            before[place] for place in before if place[0] == "txn"
        ]
        append(kafka.bootstrap_servers, "back", "zstd")
        back = read(kafka.bootstrap_servers, "read_uncommitted")
        assert all(back[place][2][: len(after[place][2])] == after[place][2] for place in back if place[0] == "plain")
    again = odradek("adopt", "--yes", kafka.data_dir)
    assert again.returncode == 1 and "--again" in again.stderr
    assert odradek("adopt", "--yes", "--again", kafka.data_dir).returncode == 0
    with Broker(config, directory=tmp_path / "ours") as ours:
        same(back, read(ours.bootstrap_servers, "read_uncommitted"))
