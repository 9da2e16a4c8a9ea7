"""The table of background tasks: every task has a row, and what a row names exists. Each task that fails has its finding."""

import ast
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import odradek
from odradek.cleaner import upkeep
from odradek.cleaner.deleted_logs import DeletedLogs
from odradek.cleaner.retention import Retention
from odradek.cli.health.local import judge_status
from odradek.cli.health.metrics import judge_metrics
from odradek.cli.health.tasks import LASTS_MS, failed_units, judge_strays, judge_tasks
from odradek.cli.main import LAZY
from odradek.config.broker_config import resolve
from odradek.metrics.background_tasks import BY_NAME, GENERAL, TASKS, main
from odradek.metrics.names import METRICS
from odradek.metrics.names.mirror import MIRROR_METRICS
from odradek.processes import own_tasks
from odradek.processes.cleaner import COMPACTION, DISK_SPACE
from odradek.processes.coordinator.cluster.controller_service import CONTROLLER
from odradek.processes.supervisor.status import NAMED_PLACES, SEND_BUFFER_BYTES, task_row
from odradek.processes.table import PROCESSES
from odradek.shm.published_tasks import MOST_NAMED, NAME_CHARACTERS, REASON_CHARACTERS, Failing, TaskState

ROOT = Path(__file__).parents[2]
CODE = Path(odradek.__file__).parent
NOW_MS = 1_700_000_000_000
TABLE: Any = object()

THREADS = {
    ("cleaner/compaction.py", "compaction"): "compaction",
    ("cleaner/deletion_policy.py", "deletion policy"): "deletion policy",
    ("processes/coordinator/groups/service.py", "group-load"): "load of __consumer_offsets",
    ("processes/coordinator/transactions/service.py", "transaction-load"): "load of __transaction_state",
    ("processes/coordinator/security/jwks_reader.py", "jwks"): "keys of identity providers",
    ("processes/coordinator/cluster/service.py", "replicas"): "opening of waiting logs",
    ("processes/coordinator/store_thread.py", "store"): "sweep of the metadata tree",
    ("replication/fetcher.py", "fetcher"): "replication",
    ("security/sasl/shared_token.py", "token"): "logins at other brokers",
    ("mirror/lane_set.py", "lanes"): "mirror of a partition",
    ("mirror/flow_worker.py", "topics, group, bookkeeping"): "mirror's search for topics",
    # Threads that do no work of their own: their end, or their absence, is seen by somebody else.
    ("cleaner/waiting_beats.py", "beats"): "without its beats, the supervisor restarts the process",
    ("processes/worker/job_thread.py", "jobs of requests"): "a request that gets no response tells its client",
    ("processes/coordinator/security/token_credentials.py", "tokens"): "a login that gets no response tells its client",
    ("metrics/http.py", "http"): "a scrape fails: OdradekBrokerDown",
    ("cli/health/membership.py", "connections"): "of a command",
    ("clients/cluster.py", "connections"): "of a command",
    ("clients/parallel_consumer.py", "workers"): "of an application",
    ("jobs/load/merge.py", "files"): "loads: the load fails",
    ("jobs/load/delta_output.py", "files"): "loads: the load fails",
    ("jobs/usage_report/session.py", "progress"): "prints the progress of a command",
}
"""The files that begin threads, with what these are, and the row of their work or why they need none."""


def calls(*names: str) -> Iterator[tuple[Path, ast.Call]]:
    """The calls of functions and methods with these names in the package."""
    for path in sorted(CODE.rglob("*.py")):
        text = path.read_text()
        if any(name in text for name in names):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in names:
                    yield path, node


