"""Metrics of `odradek mirror run`, which serves them at its own address; no broker has them."""

from odradek.metrics.metric import COUNTER, GAUGE, rows

_PREFIX = "odradek_mirror_"
_FLOW = "source target"
_PARTITION = "source target topic partition"

MIRROR = (
    *rows(GAUGE, "version worker", {
        "info": "Version of the program and name of the worker; the value is 1.",
    }, _PREFIX),
    *rows(COUNTER, _PARTITION, {
        "records_total": "Records written to a partition of the target by this worker. The topic is that of the target.",
        "bytes_total": "Bytes of record batches written to a partition of the target by this worker, compressed as in the "
        "source.",
    }, _PREFIX),
    *rows(GAUGE, _PARTITION, {
        "lag_records": "Lag of a partition in offsets of the source: the high watermark minus the next offset that this worker "
        "fetches.",
        "lag_seconds": "Lag of a partition in seconds: the age of its newest record in the target while newer records wait "
        "in the source, or the time for which records have waited, if that is shorter; 0 if no record waits.",
    }, _PREFIX),
    *rows(GAUGE, f"{_PARTITION} reason", {
        "partition_stopped": "1 for each partition that is not mirrored because the source or the target refuses it, with the "
        "reason. No record is skipped.",
    }, _PREFIX),
    *rows(COUNTER, _FLOW, {
        "commits_total": "Commits of lanes of a flow in this worker: transactions in the target, or commits of offsets if "
        "odradek.mirror.exactly.once is false.",
        "failures_total": "Failures of lanes of a flow in this worker. After each one the lane continues at its committed "
        "positions.",
        "rebalances_total": "Assignments of lanes that this worker received from the group of a flow.",
        "refresh_failures_total": "Failed searches of this worker for new topics and partitions of a flow.",
        "offset_syncs_total": "Offset syncs that this worker has written for a flow.",
        "checkpoints_total": "Checkpoints of consumer groups that this worker has written for a flow.",
        "group_offsets_total": "Offsets of consumer groups that this worker has committed in the target of a flow "
        "(sync.group.offsets.enabled).",
        "bookkeeping_failures_total": "Failed attempts of this worker to write offset syncs, checkpoints, heartbeats or "
        "offsets of groups for a flow. They do not stop the mirroring of records.",
    }, _PREFIX),
    *rows(GAUGE, _FLOW, {
        "lanes": "Lanes of a flow that this worker runs.",
        "failing_jobs": "Jobs of this worker for a flow whose last attempt failed, of these: offset syncs, checkpoints, "
        "offsets of groups, heartbeats.",
        "topics": "Topics of the source that a flow mirrors.",
        "refused_topics": "Topics of the source that a flow selects but cannot mirror; the log of the worker has the "
        "reasons.",
        "last_refresh_timestamp_seconds": "Unix time in seconds of the last successful search for topics and partitions of "
        "a flow.",
        "last_commit_timestamp_seconds": "Unix time in seconds of the last commit of a lane of a flow in this worker that "
        "contained records.",
    }, _PREFIX),
    *rows(COUNTER, "", {
        "cpu_seconds_total": "CPU time in seconds that the process of the mirror has used, in user and kernel mode.",
    }, _PREFIX),
    *rows(GAUGE, "", {
        "resident_memory_bytes": "Resident memory of the process of the mirror in bytes.",
        "start_time_seconds": "Unix time in seconds at which the process of the mirror started.",
    }, _PREFIX),
)  # fmt: skip

MIRROR_METRICS = {metric.name: metric for metric in MIRROR}
