"""Dashboard of the mirror: lag, traffic, stopped partitions and failures of `odradek mirror run`."""

from grafana.board import BROKER, RATE, Board, Row, Variable, largest, rate
from grafana.panels import ORANGE, RED, YELLOW, Query, number, rows, time_series
from grafana.tasks import alerts

UID = "odradek-mirror"

FLOW = f'{BROKER},source=~"$source",target=~"$target"'
SOURCE = Variable("source", "Source", f"label_values(odradek_mirror_lanes{{{BROKER}}}, source)")
TARGET = Variable("target", "Target", f"label_values(odradek_mirror_lanes{{{BROKER}}}, target)")
LAG_STEPS = [(60, YELLOW), (300, RED)]


def _of_topics(metric: str) -> str:
    """The sum of a counter's rates by flow and topic, without topics of which a worker has no traffic."""
    return f"sum by (source, target, topic) (rate({metric}{{{FLOW}}}[{RATE}]))"


# fmt: off
NOW = Row("Now", 4, [
    number(4, "Largest lag", "s",
        "Lag of the partition that is most behind: the age of its newest mirrored record while newer records wait in "
        "the source.",
        Query(f"max(odradek_mirror_lag_seconds{{{FLOW}}})", "lag"), steps=LAG_STEPS),
    number(4, "Records that wait", "short",
        "Offsets in the sources that are not mirrored yet, sum of all partitions.",
        Query(f"sum(odradek_mirror_lag_records{{{FLOW}}})", "records")),
    number(4, "Stopped partitions", "none",
        "Partitions that are not mirrored, because the source or the target refuses them. No record is skipped.",
        Query(f"count(odradek_mirror_partition_stopped{{{FLOW}}}) or vector(0)", "partitions"), steps=[(1, RED)]),
    number(4, "Topics not mirrored", "none",
        "Topics that a flow selects and whose copies cannot be made. `odradek mirror check` has the reasons.",
        Query(f"sum(max by (source, target) (odradek_mirror_refused_topics{{{FLOW}}}))", "topics"),
        steps=[(1, ORANGE)]),
    number(4, "Traffic", "Bps",
        "Bytes of record batches per second that the workers write, compressed as in the source.",
        Query(rate("odradek_mirror_bytes_total", where=FLOW), "bytes")),
    number(4, "Last commit", "s",
        "Time since a lane of any worker last committed records. It grows while the sources have no traffic.",
        Query(f"time() - max(odradek_mirror_last_commit_timestamp_seconds{{{FLOW}}})", "age")),
])

LAG = Row("Lag", 8, [
    time_series(12, "Lag in seconds", "s",
        "Age of the newest mirrored record while newer records wait in the source, for the partition of each topic "
        "that is most behind. The fifteen topics with the largest lag.",
        Query(
            largest(
                15,
                f"max by (source, target, topic) (odradek_mirror_lag_seconds{{{FLOW}}})",
                "source",
                "target",
                "topic",
            ),
            "{{source}}->{{target}} {{topic}}",
        ), steps=LAG_STEPS),
    time_series(12, "Lag in records", "short",
        "Offsets in the source that are not mirrored yet. The fifteen topics with the most.",
        Query(
            largest(
                15,
                f"sum by (source, target, topic) (odradek_mirror_lag_records{{{FLOW}}})",
                "source",
                "target",
                "topic",
            ),
            "{{source}}->{{target}} {{topic}}",
        )),
    rows(24, "Stopped partitions", "none",
        "Partitions that are not mirrored, with the reason. docs/operate/mirror.md has a remedy for each reason.",
        {"source": "Source", "target": "Target", "topic": "Topic", "partition": "Partition", "reason": "Reason"},
        Query(
            f"max by (source, target, topic, partition, reason) (odradek_mirror_partition_stopped{{{FLOW}}})",
            "Stopped",
        )),
])

TRAFFIC = Row("Traffic", 8, [
    time_series(12, "Bytes", "Bps",
        "Bytes of record batches written per second; the fifteen topics with the most.",
        Query(
            largest(15, _of_topics("odradek_mirror_bytes_total"), "source", "target", "topic"),
            "{{source}}->{{target}} {{topic}}",
        ), stacked=True),
    time_series(12, "Records", "cps",
        "Records written per second; the fifteen topics with the most.",
        Query(
            largest(15, _of_topics("odradek_mirror_records_total"), "source", "target", "topic"),
            "{{source}}->{{target}} {{topic}}",
        ), stacked=True),
])

WORKERS = Row("Workers", 8, [
    time_series(8, "Lanes", "none",
        "Lanes that each worker runs. If their sum is less than the number of lanes of all flows, no worker runs the "
        "rest.",
        Query(f"sum by (instance) (odradek_mirror_lanes{{{FLOW}}})", "{{instance}}"), stacked=True),
    time_series(8, "Failures and rebalances", "ops",
        "Failures of lanes, failed searches for topics, failed writes of offset syncs, checkpoints and heartbeats, "
        "and assignments of lanes, per second.",
        Query(rate("odradek_mirror_failures_total", where=FLOW), "failures"),
        Query(rate("odradek_mirror_refresh_failures_total", where=FLOW), "failed searches"),
        Query(rate("odradek_mirror_bookkeeping_failures_total", where=FLOW), "failed bookkeeping"),
        Query(rate("odradek_mirror_rebalances_total", where=FLOW), "assignments")),
    time_series(8, "CPU time", "percentunit",
        "CPU time of each worker per second.",
        Query(f"rate(odradek_mirror_cpu_seconds_total{{{BROKER}}}[{RATE}])", "{{instance}}")),
    time_series(8, "Commits", "ops",
        "Transactions that the lanes commit per second, of all workers.",
        Query(rate("odradek_mirror_commits_total", "source, target", where=FLOW), "{{source}}->{{target}}")),
    time_series(8, "Memory", "bytes",
        "Resident memory of each worker.",
        Query(f"odradek_mirror_resident_memory_bytes{{{BROKER}}}", "{{instance}}")),
    time_series(8, "Topics", "none",
        "Topics of the source that each flow mirrors.",
        Query(f"max by (source, target) (odradek_mirror_topics{{{FLOW}}})", "{{source}}->{{target}}")),
])

TASKS = Row("Background tasks", 7, [
    time_series(8, "Failing jobs", "none",
        "Jobs of all workers whose last attempt failed: offset syncs, checkpoints, offsets of groups, heartbeats.",
        Query(f"sum by (source, target) (odradek_mirror_failing_jobs{{{FLOW}}})", "{{source}}->{{target}}")),
    alerts(16, of_mirror=True),
])

BOARD = Board(
    UID,
    "Odradek / Mirror",
    "Lag, traffic, stopped partitions and failures of mirrors between clusters.",
    [NOW, LAG, TRAFFIC, WORKERS, TASKS],
    variables=[SOURCE, TARGET],
    of_mirror=True,
)
