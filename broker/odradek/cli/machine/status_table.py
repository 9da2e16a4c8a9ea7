"""Prints a broker's status as text and a table. Runs in the process of the command."""

from collections.abc import Mapping
from typing import Any

from odradek.cli.framework.echo import echo
from odradek.cli.framework.output import print_table, size, span
from odradek.processes.supervisor.status import recovery_line

_COLUMNS = {
    "kind": "process",
    "pid": "pid",
    "state": "state",
    "restarts": "restarts",
    "connections": "conns",
    "uptime_s": "uptime",
    "pss_bytes": "memory",
    "last_exit": "last exit",
}

_SHORT = {
    "low": ("nearly full", ": producers are refused below {}", "full_below_bytes"),
    "full": ("full: producers are refused", " until {} are free", "full_until_bytes"),
}
"""For each state of a short log directory: its name, the words about a limit, and the limit's key in the status."""


def duration(seconds: float) -> str:
    """A duration in its two largest units."""
    return span(int(seconds * 1000))


def print_status(report: Mapping[str, Any]) -> None:
    """Print a supervisor's status (``Supervisor.status``) as text and a table."""
    for line in _summary(report):
        echo(line)
    columns = dict(_COLUMNS)
    if not any(process["last_exit"] for process in report["processes"]):
        del columns["last_exit"]
    rows = [[_cell(process, name) for name in columns] for process in report["processes"]]
    print_table(list(columns.values()), rows, "no processes")


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
        scheme = "https" if report.get("metrics_tls") else "http"
        taken = report.get("metrics_instead_of")
        note = f" (not {taken}, which was in use at the start)" if taken else ""
        lines.append(f"  metrics      {scheme}://{f'[{host}]' if ':' in host else host}:{port}/metrics{note}")
    if "cluster" in report:
        lines += membership_lines(report["cluster"], report["node_id"])
    lines += [f"  logs         {directory['path']}{_condition(directory)}" for directory in report["log_dirs"]]
    lines.append(f"  partitions   {report['partitions']}")
    if (state := report.get("producer_state")) and state["producers"]:
        used = f"{size(state['used_bytes'])} of {size(state['max_bytes'])}"
        lines.append(f"  producers    {state['producers']} idempotent, their state uses {used}")
    failing = [state["task"] for state in report.get("tasks", ()) if state["failed_runs"]]
    if failing:
        lines.append(f"  failing      {', '.join(failing)}: `odradek doctor` shows where and why")
    loading = report["loading"]
    if loading["done"] < loading["total"]:
        lines.append(f"  loading      {loading['done']} of {loading['total']} logs")
    lines += [
        f"  recovery     {recovery_line(row)}"
        for row in loading.get("directories", ())
        if row["bytes_to_recover"] or row["done"] < row["total"]
    ]
    accepted, refused = report["connections_accepted"], report["connections_refused"]
    kept = f", idle ones hold {size(report['kept_bytes'])}" if report.get("kept_bytes") else ""
    lines.append(f"  connections  {report['connections']} open, {accepted} accepted, {refused} refused{kept}")
    lines.append(f"  memory       {size(report['pss_bytes'])} (proportional set size)")
    return lines


def membership_lines(cluster: Mapping[str, Any], node_id: int) -> list[str]:
    """The lines about the cluster. :param node_id: of this broker."""
    zookeeper, replicas = cluster["zookeeper"], cluster["replicas"]
    since = "" if zookeeper["since_s"] is None else f" for {duration(zookeeper['since_s'])}"
    registered = f"registered, broker epoch {cluster['broker_epoch']}" if cluster["registered"] else "not registered"
    controller = {None: "none known", node_id: "this broker"}.get(
        cluster["controller"], f"broker {cluster['controller']}"
    )
    live = ", ".join(str(broker["id"]) for broker in cluster["brokers"]) or "none known"
    names = {
        "led": "led",
        "followed": "followed",
        "under_replicated": "under-replicated",
        "under_min_in_sync": "under min.insync.replicas",
        "unfetched": "not fetched",
        "reassigning": "reassigned",
        "offline": "offline",
    }
    always = ("led", "followed", "under_replicated", "under_min_in_sync", "offline")
    shown = [f"{replicas[name]} {text}" for name, text in names.items() if name in always or replicas[name]]
    return [
        f"  membership   {registered}; live brokers: {live}; controller: {controller}",
        f"  ZooKeeper    {zookeeper['connect']}: {zookeeper['state']}{since}",
        f"  replicas     {', '.join(shown)}",
    ]


def _condition(directory: Mapping[str, Any]) -> str:
    """The state of a log directory, in parentheses, to print after its path."""
    if not directory["online"]:
        return " (offline)"
    if directory["total_bytes"] < 0:
        return ""
    words = ""
    if directory["disk"] in _SHORT:
        words, with_limit, limit = _SHORT[directory["disk"]]
        if directory.get("full_despite_space"):
            words += ": a write found no space, or inodes are few"
        elif limit in directory:  # it is unknown to a broker that was started before an upgrade
            words += with_limit.format(size(directory[limit]))
        words += "; "
    return f" ({words}{size(directory['free_bytes'])} of {size(directory['total_bytes'])} free)"


def _cell(process: Mapping[str, Any], name: str) -> Any:
    value = process[name]
    shown = {"uptime_s": duration, "pss_bytes": size}.get(name)
    return value if value is None or shown is None else shown(value)
