"""Checks of `odradek doctor` on a broker of this machine, from its supervisor's status and from /proc."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from odradek.cli.framework.output import size
from odradek.cli.health.finding import Finding
from odradek.cli.inspection.local_broker import FindError, NotRunningError, address_of, find, status_of

MANY_RESTARTS = 3
FEW_FILES = 0.8
PRODUCER_STATE_NEARLY_FULL = 0.75
_LIMITS = {
    "refused_client": "odradek.producer.state.client.max.percent",
    "refused_partition": "odradek.producer.state.partition.max.producers",
    "refused_arena": "odradek.producer.state.max.bytes",
}


def examine_broker(data_dir: str) -> list[Finding]:
    """All findings of the broker whose first log directory is `data_dir`."""
    try:
        directory, running = find(None, (), data_dir, None)
        report = status_of(directory, running)
    except NotRunningError as error:
        reason = "no broker serves the partitions in this directory"
        remedy = "start the broker with `odradek start`; its log contains the reason of its end"
        return [Finding("error", "broker", str(error), reason, remedy)]
    except FindError as error:
        return [
            Finding(
                "error",
                "broker",
                str(error),
                "the state of the broker's processes, disks and open files was not checked",
                "run this command as the user of the broker, with --data-dir set to the first of its log.dirs",
            )
        ]
    from odradek.cli.health.tasks import failed_units, judge_strays

    online = [row["path"] for row in report["log_dirs"] if row["online"]]
    findings = [*judge_status(report), *_open_files(report), *judge_strays(online), *failed_units()]
    if "cluster" in report:
        from odradek.cli.health.membership import unreachable

        findings += unreachable(report["cluster"], report["node_id"])
    return findings


def metrics_of(data_dir: str) -> str | None:
    """HOST:PORT of the broker's metrics.listener; None if it has none, or does not respond."""
    try:
        status = status_of(*find(None, (), data_dir, None))
    except FindError:
        return None
    listener = status.get("metrics")
    return listener and ("https://" if status.get("metrics_tls") else "") + address_of(listener)


def address_for(data_dir: str, protocol: str) -> str | Finding | None:
    """HOST:PORT of a listener of the broker with this security protocol, or the finding that it has none. None if the broker
    does not respond; `examine_broker` has a finding about that."""
    try:
        listeners = status_of(*find(None, (), data_dir, None))["listeners"]
    except FindError:
        return None
    for listener in listeners:
        if listener["protocol"] == protocol and listener["port"]:
            return address_of(listener)
    present = ", ".join(f"{listener['name']} ({listener['protocol']})" for listener in listeners)
    return Finding(
        "warning",
        "cluster",
        f"the cluster was not checked: no listener of the broker has the protocol {protocol}; its listeners: {present}",
        "topics, partitions and groups may have problems that this command does not see",
        "set security.protocol and what else the listener requires in a file, and add --command-config FILE",
    )


