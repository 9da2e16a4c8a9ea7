"""The one table of the broker's processes. Everything about starting, restarting and stopping them derives from it."""

from collections.abc import Callable
from dataclasses import dataclass

from odradek._ext.shm.layout import ProcessKind
from odradek.config.broker_config import BrokerConfig


@dataclass(frozen=True)
class ProcessRow:
    """A kind of process.

    :param main: "module:function", called with a ProcessContext in the forked child; returns the exit code.
    :param stage: 0 runs to its end before anything of stage 1 starts; 2 follows 1 at once, and what takes
        longest is in 1; `LAST_STAGE` is started when the broker serves, and nobody waits for it.
    :param count: how many of it, from the configuration.
    :param stop_order: SIGTERM goes to one order after the other; the next waits until those before have ended.
    """

    kind: int
    name: str
    main: str
    stage: int
    count: Callable[[BrokerConfig], int]
    stop_order: int


def _workers(config: BrokerConfig) -> int:
    return config.integer("num.network.threads")


MOST_LOADERS = 16
LAST_STAGE = 3


def _loaders(config: BrokerConfig) -> int:
    return min(MOST_LOADERS, config.integer("num.recovery.threads.per.data.dir") * len(config.log_dirs))


def _one(_: BrokerConfig) -> int:
    return 1


def _reporters(config: BrokerConfig) -> int:
    """None when nobody is to be told anything: neither over HTTP nor by the spool."""
    return int(bool(config["metrics.listener"]) or config.integer("usage.spool.max.bytes") > 0)


PROCESSES = (
    ProcessRow(ProcessKind.LOADER, "loader", "odradek.processes.loader:main", 0, _loaders, 0),
    ProcessRow(ProcessKind.COORDINATOR, "coordinator", "odradek.processes.coordinator:main", 1, _one, 1),
    ProcessRow(ProcessKind.WORKER, "worker", "odradek.processes.worker:main", 2, _workers, 0),
    ProcessRow(ProcessKind.CLEANER, "cleaner", "odradek.processes.cleaner:main", 2, _one, 3),
    ProcessRow(ProcessKind.METRICS, "reporter", "odradek.processes.reporter:main", LAST_STAGE, _reporters, 2),
)
