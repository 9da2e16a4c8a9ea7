"""Reports that the timer of a machine makes, and their figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.dataset

from tests.deploy import service
from tests.deploy.machines import Machine
from tests.waiting import until

UNIT, TIMER = "odradek-report.service", "odradek-report.timer"
PATIENCE_S = 400.0
#: Not as in the unit: with the policy `idle`, a test would last as long as others use the machine.
AWAKE = "[Service]\nNice=0\nCPUSchedulingPolicy=other\nIOSchedulingClass=none\n"
#: The hour of the timer is now.
AT_ONCE = "[Timer]\nOnCalendar=\nOnActiveSec=0\nRandomizedDelaySec=0\n"
OPTIONS = "--memory 512m --master local[1]"


def hurry(machine: Machine) -> None:
    """Let the timer start the report when it is enabled, with the priority of other processes."""
    machine.put(AWAKE, f"/etc/systemd/system/{UNIT}.d/test.conf")
    machine.put(AT_ONCE, f"/etc/systemd/system/{TIMER}.d/test.conf")
    machine.run("systemctl", "daemon-reload")


def by_timer(machine: Machine, out: str) -> dict[str, Any]:
    """Wait until the timer, which is enabled here, has made a report in the directory `out`; return its summary."""
    machine.run("systemctl", "enable", "--now", TIMER)

    def ended() -> bool:
        states = [
            service.property_of(machine, name, UNIT) for name in ("ActiveState", "Result", "ExecMainExitTimestamp")
        ]
        assert states[0] != "failed", machine.journal(UNIT, 40)
        return states[0] == "inactive" and states[2] != "" and machine.exists(f"{out}/report.json")

    until(ended, lambda: machine.journal(UNIT, 40), PATIENCE_S)
    machine.run("systemctl", "disable", "--now", TIMER)
    return json.loads(machine.read(f"{out}/report.json"))


def directory(machine: Machine, out: str) -> Path:
    """Where this process finds the directory `out` of a machine."""
    return machine.directory / "changed" / out.lstrip("/")


def rows(out: Path, table: str) -> list[dict[str, Any]]:
    """All rows of a table of the report in `out`."""
    return pyarrow.dataset.dataset(out / "tables" / table, format="parquet", partitioning="hive").to_table().to_pylist()


def records(out: Path) -> dict[tuple[str, str], tuple[int, int]]:
    """The records in and out, by topic and client id, in the tables of the report in `out`, but for internal topics."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for row in rows(out, "traffic_hourly"):
        if row["topic"] and not row["topic"].startswith("__"):
            key = (row["topic"], row["client"])
            records_in, records_out = sums.get(key, (0, 0))
            sums[key] = (records_in + row["records_in"], records_out + row["records_out"])
    return {key: counts for key, counts in sums.items() if any(counts)}


def samples(machine: Machine, expression: str, prometheus: str = "127.0.0.1:9090") -> dict[str, float]:
    """The values of an expression in a Prometheus that a machine reaches, by instance; empty if it does not respond."""
    code = (
        "import sys, urllib.parse, urllib.request as r; q = urllib.parse.urlencode({'query': sys.argv[1]});"
        f"print(r.urlopen('http://{prometheus}/api/v1/query?' + q).read().decode())"
    )
    found = machine.run("python3", "-c", code, expression, check=False).stdout
    result = json.loads(found)["data"]["result"] if found else []
    return {sample["metric"].get("instance", ""): float(sample["value"][1]) for sample in result}