def judge_status(report: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings in a supervisor's status (`odradek.processes.supervisor.status.report`)."""
    if report["state"] != "serving":
        yield Finding(
            "warning",
            "broker",
            f"the broker is {report['state']}",
            "some partitions are not served yet, or soon will not be",
            "wait until it is serving; `odradek status` shows how many logs are loaded",
        )
    for process in report["processes"]:
        if process["restarts"] >= MANY_RESTARTS:
            yield Finding(
                "error",
                f"process {process['kind']} {process['ordinal']}",
                f"the process was restarted {process['restarts']} times; its last exit: {process['last_exit'] or 'not known'}",
                "each restart closes connections, or delays requests that need the process",
                "look for the process's last messages in the broker's log; if it is killed for lack of memory, give the "
                "machine or the systemd unit more",
            )
    if report["memory_faults"]:
        yield Finding(
            "error",
            "memory",
            f"processes died {report['memory_faults']} times of a signal after which the shared memory may be damaged",
            "each time all processes were restarted, and all logs were loaded from disk again",
            "report it as a bug with the broker's log, and test the machine's memory",
        )
    if taken := report.get("metrics_instead_of"):
        yield Finding(
            "warning",
            "metrics.listener",
            f"the default {taken} was in use at the start, so metrics are at {address_of(report['metrics'])} until the next "
            "start",
            "a Prometheus that scrapes the default port gets the metrics of another process, or none",
            "set metrics.listener to a free address and configure Prometheus for it, or to an empty value; then restart the "
            "broker",
        )
    for directory in report["log_dirs"]:
        yield from _log_dir(directory)
    if "tasks" in report:
        from odradek.cli.health.tasks import judge_tasks

        yield from judge_tasks(report["tasks"])
    if "producer_state" in report:
        yield from _producer_state(report["producer_state"])
    if report.get("access", {}).get("locked_out"):
        yield Finding(
            "error",
            "access control",
            "nobody may change access control lists: there is no super user, and no ACL allows ALTER on the cluster",
            "clients that the ACLs do not allow something are denied, and no client can add an ACL",
            "set super.users, for example super.users=User:admin, and restart the broker",
        )
    if "security" in report:
        from odradek.cli.health.security import judge_security

        yield from judge_security(report["security"])
    if "cluster" in report:
        from odradek.cli.health.membership import judge_membership

        yield from judge_membership(report["cluster"])


def _producer_state(state: Mapping[str, int]) -> Iterator[Finding]:
    """The findings on the memory for the state of idempotent producers."""
    share = state["used_bytes"] / state["max_bytes"]
    if share > PRODUCER_STATE_NEARLY_FULL:
        yield Finding(
            "warning",
            "state of idempotent producers",
            f"the state of {state['producers']:,} producers uses {share:.0%} of odradek.producer.state.max.bytes "
            f"({state['max_bytes'] / 1e6:.0f} MB)",
            "the state of inactive producers is evicted early, and new producers are refused when the memory is full",
            "raise odradek.producer.state.max.bytes and restart the broker; look for clients that create a producer for each "
            "message",
        )
    for word, key in _LIMITS.items():
        if state[word]:
            yield Finding(
                "error",
                "state of idempotent producers",
                f"{state[word]:,} batches of new producers were refused since the broker's start because of {key}",
                "these producers retry until their delivery timeout, and then report an error",
                "the workers' log lines name the clients' addresses; look for clients that create a producer for each "
                f"message, or raise {key}",
            )
    if state["dropped_at_start"]:
        yield Finding(
            "warning",
            "state of idempotent producers",
            f"the state of {state['dropped_at_start']:,} producers was dropped at the last start, because it exceeded a limit",
            "if one of these producers retries a request, its records may be appended twice",
            "raise odradek.producer.state.max.bytes and odradek.producer.state.partition.max.producers",
        )


def _log_dir(directory: Mapping[str, Any]) -> Iterator[Finding]:
    path = directory["path"]
    if not directory["online"]:
        yield Finding(
            "error",
            f"log directory {path}",
            "the log directory is offline, because an operation on its files failed",
            "the broker does not serve the partitions in this directory",
            "look in the kernel's log for errors of its device, repair or replace it, and restart the broker",
        )
    elif directory["disk"] == "full" and directory.get("full_despite_space"):
        yield Finding(
            "error",
            f"log directory {path}",
            f"a write found no space, or few inodes are left, although {_free(directory)}",
            "producers are refused until there are enough inodes, and writes find space",
            "the ERROR line in the broker's log has the reason; check the quotas of the broker's user and directory (`quota`, "
            f"`repquota`), and the inodes (`df -i {path}`). Delete topics or expired segments, or raise the limit",
        )
    elif directory["disk"] == "full":
        yield Finding(
            "error",
            f"log directory {path}",
            f"the disk is full: {_free(directory)}",
            f"producers are refused until {_limit(directory, 'full_until_bytes')} are free",
            "shorten the retention of the largest topics (`odradek topic list --sizes`); while the disk is full, expired "
            "segments are deleted within seconds. Or delete a topic, or enlarge the disk",
        )
    elif directory["disk"] == "low":
        yield Finding(
            "warning",
            f"log directory {path}",
            f"the disk is nearly full: {_free(directory)}",
            f"producers are refused when less than {_limit(directory, 'full_below_bytes')} are free",
            "shorten the retention of the largest topics (`odradek topic list --sizes`), or enlarge the disk",
        )


def _limit(directory: Mapping[str, Any], name: str) -> str:
    return size(directory[name]) if name in directory else "enough bytes"  # a broker that was started before an upgrade


def _free(directory: Mapping[str, Any]) -> str:
    return f"{size(directory['free_bytes'])} of {size(directory['total_bytes'])} are free"


def _open_files(report: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings on processes whose open files are near their limit (`FEW_FILES`)."""
    for process in report["processes"]:
        pid = process["pid"]
        if pid is None:
            continue
        try:
            limits = Path(f"/proc/{pid}/limits").read_text()
            used = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            continue  # the process has ended, or belongs to another user
        allowed = next(
            (line.split()[3] for line in limits.splitlines() if line.startswith("Max open files")), "unlimited"
        )
        if allowed.isdigit() and used > FEW_FILES * int(allowed):
            yield Finding(
                "error",
                f"process {process['kind']} {process['ordinal']}",
                f"the process has {used} open files; its limit is {allowed}",
                "at the limit, connections are refused and logs cannot be opened",
                "raise LimitNOFILE of the broker's systemd unit (or ulimit -n), and restart the broker",
            )
