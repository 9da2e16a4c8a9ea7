"""Shows a broker's status to people. Runs in the process of the command; the only place that needs ``rich``."""

from collections.abc import Mapping
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from broker.processes.status import recovery_line

_COLUMNS: tuple[tuple[str, str, Literal["left", "right"]], ...] = (
    ("kind", "process", "left"),
    ("pid", "pid", "right"),
    ("state", "state", "left"),
    ("restarts", "restarts", "right"),
    ("connections", "connections", "right"),
    ("uptime_s", "uptime", "right"),
    ("pss_bytes", "memory", "right"),
    ("last_exit", "last exit", "left"),
)


def duration(seconds: float) -> str:
    """A time span in its two largest units."""
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def megabytes(size: int) -> str:
    """A size in bytes as megabytes."""
    return f"{size / 1e6:.1f} MB"


def print_status(report: Mapping[str, Any]) -> None:
    """Writes what the supervisor answered (``Supervisor.status``) as text and a table."""
    console = Console(highlight=False)
    for line in _summary(report):
        console.print(line, markup=False)
    table = Table()
    for _, title, side in _COLUMNS:
        table.add_column(title, justify=side)
    for process in report["processes"]:
        table.add_row(*(_cell(process, name) for name, _, _ in _COLUMNS))
    console.print(table)


def _summary(report: Mapping[str, Any]) -> list[str]:
    lines = [
        f"Broker {report['node_id']} of cluster {report['cluster_id']}: {report['state']}, process {report['pid']}, "
        f"up {duration(report['uptime_s'])}"
    ]
    for listener in report["listeners"]:
        host = f"[{listener['host']}]" if ":" in listener["host"] else listener["host"]
        lines.append(f"  listener     {listener['name']}://{host}:{listener['port']}")
    if report.get("metrics"):
        host, port = report["metrics"]["host"], report["metrics"]["port"]
        lines.append(f"  metrics      http://{f'[{host}]' if ':' in host else host}:{port}/metrics")
    lines += [f"  logs         {directory['path']}{_condition(directory)}" for directory in report["log_dirs"]]
    lines.append(f"  partitions   {report['partitions']}")
    loading = report["loading"]
    if loading["done"] < loading["total"]:
        lines.append(f"  loading      {loading['done']} of {loading['total']} logs")
    lines += [
        f"  recovery     {recovery_line(row)}"
        for row in loading.get("directories", ())
        if row["bytes_to_recover"] or row["done"] < row["total"]
    ]
    accepted, refused = report["connections_accepted"], report["connections_refused"]
    lines.append(f"  connections  {report['connections']} open, {accepted} accepted, {refused} refused")
    lines.append(f"  memory       {megabytes(report['pss_bytes'])} (proportional)")
    return lines


def _condition(directory: Mapping[str, Any]) -> str:
    """What there is to say of a log directory behind its path."""
    if not directory["online"]:
        return " (offline)"
    if directory["total_bytes"] < 0:
        return ""
    words = {"low": "low on room, ", "full": "full: producers are refused, "}.get(directory["disk"], "")
    return f" ({words}{megabytes(directory['free_bytes'])} of {megabytes(directory['total_bytes'])} free)"


def _cell(process: Mapping[str, Any], name: str) -> str:
    value = process[name]
    if value is None or value == "":
        return "-"
    return {"uptime_s": duration, "pss_bytes": megabytes}.get(name, str)(value)
