"""The table of the broker's processes. The supervisor derives from it how to start, restart and stop each process."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from odradek._ext.shm.layout import ProcessKind
from odradek.config.broker_config import BrokerConfig
from odradek.controller.topic_names import CONSUMER_OFFSETS


@dataclass(frozen=True)
class ProcessRow:
    """A kind of process.

    :param main: "module:function", called with a ProcessContext in the forked child; returns the exit code.
    :param stage: processes of stage 0 run to their end before stage 1 starts. Stage 2 starts directly after stage 1, which
        contains the process that takes longest to start. `LAST_STAGE` starts when the broker serves; nothing waits for it.
    :param count: returns the number of processes of this kind for a configuration.
    :param stop_order: the supervisor sends SIGTERM to all processes of one order, waits until they have ended, and continues
        with the next higher order.
    """

    kind: int
    name: str
    main: str
    stage: int
    count: Callable[[BrokerConfig], int]
    stop_order: int


def _workers(config: BrokerConfig) -> int:
    return config.integer("num.network.threads")


MAX_LOADERS = 16
LAST_STAGE = 3


def _loaders(config: BrokerConfig) -> int:
    return min(MAX_LOADERS, config.integer("num.recovery.threads.per.data.dir") * len(config.log_dirs))


def _single(_: BrokerConfig) -> int:
    return 1


def _replicators(config: BrokerConfig) -> int:
    """1 in a cluster, else 0."""
    return int(config.clustered)


def _reporters(config: BrokerConfig) -> int:
    """0 if neither HTTP nor the usage spool is configured, else 1."""
    return int(bool(config["metrics.listener"]) or config.integer("usage.spool.max.bytes") > 0)


def also_imported(config: BrokerConfig) -> list[str]:
    """The modules that the coordinator needs besides its main function with this configuration and these log directories, as
    "module:object". The supervisor imports them before the fork; other brokers do not need them."""
    from odradek.security.sasl.settings import key_sources  # here: the command imports this module, too

    used = {
        "odradek.processes.coordinator.cluster.service:ClusterService": config.clustered,
        "odradek.processes.coordinator.transactions.other_brokers:BrokerPeers": config.clustered,
        "odradek.processes.coordinator.security.jwks_reader:JwksReader": bool(key_sources(config)),
        "odradek.processes.coordinator.groups.creation:make_groups": _has_groups(config),
    }
    return [name for name, is_used in used.items() if is_used]


def _has_groups(config: BrokerConfig) -> bool:
    """Whether a log directory has a partition of `__consumer_offsets`. Unreadable directories are reported later."""
    for directory in config.log_dirs:
        try:
            with os.scandir(directory) as entries:
                if any(entry.name.startswith(f"{CONSUMER_OFFSETS}-") for entry in entries):
                    return True
        except OSError:
            continue
    return False


PROCESSES = (
    ProcessRow(ProcessKind.LOADER, "loader", "odradek.processes.loader:main", 0, _loaders, 0),
    ProcessRow(
        ProcessKind.COORDINATOR,
        "coordinator",
        "odradek.processes.coordinator.coordinator:main",
        1,
        _single,
        1,
    ),
    ProcessRow(ProcessKind.WORKER, "worker", "odradek.processes.worker.worker:main", 2, _workers, 0),
    ProcessRow(ProcessKind.CLEANER, "cleaner", "odradek.processes.cleaner:main", 2, _single, 3),
    ProcessRow(ProcessKind.REPLICATOR, "replicator", "odradek.processes.replicator:main", LAST_STAGE, _replicators, 0),
    ProcessRow(ProcessKind.REPORTER, "reporter", "odradek.processes.reporter:main", LAST_STAGE, _reporters, 2),
)
