"""Dashboard of storage: free space, growth, the time until disks are full, the largest topics, and recovery."""

from grafana.board import BROKER, RATE, TOPIC, Board, Row, largest, rate
from grafana.panels import GREEN, ORANGE, RED, YELLOW, Link, Query, bars, number, rows, states, time_series

UID = "odradek-storage"

DAY = 86_400
FAR = 3650 * DAY
"""Ten years in seconds: the value that means never."""
BROKER_TOPIC = f'{BROKER},topic=~"$topic"'
DIRECTORY = "{{instance}} {{log_dir}}"
FREE = f"odradek_log_dir_free_bytes{{{BROKER}}}"
TOTAL = f"odradek_log_dir_total_bytes{{{BROKER}}}"
UNTIL_FULL = f"clamp_max({FREE} / clamp_min(-deriv({FREE}[$history]), 1e-9), {FAR})"
"""Seconds; the slope is that of a line fitted to the samples of ``$history``."""
FULL_STEPS = [(0, RED), (2 * DAY, ORANGE), (7 * DAY, YELLOW), (30 * DAY, GREEN)]
TO_TOPIC = Link("Topic ${__field.labels.topic}", "odradek-topics", {"topic": "topic"})

# fmt: off
STATE = Row("State", 5, [
    number(6, "Until the disk is full", "s",
        "Time until the first log directory is full, at the growth of the period chosen under Trend over. 3650 days "
        "means never.",
        Query(f"min({UNTIL_FULL})", "until full"), steps=FULL_STEPS),
    number(6, "Least free", "percentunit",
        "The free fraction of the fullest file system.",
        Query(f"min({FREE} / {TOTAL})", "free"), steps=[(0, RED), (0.1, ORANGE), (0.2, YELLOW), (0.3, GREEN)]),
    number(4, "Stored", "bytes",
        "Bytes on disk of all logs.",
        Query(f"sum(odradek_topic_stored_bytes{{{BROKER}}})", "stored")),
    number(4, "Failed directories", "none",
        "Log directories that have failed. They stay offline until the broker restarts.",
        Query(f"count(odradek_log_dir_online{{{BROKER}}} == 0) or vector(0)", "offline"), steps=[(1, RED)]),
    number(4, "Times full", "none",
        "Number of times in the selected time range that a log directory became full, so that the broker refused "
        "producers.",
        Query(f"sum(increase(odradek_log_dir_full_total{{{BROKER}}}[$__range]))", "times"), steps=[(0.5, RED)],
        decimals=0),
])

CAPACITY = Row("Log directories", 9, [
    time_series(12, "Free space", "bytes",
        "Free bytes of the file system of each log directory, and the free bytes in a day and in a week at the growth "
        "of the period chosen under Trend over. Below zero means full.",
        Query(FREE, f"{DIRECTORY} free"),
        Query(f"predict_linear({FREE}[$history], {DAY})", f"{DIRECTORY} in a day"),
        Query(f"predict_linear({FREE}[$history], {7 * DAY})", f"{DIRECTORY} in a week"), low=None, steps=[(0, GREEN)]),
    time_series(12, "Until full", "s",
        "Time until each log directory is full, at the growth of the period chosen under Trend over. 3650 days means "
        "never.",
        Query(UNTIL_FULL, DIRECTORY)),
    bars(8, "Used", "percentunit",
        "Used fraction of the file system of each log directory, including files of other programs.",
        Query(f"1 - {FREE} / {TOTAL}", DIRECTORY), steps=[(0.7, YELLOW), (0.85, ORANGE), (0.95, RED)], high=1),
    states(8, "State of the disks",
        "State low: the broker deletes expired segments sooner. State full: it refuses producers until there is free "
        "space again.",
        Query(f"odradek_log_dir_full_state{{{BROKER}}}", DIRECTORY),
        {0: ("roomy", GREEN), 1: ("low", ORANGE), 2: ("full", RED)}),
    states(8, "Online",
        "A log directory goes offline after a device error and stays offline until the broker restarts.",
        Query(f"odradek_log_dir_online{{{BROKER}}}", DIRECTORY),
        {1: ("online", GREEN), 0: ("offline", RED)}),
])

