"""Checks of `odradek doctor` on background tasks: tasks that fail or no longer run, logs that were set aside, failed units."""

import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from odradek.cli.framework.output import NAMES_SHOWN, abbreviate, count, size, span, when
from odradek.cli.health.finding import Finding
from odradek.metrics.background_tasks import BY_NAME
from odradek.storage.stray_logs import stray_logs

LASTS_MS = 15 * 60_000
"""A task that fails for longer is an error. A task is late if it has not run for twice its interval and this time."""
SYSTEMD = Path("/run/systemd/system")
UNITS_TIMEOUT_S = 10.0


def judge_tasks(tasks: Iterable[Mapping[str, Any]], now_ms: int | None = None) -> Iterator[Finding]:
    """The findings in the part of a supervisor's status about tasks. :param now_ms: Unix time; None: the present time."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    for state in tasks:
        late_ms = now_ms - state["ran_ms"]
        if state["failed_runs"]:
            since_ms = min(found["since_ms"] for found in state["named"])
            yield _finding(
                "error" if now_ms - since_ms >= LASTS_MS else "warning",
                state["task"],
                f"the task fails since {when(since_ms)}, {_where(state)}",
            )
        if state["interval_ms"] and late_ms > 2 * state["interval_ms"] + LASTS_MS:
            yield _finding(
                "error",
                state["task"],
                f"the task has not run for {span(late_ms)}; its interval is {span(state['interval_ms'])}",
            )


def _where(state: Mapping[str, Any]) -> str:
    """At which partitions or files a task fails, and why."""
    named = state["named"]
    shown = [
        f"{found['what']}: {found['reason']}" if found["what"] else found["reason"] for found in named[:NAMES_SHOWN]
    ]
    more = state["failing"] - len(shown)
    return f"at {count(state['failing'], 'place')}: {'; '.join(shown)}" + (f"; and {more} more" if more else "")


def _finding(severity: str, task: str, what: str) -> Finding:
    row = BY_NAME.get(task)
    reason = "a task that the documents promise does not do its work" if row is None else row.matters
    remedy = "the broker's log contains the reason" if row is None else row.remedy
    return Finding(severity, f"task {task}", what, reason, remedy)


def judge_task_sample(name: str, task: str, value: float) -> Iterator[Finding]:
    """The finding in a sample of the metrics, for a broker whose status is not known."""
    if name == "odradek_task_failed_runs" and value:
        yield _finding("warning", task, f"the task fails: {count(int(value), 'run')} since its last success")


def judge_strays(log_dirs: Iterable[str]) -> Iterator[Finding]:
    """The findings about logs that were set aside in these log directories of this machine."""
    for log_dir in log_dirs:
        try:
            strays = stray_logs(Path(log_dir))
        except OSError as error:
            yield Finding(
                "warning",
                f"log directory {log_dir}",
                f"the directory cannot be searched for logs that were set aside: {error}",
                "the broker never deletes such logs, so their space is never freed",
                "run this command as the user of the broker",
            )
            continue
        if strays:
            paths = abbreviate(f"{Path(log.path).name} (since {when(int(log.since_s * 1000))})" for log in strays)
            row = BY_NAME["set-aside logs"]
            yield Finding(
                "warning",
                f"log directory {log_dir}",
                f"{count(len(strays), 'log')} of former topics, set aside as *-stray, with "
                f"{size(sum(log.size_bytes for log in strays))}: {paths}",
                row.matters,
                row.remedy,
            )


def failed_units(run: Callable[..., Any] = subprocess.run, systemd: Path = SYSTEMD) -> Iterator[Finding]:
    """The units of Odradek on this machine whose last run failed; none on a machine without systemd."""
    if not systemd.is_dir():
        return
    command = ["systemctl", "list-units", "--all", "--state=failed", "--plain", "--no-legend", "odradek*"]
    try:
        done = run(command, capture_output=True, text=True, timeout=UNITS_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return  # in a container with the host's /run, or without a right to ask: systemd is not part of the broker
    for line in done.stdout.splitlines():
        unit = line.split()[0]
        yield Finding(
            "error",
            f"unit {unit}",
            "the last run of the unit failed",
            "what it does, such as a load, a report, a backup or a mirror, is not done until a run succeeds",
            f"`journalctl -u {unit}` shows the reason; `systemctl start {unit}` runs it again",
        )
