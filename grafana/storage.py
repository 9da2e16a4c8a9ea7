"""Storage: what is free, how fast it goes, when it will be gone, and what takes it."""

from grafana.board import BROKER, RATE, TOPIC, Board, Row, largest
from grafana.panels import GREEN, ORANGE, RED, YELLOW, Link, Query, bars, number, rows, states, time_series

UID = "odradek-storage"

DAY = 86_400
FAR = 3650 * DAY
"""What stands for never: dashboards show nothing beyond ten years."""
BROKER_TOPIC = f'{BROKER},topic=~"$topic"'
DIRECTORY = "{{instance}} {{log_dir}}"
FREE = f"odradek_log_dir_free_bytes{{{BROKER}}}"
TOTAL = f"odradek_log_dir_total_bytes{{{BROKER}}}"
UNTIL_FULL = f"clamp_max({FREE} / clamp_min(-deriv({FREE}[$history]), 1e-9), {FAR})"
"""Seconds; the slope is that of the line through the samples of ``$history``."""
FULL_STEPS = [(0, RED), (2 * DAY, ORANGE), (7 * DAY, YELLOW), (30 * DAY, GREEN)]
TO_TOPIC = Link("Topic ${__field.labels.topic}", "odradek-topics", {"topic": "topic"})

STATE = Row(
    "State",
    5,
    [
        (
            6,
            number(
                "Until the disk is full",
                "Time until the first log directory is full, at the growth of the period chosen under Trend over. "
                "3650 days means never.",
                "s",
                Query(f"min({UNTIL_FULL})", "until full"),
                steps=FULL_STEPS,
            ),
        ),
        (
            6,
            number(
                "Least free",
                "The free share of the fullest file system.",
                "percentunit",
                Query(f"min({FREE} / {TOTAL})", "free"),
                steps=[(0, RED), (0.1, ORANGE), (0.2, YELLOW), (0.3, GREEN)],
            ),
        ),
        (
            4,
            number(
                "Stored", "Bytes of all logs.", "bytes", Query(f"sum(odradek_topic_stored_bytes{{{BROKER}}})", "stored")
            ),
        ),
        (
            4,
            number(
                "Failed directories",
                "Log directories that are offline until the next restart.",
                "none",
                Query(f"count(odradek_log_dir_online{{{BROKER}}} == 0) or vector(0)", "offline"),
                steps=[(1, RED)],
            ),
        ),
        (
            4,
            number(
                "Times full",
                "How often a log directory became full and refused producers, in the selected time range.",
                "none",
                Query(f"sum(increase(odradek_log_dir_full_total{{{BROKER}}}[$__range]))", "times"),
                steps=[(0.5, RED)],
                decimals=0,
            ),
        ),
    ],
)

CAPACITY = Row(
    "Log directories",
    9,
    [
        (
            12,
            time_series(
                "Free space",
                "Free bytes of the file system of each log directory, and the free bytes in a day and in a week at the "
                "growth of the period chosen under Trend over. Below zero means full.",
                "bytes",
                Query(FREE, f"{DIRECTORY} free"),
                Query(f"predict_linear({FREE}[$history], {DAY})", f"{DIRECTORY} in a day"),
                Query(f"predict_linear({FREE}[$history], {7 * DAY})", f"{DIRECTORY} in a week"),
                low=None,
                steps=[(0, GREEN)],
            ),
        ),
        (
            12,
            time_series(
                "Until full",
                "Time until each log directory is full, at the growth of the period chosen under Trend over. "
                "3650 days means never.",
                "s",
                Query(UNTIL_FULL, DIRECTORY),
            ),
        ),
        (
            8,
            bars(
                "Used",
                "Used share of each file system, other programs included.",
                "percentunit",
                Query(f"1 - {FREE} / {TOTAL}", DIRECTORY),
                steps=[(0.7, YELLOW), (0.85, ORANGE), (0.95, RED)],
                high=1,
            ),
        ),
        (
            8,
            states(
                "State of the disks",
                "State low: the broker deletes removed segments at once. State full: it refuses producers until "
                "there is room.",
                Query(f"odradek_log_dir_full_state{{{BROKER}}}", DIRECTORY),
                {0: ("roomy", GREEN), 1: ("low", ORANGE), 2: ("full", RED)},
            ),
        ),
        (
            8,
            states(
                "Online",
                "A log directory goes offline after a device error and stays offline until the broker restarts.",
                Query(f"odradek_log_dir_online{{{BROKER}}}", DIRECTORY),
                {1: ("online", GREEN), 0: ("offline", RED)},
            ),
        ),
    ],
)

