"""Shows a broker's status to people. Runs in the process of the command; the only place that needs ``rich``."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

_COLUMNS = (
    ("kind", "process", "left"),
    ("pid", "pid", "right"),
    ("state", "state", "left"),
    ("restarts", "restarts", "right"),
    ("connections", "connections", "right"),
    ("uptime_seconds", "uptime", "right"),
)


def duration(seconds: float) -> str:
    """A time span in its two largest units."""
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    for size, unit, smaller, less in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {less}"
    raise AssertionError(whole)


def print_status(report: Mapping[str, Any], console: Console | None = None) -> None:
    """Writes the report of ``status_of`` as text and a table."""
    console = console or Console()
    console.print(
        f"[bold]Broker {report.get('node_id', '?')}[/], process {report['pid']}, {report.get('state', 'running')}"
    )
    console.print(f"  data        {report['data_dir']}")
    for listener in report.get("listeners", ()):
        host = f"[{listener['host']}]" if ":" in listener["host"] else listener["host"]
        console.print(f"  listener    {listener['name']}://{host}:{listener['port']}", markup=False)
    if "partitions" in report:
        console.print(f"  partitions  {report['partitions']}")
    recovery = report.get("recovery") or {}
    if recovery.get("total"):
        console.print(f"  recovery    {recovery.get('done', 0)} of {recovery['total']} logs")
    console.print(f"  memory      {report['memory_pss_bytes'] / 1e6:.1f} MB (proportional)")
    table = Table()
    for _, title, side in _COLUMNS:
        table.add_column(title, justify="right" if side == "right" else "left")
    for process in report.get("processes", ()):
        table.add_row(*(_cell(process, name) for name, _, _ in _COLUMNS))
    console.print(table)


def _cell(process: Mapping[str, Any], name: str) -> str:
    value = process.get(name)
    if value is None:
        return "-"
    return duration(value) if name == "uptime_seconds" else str(value)
