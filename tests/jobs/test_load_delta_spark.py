"""A Delta table that `odradek load` wrote, read and changed by Spark with Delta's own library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from odradek.jobs.load.commit_log import MERGE, VersionDirectory
from odradek.testing import Broker
from tests import toolchains
from tests.jobs.loaded_topics import in_topic, send, send_transactions

pytestmark = [pytest.mark.xdist_group("load_delta_spark"), pytest.mark.timeout(1800), pytest.mark.java]
_LIMIT_S = 600


def spark(jars: Path, table: Path, what: str) -> Any:
    command = [sys.executable, "-m", "tests.jobs.delta_spark", str(jars), str(table), what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def load(broker: Broker, out: Path, command: str, *words: object, status: int = 0) -> str:
    arguments = ["load", command, *map(str, words), "--out", str(out)]
    if command != "merge":
        arguments += ["-b", broker.bootstrap_servers, "--reader", "python"]
    environment = os.environ | {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    done = subprocess.run(
        [sys.executable, "-m", "odradek.cli.main", *arguments],
        capture_output=True, text=True, timeout=_LIMIT_S, env=environment,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_spark_reads_each_record_once_in_each_version_and_skips_files(tmp_path: Path) -> None:
    jars, out = toolchains.spark_delta_jars(), tmp_path / "out"
    main = out / "version=main"
    with Broker(topics={"orders": 3, "pay": 1}, directory=tmp_path / "broker") as broker:
        servers = broker.bootstrap_servers
        send(servers, "orders", 0, 300)
        send_transactions(servers, "pay", 0, 45)
        options = ("orders", "pay", "--max-offsets", 150)
        load(broker, out, "run", *options, "--format", "delta")
        send(servers, "orders", 300, 100)
        load(broker, out, "run", *options)
        load(broker, out, "merge")
        wanted = sorted(in_topic(servers, "orders", 3) + in_topic(servers, "pay", 1))
        commits = list(VersionDirectory(out, "main").all_commits())
        assert [commit.kind for commit in commits].count(MERGE) == 1 and len(commits) > 3

        seen = spark(jars, main, "read")
        records = [
            [
                record.topic, record.partition, record.offset, record.timestamp_ms, record.timestamp_type, _hex(record.key),
                _hex(record.value), [[key, _hex(value)] for key, value in record.headers] or None,
            ]
            for record in wanted
        ]  # fmt: skip
        assert sorted(seen["records"], key=lambda record: record[:3]) == records
        assert seen["schema"].startswith(
            "struct<topic:string,date:date,partition:int,offset:bigint,timestamp:timestamp,"
        )
        sums = [sum(commit.records for commit in commits[: number + 1]) for number in range(len(commits))]
        assert seen["counts"] == sums and sums[-1] == 445
        assert list(seen["history"].values())[-1] == f"odradek load: load 1, {commits[0].records} records"
        files, of_pay = seen["all"][1], seen["of pay"]
        assert of_pay[0] == 45 and 0 < of_pay[1] < files == 2
        assert seen["of no date"] == [0, 0] and seen["of offset 0"] == [4, 2]

        changed = spark(jars, main, "change")
        assert changed["count"] == 444 and "deletionVectors" in changed["features"]
        send(servers, "orders", 400, 50)
        assert "50 records" in load(broker, out, "run", *options)
        load(broker, out, "merge")
        seen = spark(jars, main, "read")
        assert len(seen["records"]) == 494 == len({tuple(record[:3]) for record in seen["records"]})
        assert "has a deletion vector: another writer deleted records of it" in load(broker, out, "verify", status=1)


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex().upper()