GROWTH = Row(
    "What takes it",
    9,
    [
        (
            12,
            time_series(
                "Stored by topic",
                "Bytes of the logs, the fifteen largest topics.",
                "bytes",
                Query(
                    largest(15, f"sum by (topic) (odradek_topic_stored_bytes{{{BROKER_TOPIC}}})", "topic"), "{{topic}}"
                ),
                stacked=True,
                link=TO_TOPIC,
            ),
        ),
        (
            12,
            time_series(
                "Growth by topic",
                "Net growth of the logs (written minus deleted) over the period chosen under Trend over. "
                "The fifteen topics that grow most.",
                "Bps",
                Query(
                    largest(
                        15, f"sum by (topic) (deriv(odradek_topic_stored_bytes{{{BROKER_TOPIC}}}[$history]))", "topic"
                    ),
                    "{{topic}}",
                ),
                low=None,
                link=TO_TOPIC,
            ),
        ),
        (
            12,
            time_series(
                "Written",
                "Bytes of records written, all topics: the growth without retention.",
                "Bps",
                Query(
                    f'sum(rate(kafka_server_brokertopicmetrics_bytesin_total{{{BROKER},topic=""}}[{RATE}]))', "written"
                ),
            ),
        ),
        (
            12,
            time_series(
                "Segments",
                "Segments of all logs.",
                "none",
                Query(f"sum by (instance) (kafka_log_log_numlogsegments{{{BROKER}}})", "{{instance}}"),
            ),
        ),
        (
            24,
            rows(
                "Topics",
                "The fifty largest topics, and their size in a week at the growth of the period chosen under Trend "
                "over.",
                "bytes",
                {"topic": "Topic"},
                Query(f"topk(50, sum by (topic) (odradek_topic_stored_bytes{{{BROKER_TOPIC}}}))", "Stored"),
                Query(
                    "topk(50, sum by (topic) "
                    f"(predict_linear(odradek_topic_stored_bytes{{{BROKER_TOPIC}}}[$history], {7 * DAY})))",
                    "In a week",
                ),
                Query(f"topk(50, max by (topic) (kafka_log_log_size{{{BROKER_TOPIC}}}))", "Largest partition"),
                links={"Topic": Link("Open the topic", "odradek-topics", {"topic": "Topic"})},
            ),
        ),
    ],
)

RECOVERY = Row(
    "Recovery and the spool of usage",
    8,
    [
        (
            6,
            bars(
                "Recovered bytes",
                "Bytes of logs that the last start has checked so far.",
                "percentunit",
                Query(
                    f"odradek_recovered_bytes{{{BROKER}}} / (odradek_recovery_bytes{{{BROKER}}} > 0) "
                    f"or odradek_recovery_bytes{{{BROKER}}} * 0 + 1",
                    DIRECTORY,
                ),
                high=1,
            ),
        ),
        (
            6,
            bars(
                "Opened logs",
                "Number of opened logs in each log directory.",
                "percentunit",
                Query(
                    f"odradek_recovered_logs{{{BROKER}}} / (odradek_recovery_logs{{{BROKER}}} > 0) "
                    f"or odradek_recovery_logs{{{BROKER}}} * 0 + 1",
                    DIRECTORY,
                ),
                high=1,
            ),
        ),
        (
            6,
            bars(
                "Cut off at the start",
                "Bytes removed from the ends of logs at a start because they were not a complete batch: "
                "unacknowledged data after a crash.",
                "bytes",
                Query(f"odradek_recovery_truncated_bytes{{{BROKER}}}", DIRECTORY),
                steps=[(1, ORANGE)],
            ),
        ),
        (
            6,
            number(
                "Spool",
                "Bytes of the usage spool; usage.spool.max.bytes limits it.",
                "bytes",
                Query(f"sum(odradek_spool_bytes{{{BROKER}}})", "spool"),
            ),
        ),
        (
            24,
            time_series(
                "Intervals of the spool",
                "Usage intervals written to the spool (one every usage.spool.interval.ms), and intervals that could "
                "not be written.",
                "cps",
                Query(
                    f"sum by (instance) (rate(odradek_spool_intervals_total{{{BROKER}}}[{RATE}]))",
                    "{{instance}} written",
                ),
                Query(
                    f"sum by (instance) (rate(odradek_spool_failures_total{{{BROKER}}}[{RATE}]))", "{{instance}} failed"
                ),
            ),
        ),
    ],
)

BOARD = Board(
    UID,
    "Odradek / Storage and capacity",
    "Free disk space, how fast it shrinks, when it will be used up, and which topics use it.",
    [STATE, CAPACITY, GROWTH, RECOVERY],
    variables=[TOPIC],
    history=True,
)
