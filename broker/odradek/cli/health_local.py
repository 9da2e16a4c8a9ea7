"""What the doctor sees of a broker on this machine: what its supervisor tells, and what the kernel does."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from odradek.cli.finding import Finding
from odradek.cli.running_broker import FindError, NotRunningError, address_of, find, status_of

MANY_RESTARTS = 3
FEW_FILES = 0.8
PRODUCER_STATE_NEARLY_FULL = 0.75
_LIMITS = {
    "refused_client": "odradek.producer.state.client.max.percent",
    "refused_partition": "odradek.producer.state.partition.max.producers",
    "refused_arena": "odradek.producer.state.max.bytes",
}


def examine_broker(data_dir: str) -> list[Finding]:
    """All findings."""
    try:
        directory, running = find(None, (), data_dir, None)
        report = status_of(directory, running)
    except NotRunningError as error:
        reason = "nothing is served from this directory"
        return [
            Finding("error", "broker", str(error), reason, "start it with `odradek start`; its log says why it ended")
        ]
    except FindError as error:
        return [
            Finding(
                "error",
                "broker",
                str(error),
                "whoever cannot ask it cannot tell how it is",
                "run this as the user that the broker runs as, with --data-dir naming the first of its log.dirs",
            )
        ]
    return [*judge_status(report), *_open_files(report)]


def metrics_of(data_dir: str) -> str | None:
    """HOST:PORT of the broker's metrics.listener; None if it has none, or does not answer."""
    try:
        listener = status_of(*find(None, (), data_dir, None)).get("metrics")
    except FindError:
        return None
    return listener and address_of(listener)


def judge_status(report: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong in the status of a supervisor (`odradek.processes.status.report`)."""
    if report["state"] != "serving":
        yield Finding(
            "warning",
            "broker",
            f"it is {report['state']}",
            "it does not serve everything, or soon will not",
            "wait for it; `odradek status` shows how far the loading of its logs is",
        )
    for process in report["processes"]:
        if process["restarts"] >= MANY_RESTARTS:
            yield Finding(
                "error",
                f"process {process['kind']} {process['ordinal']}",
                f"it was restarted {process['restarts']} times; its last end: {process['last_exit'] or 'not known'}",
                "each restart breaks connections or delays what waits for it",
                "look for its last words in the broker's log; if it is killed for memory, give the machine or the unit more",
            )
    if report["memory_faults"]:
        yield Finding(
            "error",
            "memory",
            f"a process died {report['memory_faults']} times in a way that made the shared memory untrusted",
            "all processes were started anew and all logs loaded from disk",
            "report it with the broker's log, and check the machine's memory",
        )
    for directory in report["log_dirs"]:
        yield from _log_dir(directory)
    if "producer_state" in report:
        yield from _producer_state(report["producer_state"])


def _producer_state(state: Mapping[str, int]) -> Iterator[Finding]:
    """Whether the memory for idempotent producers is enough."""
    share = state["used_bytes"] / state["max_bytes"]
    if share > PRODUCER_STATE_NEARLY_FULL:
        yield Finding(
            "warning",
            "state of idempotent producers",
            f"it takes {share:.0%} of odradek.producer.state.max.bytes ({state['max_bytes'] / 1e6:.0f} MB), "
            f"for {state['producers']:,} producers",
            "silent producers are forgotten early, and new ones are refused when it is full",
            "raise odradek.producer.state.max.bytes and restart; look for clients that start a producer for each message",
        )
    for word, key in _LIMITS.items():
        if state[word]:
            yield Finding(
                "error",
                "state of idempotent producers",
                f"{state[word]:,} batches of new producers were refused since the start because of {key}",
                "these producers retry until their own timeout, and then report an error",
                "the workers' log names the addresses; look for clients that start a producer for each message, "
                f"or raise {key}",
            )
    if state["dropped_at_start"]:
        yield Finding(
            "warning",
            "state of idempotent producers",
            f"{state['dropped_at_start']:,} producers were dropped at the last start because they found no room",
            "a request of theirs that is repeated may be appended twice",
            "raise odradek.producer.state.max.bytes and odradek.producer.state.partition.max.producers",
        )


def _log_dir(directory: Mapping[str, Any]) -> Iterator[Finding]:
    path = directory["path"]
    if not directory["online"]:
        yield Finding(
            "error",
            f"log directory {path}",
            "it is offline: a call on its files failed",
            "its partitions are not served by this broker",
            "look at the kernel's log for its device, mend or replace it, and start the broker again",
        )
    elif directory["disk"] == "full":
        yield Finding(
            "error",
            f"log directory {path}",
            f"it is full: {directory['free_bytes'] / 1e6:.0f} MB are free",
            "producers to its partitions are refused until there is room",
            "make room: shorten the retention of its largest topics (`odradek topic list --sizes`), which deletes expired "
            "segments within seconds while it is full; or delete a topic, or enlarge the disk",
        )
    elif directory["disk"] == "low":
        yield Finding(
            "warning",
            f"log directory {path}",
            f"it is low on room: {directory['free_bytes'] / 1e6:.0f} MB are free",
            "when it is full, producers are refused",
            "shorten the retention of its largest topics (`odradek topic list --sizes`), or enlarge the disk",
        )


def _open_files(report: Mapping[str, Any]) -> Iterator[Finding]:
    """Processes that will soon have as many open files as they may."""
    for process in report["processes"]:
        pid = process["pid"]
        if pid is None:
            continue
        try:
            limits = Path(f"/proc/{pid}/limits").read_text()
            used = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            continue  # it has ended, or is another user's
        allowed = next(
            (line.split()[3] for line in limits.splitlines() if line.startswith("Max open files")), "unlimited"
        )
        if allowed.isdigit() and used > FEW_FILES * int(allowed):
            yield Finding(
                "error",
                f"process {process['kind']} {process['ordinal']}",
                f"it has {used} open files of {allowed} that it may have",
                "at the limit, connections are refused and logs cannot be opened",
                "raise LimitNOFILE of its unit (or ulimit -n) and start it again",
            )
