"""What the processes of a broker import when they start, because a slow import delays the first answer; and unused packages."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from odradek.config.broker_config import load
from odradek.processes.supervisor.children import resolve
from odradek.processes.table import PROCESSES, also_imported

ROOT = Path(__file__).parents[2]

SLOW = (
    "argparse",
    "crc32c",
    "http.server",
    "importlib.metadata",
    "kazoo",
    "odradek.security.contexts",
    "prometheus_client",
)
"""Modules whose import takes milliseconds, and that no process of a single broker needs before it serves."""


OF_GROUPS = "odradek.groups."
OF_CLUSTER = ("kazoo", "odradek.controller.cluster", "odradek.processes.coordinator.cluster")


def imported_by_processes(afterwards: str = "") -> set[str]:
    """The modules of a process after the supervisor's imports before its fork, and after a line of code."""
    mains = [row.main for row in PROCESSES if row.count(load(None, []))]
    code = "import sys; from odradek.processes.supervisor.children import resolve; [*map(resolve, sys.argv[1:])]"
    command = [sys.executable, "-c", f"{code}\n{afterwards}\nprint(*sys.modules)", *mains]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    imported = set(done.stdout.split())
    assert "odradek.processes.worker.worker" in imported
    return imported


def test_the_start_of_a_broker_imports_no_slow_module_that_it_does_not_need() -> None:
    imported = imported_by_processes()
    assert imported.isdisjoint(SLOW + OF_CLUSTER)
    assert [name for name in imported if name.startswith(OF_GROUPS)] == []


def test_a_single_broker_imports_nothing_of_a_cluster_for_its_requests() -> None:
    all_handlers = (
        "from odradek.api.api import Place; from odradek.api.table import handlers_of;"
        " handlers_of(*set(Place) - {Place.NATIVE}).import_all()"
    )
    imported = imported_by_processes(all_handlers)
    assert "odradek.api.cluster.elect_leaders" in imported
    assert imported.isdisjoint(OF_CLUSTER)


@pytest.mark.parametrize(
    ("settings", "classes"),
    [
        ([], []),
        (["zookeeper.connect=localhost:2181", "broker.id=1"], ["ClusterService", "BrokerPeers"]),
        (
            [
                "listeners=SASL_PLAINTEXT://127.0.0.1:0",
                "inter.broker.listener.name=SASL_PLAINTEXT",
                "sasl.enabled.mechanisms=OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url=https://127.0.0.1/keys",
            ],
            ["JwksReader"],
        ),
    ],
)
def test_the_supervisor_imports_what_else_the_coordinator_uses(
    settings: list[str], classes: list[str], tmp_path: Path
) -> None:
    here = f"log.dirs={tmp_path}"
    assert [resolve(name).__name__ for name in also_imported(load(None, [*settings, here]))] == classes


def test_the_groups_are_imported_before_the_fork_if_there_may_be_any(tmp_path: Path) -> None:
    config = load(None, [f"log.dirs={tmp_path}/missing,{tmp_path}/a"])
    assert also_imported(config) == []
    (tmp_path / "a/__consumer_offsets-7").mkdir(parents=True)
    assert [resolve(name).__name__ for name in also_imported(config)] == ["make_groups"]


def test_every_package_that_an_installation_brings_is_used() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {canonical(re.split(r"[<>=\[]", line)[0]) for line in project["dependencies"]}
    texts = [path.read_text() for path in (ROOT / "broker/odradek").rglob("*.py")]
    imported = {module for text in texts for module in re.findall(r"^ *(?:from|import) (\w+)", text, re.M)}
    packages = packages_distributions()
    used = {canonical(name) for module in imported for name in packages.get(module, ())}
    assert wanted - used == set()


def canonical(name: str) -> str:
    return name.lower().replace("_", "-")
