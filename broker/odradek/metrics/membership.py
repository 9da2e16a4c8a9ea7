"""Families about the broker as a member of a cluster: its in-sync replicas, its elections as the controller, its session.

Everything is read from the slots, the header and the coordinator's meter page, so that no value depends on a living process.
"""

from collections.abc import Iterator, Mapping, Sequence

import odradek._ext.shm.brokers as brokers
from odradek._ext.shm import overview
from odradek.metadata.session import CODES, WRONG_TREE_CODE, SessionState
from odradek.metrics.exposition import NO_LABELS, Family
from odradek.metrics.names import METRICS
from odradek.metrics.processes import single

_COUNTERS = {
    "kafka_server_replicamanager_isrshrinks_total": "in_sync_shrinks",
    "kafka_server_replicamanager_isrexpands_total": "in_sync_expansions",
    "kafka_server_replicamanager_failedisrupdates_total": "in_sync_failed",
    "kafka_controller_controllerstats_uncleanleaderelections_total": "unclean_elections",
    "kafka_server_sessionexpirelistener_zookeeperexpires_total": "sessions_expired",
    "kafka_server_sessionexpirelistener_zookeeperdisconnects_total": "session_disconnects",
}


def families(words: Sequence[Mapping[str, int]], now_ms: int) -> Iterator[Family]:
    """Yield the families. :param words: the words of the coordinators' pages. :param now_ms: the monotonic time in ms."""
    for name, word in _COUNTERS.items():
        yield single(name, sum(page[word] for page in words))
    elections = METRICS["kafka_controller_controllerstats_leaderelectionrateandtimems"]
    spent, events = (sum(page[word] for page in words) for word in ("election_us", "election_events"))
    yield Family(elections, [("_sum", NO_LABELS, spent / 1000), ("_count", NO_LABELS, events)])
    counts = overview.replica_counts()
    yield single("kafka_server_replicamanager_reassigningpartitions", counts.reassigning)
    yield single("odradek_isr_change_pending_seconds", counts.pending_ms / 1000)
    yield single("odradek_lost_tail_partitions", counts.lost_tail)
    yield single("odradek_lost_tail_led_partitions", counts.lost_tail_led)
    if not brokers.clustered():
        return
    state = max((page["session_state"] for page in words), default=0)
    lost = state in (CODES[SessionState.LOST], WRONG_TREE_CODE)
    yield single("odradek_broker_registered", int(brokers.broker_epoch() >= 0 and not lost))
    if state:
        since = max(page["session_since_ms"] for page in words)
        connected = state in (CODES[SessionState.CONNECTED], WRONG_TREE_CODE)
        yield single("odradek_zookeeper_disconnected_seconds", 0 if connected else max(0, now_ms - since) / 1000)
