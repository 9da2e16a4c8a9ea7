"""What the supervisor hands to the main function of every process it forks."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from odradek._ext.shm.shared_memory import SharedMemory
from odradek.config.broker_config import BrokerConfig
from odradek.config.listeners import Listener
from odradek.shm.running_config import RunningConfig


@dataclass
class ProcessContext:
    """One a process. Everything in it was made before the first fork, but `shm`'s place, which is the process's own.

    :param shm: the shared mapping, already entered at `index`.
    :param index: place in the shared process table; `ordinal`: which of its kind, from 0.
    :param listeners: as bound, with the port that was chosen; `advertised`: what clients are told, in the same order.
    :param log_dirs: paths in the order of the table's log directories; offline ones are among them.
    :param clean: for each log directory, whether it was closed in order before this start.
    :param running: the settings that change while the broker runs; `config` is the process's own copy of all.
    :param handover_fd: a worker's end of its channel with the acceptor; -1 for others.
    :param metrics_socket: the reporter's listening socket; None for others, and where `metrics.listener` is empty.
    :param reporter_memory: a descriptor of what a reporter leaves to its successor; -1 for others.
    :param forward_path: the Unix socket on which the coordinator takes forwarded requests; `forward_listener` is that
        socket, listening, and outlives every coordinator, so that workers' connections wait while it restarts.
    """

    config: BrokerConfig
    shm: SharedMemory
    index: int
    kind: int
    ordinal: int
    listeners: Sequence[Listener]
    advertised: Sequence[Listener]
    log_dirs: Sequence[Path]
    clean: Sequence[bool]
    forward_path: str
    forward_listener: socket.socket | None = None
    handover_fd: int = -1
    metrics_socket: socket.socket | None = None
    reporter_memory: int = -1
    running: RunningConfig = field(default_factory=RunningConfig)
    notes: dict[str, object] = field(default_factory=dict)