GROWTH = Row("Usage and growth by topic", 9, [
    time_series(12, "Stored by topic", "bytes",
        "Bytes on disk of the logs of the fifteen largest topics.",
        Query(largest(15, f"sum by (topic) (odradek_topic_stored_bytes{{{BROKER_TOPIC}}})", "topic"), "{{topic}}"),
        stacked=True, link=TO_TOPIC),
    time_series(12, "Growth by topic", "Bps",
        "Net growth of the logs (written minus deleted bytes) per second, over the period chosen under Trend over. "
        "The fifteen topics with the highest growth.",
        Query(
            largest(
                15, f"sum by (topic) (deriv(odradek_topic_stored_bytes{{{BROKER_TOPIC}}}[$history]))", "topic"
            ),
            "{{topic}}",
        ), low=None, link=TO_TOPIC),
    time_series(12, "Written", "Bps",
        "Bytes of records written per second, all topics: the growth that there would be without retention.",
        Query(f'sum(rate(kafka_server_brokertopicmetrics_bytesin_total{{{BROKER},topic=""}}[{RATE}]))', "written")),
    time_series(12, "Segments", "none",
        "Number of segments of all logs.",
        Query(f"sum by (instance) (kafka_log_log_numlogsegments{{{BROKER}}})", "{{instance}}")),
    rows(24, "Topics", "bytes",
        "The fifty largest topics, and their size in a week at the growth of the period chosen under Trend over.",
        {"topic": "Topic"},
        Query(f"topk(50, sum by (topic) (odradek_topic_stored_bytes{{{BROKER_TOPIC}}}))", "Stored"),
        Query(
            "topk(50, sum by (topic) "
            f"(predict_linear(odradek_topic_stored_bytes{{{BROKER_TOPIC}}}[$history], {7 * DAY})))",
            "In a week",
        ),
        Query(f"topk(50, max by (topic) (kafka_log_log_size{{{BROKER_TOPIC}}}))", "Largest partition"),
        links={"Topic": Link("Open the topic", "odradek-topics", {"topic": "Topic"})}),
])

RECOVERY = Row("Recovery and the usage spool", 8, [
    bars(6, "Recovered bytes", "percentunit",
        "Fraction of the bytes to recover that the last start of the broker has checked so far.",
        Query(
            f"odradek_recovered_bytes{{{BROKER}}} / (odradek_recovery_bytes{{{BROKER}}} > 0) "
            f"or odradek_recovery_bytes{{{BROKER}}} * 0 + 1",
            DIRECTORY,
        ), high=1),
    bars(6, "Opened logs", "percentunit",
        "Fraction of the logs in each log directory that the last start of the broker has opened so far.",
        Query(
            f"odradek_recovered_logs{{{BROKER}}} / (odradek_recovery_logs{{{BROKER}}} > 0) "
            f"or odradek_recovery_logs{{{BROKER}}} * 0 + 1",
            DIRECTORY,
        ), high=1),
    bars(6, "Truncated at the start", "bytes",
        "Bytes that the last start of the broker truncated from the ends of logs, because they were not a complete "
        "record batch: unacknowledged data after a crash of the broker.",
        Query(f"odradek_recovery_truncated_bytes{{{BROKER}}}", DIRECTORY), steps=[(1, ORANGE)]),
    number(6, "Spool", "bytes",
        "Bytes of the files of the usage spool; usage.spool.max.bytes limits them.",
        Query(f"sum(odradek_spool_bytes{{{BROKER}}})", "spool")),
    time_series(24, "Intervals of the spool", "cps",
        "Intervals written to the usage spool per second (one every usage.spool.interval.ms), and failed attempts to "
        "write.",
        Query(rate("odradek_spool_intervals_total", "instance"), "{{instance}} written"),
        Query(rate("odradek_spool_failures_total", "instance"), "{{instance}} failed")),
])

BOARD = Board(
    UID,
    "Odradek / Storage and capacity",
    "Free disk space, its trend, the time until disks are full, and which topics use the space.",
    [STATE, CAPACITY, GROWTH, RECOVERY],
    variables=[TOPIC],
    history=True,
)