def texts_of(*packages: str) -> dict[Path, list[str]]:
    """The string constants of each file; parts of a text in several lines are one constant."""
    return {
        path: [
            node.value
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        for package in packages
        for path in (CODE / package).rglob("*.py")
        if path.name != "background_tasks.py"
    }


MESSAGES = texts_of("cleaner", "processes", "controller", "replication", "groups", "transactions", "metrics", "mirror",
                    "security", "shm", "net", "coordination", "metadata")  # fmt: skip
FINDINGS = texts_of("cli")
ALERTS = {
    rule["alert"]: rule["expr"]
    for group in yaml.safe_load((ROOT / "deploy/prometheus/rules/alerts.yml").read_text())["groups"]
    for rule in group["rules"]
}


def test_every_pass_of_the_cleaner_has_a_row():
    passes = upkeep.passes(resolve([]), TABLE, [], Retention(TABLE, []), DeletedLogs(TABLE, []))
    names = {item.name for item in passes} | {DISK_SPACE, COMPACTION}
    assert {row.name for row in TASKS if row.process == "cleaner" and row.signs is GENERAL} == names


def test_every_supervised_task_has_a_row():
    names = set()
    for _, call in calls("supervised"):
        what = call.args[1]
        assert isinstance(what, ast.Constant) and what.value.startswith("the "), ast.unparse(call)
        names.add(what.value.removeprefix("the "))
    assert names <= BY_NAME.keys()
    assert len(names) >= 10


def test_every_task_that_a_process_publishes_has_a_row_and_the_other_way_round():
    names = {item.name for item in upkeep.passes(resolve([]), TABLE, [], Retention(TABLE, []), DeletedLogs(TABLE, []))}
    for path, call in calls("ran", "ended", "expect", "_every"):
        owner = getattr(call.func, "value", None)
        if getattr(owner, "id", "") not in ("own_tasks", "self") or path.name in ("own_tasks.py", "published_tasks.py"):
            continue
        task = call.args[0]
        if isinstance(task, ast.Attribute) and ast.unparse(task.value) == "own_tasks":
            names.add(getattr(own_tasks, task.attr))
        elif isinstance(task, ast.Name) and task.id.isupper():
            module = importlib.import_module(
                ".".join(("odradek", *path.relative_to(CODE).with_suffix("").parts))
            )  # the constant may be imported
            names.add(getattr(module, task.id))
    names |= {call.args[1].value.removeprefix("the ") for _, call in calls("supervised")}
    names |= {DISK_SPACE, CONTROLLER, "load of __consumer_offsets", "load of __transaction_state"}
    assert names == {row.name for row in TASKS if row.signs is GENERAL}


def test_every_thread_has_a_row_or_a_reason():
    found = {str(path.relative_to(CODE)) for path, _ in calls("Thread", "ThreadPoolExecutor")}
    assert found == {path for path, _ in THREADS}


def test_every_process_and_every_unit_has_a_row():
    assert {row.name for row in PROCESSES} == {row.process for row in TASKS if row.name == f"process {row.process}"}
    units = {path.name for path in (ROOT / "deploy/systemd").glob("*.service")} - {"odradek.service"}
    assert units <= {row.process for row in TASKS}


def test_no_name_occurs_twice():
    assert len(BY_NAME) == len(TASKS)


@pytest.mark.parametrize("row", TASKS, ids=lambda row: row.name)
def test_what_a_row_names_exists(row):
    signs = row.signs
    assert signs.metric in METRICS.keys() | MIRROR_METRICS.keys() or signs.alert == "OdradekUnitFailed"
    named = signs.alert.split(", ")
    assert set(named) <= ALERTS.keys()
    assert any(re.sub("_(total|runs)$", "", signs.metric) in ALERTS[name] for name in named)
    if signs.finding.startswith("odradek "):
        group, _, command = signs.finding.removeprefix("odradek ").partition(" ")
        module, _, name = LAZY[group][0].partition(":")
        commands = getattr(importlib.import_module(module), name)
        assert commands.get_command(None, command) is not None
    else:
        assert any(signs.finding in text for texts in FINDINGS.values() for text in texts), signs.finding
    logger, found, message = row.log.partition(": ")
    if found:
        places = [path for path, texts in MESSAGES.items() if any(text.startswith(message) for text in texts)]
        assert any(f'"{logger}"' in path.read_text() for path in places) or (
            logger in ("odradek.groups", "odradek.transactions") and places  # the log is given to `CoordinatedTopic`
        ), (logger, message, places)


def test_the_committed_table_is_up_to_date(tmp_path):
    page = ROOT / "docs/reference/alerts.md"
    copy = tmp_path / "alerts.md"
    copy.write_text(page.read_text())
    assert main([str(copy)]) == 0
    assert copy.read_text() == page.read_text(), "run: make tables"
    for row in TASKS:
        assert f"| {row.name} | {row.process} |" in page.read_text()


# -- findings -------------------------------------------------------------------------------------------------------------


OF_PROCESSES = [row for row in TASKS if row.signs is GENERAL]


@pytest.mark.parametrize("row", OF_PROCESSES, ids=lambda row: row.name)
@pytest.mark.parametrize(("since_ms", "severity"), [(LASTS_MS, "error"), (LASTS_MS - 1, "warning")])
def test_a_task_that_fails_has_a_finding(row, since_ms, severity):
    failing = (Failing("t-0", "no", NOW_MS - since_ms), Failing("u-0", "never", NOW_MS))
    state = TaskState(row.name, 1000, NOW_MS, NOW_MS, 3, 9, failing)
    (finding,) = judge_tasks([task_row(state)], NOW_MS)
    assert (finding.severity, finding.subject) == (severity, f"task {row.name}")
    assert finding.what.endswith(", at 9 places: t-0: no; u-0: never; and 7 more")
    assert (finding.reason, finding.remedy) == (row.matters, row.remedy)


@pytest.mark.parametrize("row", OF_PROCESSES, ids=lambda row: row.name)
def test_a_task_that_does_not_run_has_a_finding(row):
    late = TaskState(row.name, 1000, NOW_MS - LASTS_MS - 2001, NOW_MS)
    (finding,) = judge_tasks([task_row(late)], NOW_MS)
    assert finding.severity == "error" and "the task has not run for 15 min 2 s; its interval is 1 s" in finding.what
    assert list(judge_tasks([task_row(late._replace(ran_ms=NOW_MS - LASTS_MS - 2000))], NOW_MS)) == []
    assert list(judge_tasks([task_row(late._replace(interval_ms=0))], NOW_MS)) == [], "it runs all the time"


def test_a_task_that_fails_as_a_whole_names_no_place():
    state = TaskState("disk space", 1000, NOW_MS, NOW_MS, 1, 1, (Failing("", "OSError(5)", NOW_MS),))
    (finding,) = judge_tasks([task_row(state)], NOW_MS)
    assert finding.what.endswith("at 1 place: OSError(5)")


def test_the_metrics_of_a_broker_on_another_machine_show_tasks_that_fail():
    text = 'odradek_task_failed_runs{task="retention"} 3.0\nodradek_task_failed_runs{task="flush"} 0.0\n'
    (finding,) = judge_metrics(text, NOW_MS / 1000)
    assert finding.subject == "task retention" and "3 runs since its last success" in finding.what
    assert list(judge_metrics(text, NOW_MS / 1000, status_judged=True)) == []


def test_rows_of_tasks_that_all_fail_everywhere_fit_into_the_status():
    failing = tuple(Failing("t" * NAME_CHARACTERS, "r" * REASON_CHARACTERS, NOW_MS) for _ in range(MOST_NAMED))
    rows = [task_row(TaskState(row.name, 1000, NOW_MS, NOW_MS, 3, 9, failing)) for row in OF_PROCESSES]
    assert len(rows[0]["named"]) == NAMED_PLACES
    assert len(json.dumps(rows)) < SEND_BUFFER_BYTES / 5, "the kernel may give less than is asked for"


def test_a_status_of_an_older_broker_has_no_tasks():
    report = {"state": "serving", "processes": [], "memory_faults": 0, "log_dirs": []}
    assert list(judge_status(report)) == []


def test_logs_that_were_set_aside_have_a_finding(tmp_path):
    assert list(judge_strays([str(tmp_path)])) == []
    for number in range(2):
        path = tmp_path / f"t-{number}.{'0' * 32}-stray"
        path.mkdir()
        (path / "0.log").write_bytes(b"x" * 1500)
    (tmp_path / "t-3").mkdir()
    (finding,) = judge_strays([str(tmp_path)])
    assert finding.subject == f"log directory {tmp_path}"
    assert finding.what.startswith("2 logs of former topics, set aside as *-stray, with 3.0 kB: t-0.000")
    assert finding.what.count("-stray (since 2") == 2
    (finding,) = judge_strays([str(tmp_path / "missing")])
    assert "cannot be searched" in finding.what


class Done:
    stdout = "odradek-report.service loaded failed failed Odradek usage and capacity report of the previous day\n"


def test_units_that_failed_have_a_finding(tmp_path):
    asked = []

    def run(command, **_):
        asked.append(command)
        return Done()

    (finding,) = failed_units(run, tmp_path)
    assert finding.subject == "unit odradek-report.service" and "journalctl -u odradek-report.service" in finding.remedy
    assert asked[0][0] == "systemctl"
    assert list(failed_units(run, tmp_path / "no systemd")) == []

    def missing(*_, **__):
        raise FileNotFoundError("systemctl")

    assert list(failed_units(missing, tmp_path)) == []
