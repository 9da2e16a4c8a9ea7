"""Dashboard of the mirror: lag, traffic, stopped partitions and failures of `odradek mirror run`."""

from grafana.board import BROKER, RATE, Board, Row, Variable, largest
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


NOW = Row(
    "Now",
    4,
    [
        (
            4,
            number(
                "Largest lag",
                "Lag of the partition that is most behind: the age of its newest mirrored record while newer records wait "
                "in the source.",
                "s",
                Query(f"max(odradek_mirror_lag_seconds{{{FLOW}}})", "lag"),
                steps=LAG_STEPS,
            ),
        ),
        (
            4,
            number(
                "Records that wait",
                "Offsets in the sources that are not mirrored yet, sum of all partitions.",
                "short",
                Query(f"sum(odradek_mirror_lag_records{{{FLOW}}})", "records"),
            ),
        ),
        (
            4,
            number(
                "Stopped partitions",
                "Partitions that are not mirrored, because the source or the target refuses them. No record is skipped.",
                "none",
                Query(f"count(odradek_mirror_partition_stopped{{{FLOW}}}) or vector(0)", "partitions"),
                steps=[(1, RED)],
            ),
        ),
        (
            4,
            number(
                "Topics not mirrored",
                "Topics that a flow selects and whose copies cannot be made. `odradek mirror check` has the reasons.",
                "none",
                Query(f"sum(max by (source, target) (odradek_mirror_refused_topics{{{FLOW}}}))", "topics"),
                steps=[(1, ORANGE)],
            ),
        ),
        (
            4,
            number(
                "Traffic",
                "Bytes of record batches per second that the workers write, compressed as in the source.",
                "Bps",
                Query(f"sum(rate(odradek_mirror_bytes_total{{{FLOW}}}[{RATE}]))", "bytes"),
            ),
        ),
        (
            4,
            number(
                "Last commit",
                "Time since a lane of any worker last committed records. It grows while the sources have no traffic.",
                "s",
                Query(f"time() - max(odradek_mirror_last_commit_timestamp_seconds{{{FLOW}}})", "age"),
            ),
        ),
    ],
)

LAG = Row(
    "Lag",
    8,
    [
        (
            12,
            time_series(
                "Lag in seconds",
                "Age of the newest mirrored record while newer records wait in the source, for the partition of each topic "
                "that is most behind. The fifteen topics with the largest lag.",
                "s",
                Query(
                    largest(
                        15,
                        f"max by (source, target, topic) (odradek_mirror_lag_seconds{{{FLOW}}})",
                        "source",
                        "target",
                        "topic",
                    ),
                    "{{source}}->{{target}} {{topic}}",
                ),
                steps=LAG_STEPS,
            ),
        ),
        (
            12,
            time_series(
                "Lag in records",
                "Offsets in the source that are not mirrored yet. The fifteen topics with the most.",
                "short",
                Query(
                    largest(
                        15,
                        f"sum by (source, target, topic) (odradek_mirror_lag_records{{{FLOW}}})",
                        "source",
                        "target",
                        "topic",
                    ),
                    "{{source}}->{{target}} {{topic}}",
                ),
            ),
        ),
        (
            24,
            rows(
                "Stopped partitions",
                "Partitions that are not mirrored, with the reason. docs/operate/mirror.md has a remedy for each reason.",
                "none",
                {
                    "source": "Source",
                    "target": "Target",
                    "topic": "Topic",
                    "partition": "Partition",
                    "reason": "Reason",
                },
                Query(
                    f"max by (source, target, topic, partition, reason) (odradek_mirror_partition_stopped{{{FLOW}}})",
                    "Stopped",
                ),
            ),
        ),
    ],
)

TRAFFIC = Row(
    "Traffic",
    8,
    [
        (
            12,
            time_series(
                "Bytes",
                "Bytes of record batches written per second; the fifteen topics with the most.",
                "Bps",
                Query(
                    largest(15, _of_topics("odradek_mirror_bytes_total"), "source", "target", "topic"),
                    "{{source}}->{{target}} {{topic}}",
                ),
                stacked=True,
            ),
        ),
        (
            12,
            time_series(
                "Records",
                "Records written per second; the fifteen topics with the most.",
                "cps",
                Query(
                    largest(15, _of_topics("odradek_mirror_records_total"), "source", "target", "topic"),
                    "{{source}}->{{target}} {{topic}}",
                ),
                stacked=True,
            ),
        ),
    ],
)

WORKERS = Row(
    "Workers",
    8,
    [
        (
            8,
            time_series(
                "Lanes",
                "Lanes that each worker runs. If their sum is less than the number of lanes of all flows, no worker runs "
                "the rest.",
                "none",
                Query(f"sum by (instance) (odradek_mirror_lanes{{{FLOW}}})", "{{instance}}"),
                stacked=True,
            ),
        ),
        (
            8,
            time_series(
                "Failures and rebalances",
                "Failures of lanes, failed searches for topics, failed writes of offset syncs, checkpoints and heartbeats, and "
                "assignments of lanes, per second.",
                "ops",
                Query(f"sum(rate(odradek_mirror_failures_total{{{FLOW}}}[{RATE}]))", "failures"),
                Query(f"sum(rate(odradek_mirror_refresh_failures_total{{{FLOW}}}[{RATE}]))", "failed searches"),
                Query(f"sum(rate(odradek_mirror_bookkeeping_failures_total{{{FLOW}}}[{RATE}]))", "failed bookkeeping"),
                Query(f"sum(rate(odradek_mirror_rebalances_total{{{FLOW}}}[{RATE}]))", "assignments"),
            ),
        ),
        (
            8,
            time_series(
                "CPU time",
                "CPU time of each worker per second.",
                "percentunit",
                Query(f"rate(odradek_mirror_cpu_seconds_total{{{BROKER}}}[{RATE}])", "{{instance}}"),
            ),
        ),
        (
            8,
            time_series(
                "Commits",
                "Transactions that the lanes commit per second, of all workers.",
                "ops",
                Query(
                    f"sum by (source, target) (rate(odradek_mirror_commits_total{{{FLOW}}}[{RATE}]))",
                    "{{source}}->{{target}}",
                ),
            ),
        ),
        (
            8,
            time_series(
                "Memory",
                "Resident memory of each worker.",
                "bytes",
                Query(f"odradek_mirror_resident_memory_bytes{{{BROKER}}}", "{{instance}}"),
            ),
        ),
        (
            8,
            time_series(
                "Topics",
                "Topics of the source that each flow mirrors.",
                "none",
                Query(f"max by (source, target) (odradek_mirror_topics{{{FLOW}}})", "{{source}}->{{target}}"),
            ),
        ),
    ],
)

TASKS = Row(
    "Background tasks",
    7,
    [
        (
            8,
            time_series(
                "Failing jobs",
                "Jobs of all workers whose last attempt failed: offset syncs, checkpoints, offsets of groups, heartbeats.",
                "none",
                Query(
                    f"sum by (source, target) (odradek_mirror_failing_jobs{{{FLOW}}})",
                    "{{source}}->{{target}}",
                ),
            ),
        ),
        (16, alerts(of_mirror=True)),
    ],
)

BOARD = Board(
    UID,
    "Odradek / Mirror",
    "Lag, traffic, stopped partitions and failures of mirrors between clusters.",
    [NOW, LAG, TRAFFIC, WORKERS, TASKS],
    variables=[SOURCE, TARGET],
    of_mirror=True,
)
