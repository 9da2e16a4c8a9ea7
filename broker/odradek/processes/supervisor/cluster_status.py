"""The part of the status document about a cluster. Runs in the supervisor; only brokers with ZooKeeper import it.

It reads words of the shared memory and the coordinator's meter page: no lock is taken, and no child is queried.
"""

import time
from typing import Any

import odradek._ext.shm.brokers as brokers
from odradek._ext.shm import overview
from odradek._ext.shm.layout import ProcessKind, ProcessState
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.config.broker_config import BrokerConfig
from odradek.metadata.session import CODES, WRONG_TREE_CODE, SessionState
from odradek.metrics import pages

WRONG_TREE = "wrong tree"
"""Connected to ZooKeeper, whose tree is not that of the cluster."""
STATES = {code: state.value for state, code in CODES.items()} | {WRONG_TREE_CODE: WRONG_TREE}
JOINING = "joining"
"""The coordinator has not joined the cluster since its start."""
NO_COORDINATOR = "unknown"
"""No coordinator runs, which alone has a connection to ZooKeeper."""


def report(shm: SharedMemory, config: BrokerConfig) -> dict[str, Any]:
    """Membership, session, controller, live brokers with the addresses of their inter-broker listeners, counts of partitions.

    Times are in seconds. ``since_s`` of ZooKeeper is the time since the connection was made or lost; None if it is not known.
    """
    state, since_s = _session(shm)
    epoch = int(brokers.broker_epoch())
    controller_id, controller_epoch = brokers.controller()
    listener = config.inter_broker_listener.name
    counts = overview.replica_counts()._asdict()
    times = {f"{name}_s": counts.pop(f"{name}_ms") / 1000 for name in ("under_replicated", "pending")}
    return {
        "registered": epoch >= 0 and state not in (SessionState.LOST.value, WRONG_TREE),
        "broker_epoch": epoch if epoch >= 0 else None,
        "zookeeper": {
            "connect": config.text("zookeeper.connect"),
            "state": state,
            "since_s": since_s,
            "session_timeout_s": config.integer("zookeeper.session.timeout.ms") / 1000,
        },
        "controller": controller_id if controller_id >= 0 else None,
        "controller_epoch": controller_epoch,
        "inter_broker_listener": listener,
        "brokers": [_broker(info, listener) for info in brokers.brokers()],
        "replicas": counts | times,
    }


def _session(shm: SharedMemory) -> tuple[str, float | None]:
    """The state of the session, and the seconds since the connection was made or lost."""
    for process in shm.processes():
        if process.kind == ProcessKind.COORDINATOR and process.state in (ProcessState.STARTING, ProcessState.SERVING):
            words = pages.counters(shm, process.index)
            state = STATES.get(words["session_state"])
            if state is None:
                return JOINING, None
            return state, max(0.0, time.monotonic() - words["session_since_ms"] / 1000)
    return NO_COORDINATOR, None


def _broker(info: Any, listener: str) -> dict[str, Any]:
    endpoint = info.endpoint(listener)
    return {
        "id": info.id,
        "host": None if endpoint is None else endpoint.host,
        "port": None if endpoint is None else endpoint.port,
    }
