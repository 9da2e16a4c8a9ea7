"""Dashboard of the broker's processes: load, delays, waiting requests, memory, restarts."""

from grafana.board import BROKER, RATE, Board, Row, rate
from grafana.panels import GREEN, ORANGE, RED, YELLOW, Query, bars, histogram, number, rows, states, time_series
from grafana.tasks import TASKS_ROW

UID = "odradek-workers"

WORKER = "{{instance}} worker {{worker}}"
PROCESS = "{{instance}} {{process}} {{ordinal}}"
PROCESSES = f'{BROKER},process!=""'


def _by_worker(name: str) -> str:
    return f"sum by (instance, worker) (rate({name}{{{BROKER}}}[{RATE}]))"


# fmt: off
STATE = Row("State", 5, [
    number(4, "Workers", "none",
        "Number of worker processes (num.network.threads).",
        Query(f"count(odradek_worker_connections{{{BROKER}}})", "workers")),
    number(4, "Connections", "none",
        "Number of open connections of all workers.",
        Query(f"sum(odradek_worker_connections{{{BROKER}}})", "connections")),
    number(4, "Idle", "percentunit",
        "Fraction of the last minute in which the workers were idle.",
        Query(f"avg(kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent{{{BROKER}}})", "idle"),
        steps=[(0, RED), (0.1, YELLOW), (0.3, GREEN)]),
    number(4, "Memory", "bytes",
        "Resident memory of all processes together. Shared memory is counted in each of them.",
        Query(f"sum(process_resident_memory_bytes{{{PROCESSES}}})", "memory")),
    states(8, "Processes",
        "Whether each process of the broker is up.",
        Query(f"odradek_process_up{{{BROKER}}}", PROCESS),
        {1: ("up", GREEN), 0: ("down", RED)}),
])

LOAD = Row("Workers", 9, [
    time_series(8, "Busy", "percentunit",
        "Fraction of the time in which the event loop of each worker is busy. Near 100% its clients wait.",
        Query(_by_worker("odradek_worker_busy_seconds_total"), WORKER), high=1, steps=[(0.7, YELLOW), (0.9, RED)]),
    time_series(8, "Event loop delay", "s",
        "How late the event loop of each worker runs a timer, which is how long its clients wait for the loop: 99th "
        "percentile and median.",
        Query(
            "histogram_quantile(0.99, sum by (instance, worker, le) "
            f"(rate(odradek_worker_loop_delay_seconds_bucket{{{BROKER}}}[{RATE}])))",
            f"{WORKER} p99",
        ),
        Query(
            "histogram_quantile(0.5, sum by (instance, worker, le) "
            f"(rate(odradek_worker_loop_delay_seconds_bucket{{{BROKER}}}[{RATE}])))",
            f"{WORKER} p50",
        ), steps=[(0.1, ORANGE)]),
    histogram(8, "Distribution of event loop delays", "s",
        "Number of measurements of the event loop delay by duration, all workers together.",
        Query(f"sum by (le) (increase(odradek_worker_loop_delay_seconds_bucket{{{BROKER}}}[{RATE}]))", "{{le}}")),
    time_series(8, "Connections", "none",
        "Open connections of each worker. The acceptor hands a new connection to the worker with the fewest.",
        Query(f"odradek_worker_connections{{{BROKER}}}", WORKER), stacked=True),
    time_series(8, "Bytes in", "Bps",
        "Bytes per second that each worker reads from client sockets.",
        Query(_by_worker("odradek_socket_bytes_in_total"), WORKER), stacked=True),
    time_series(8, "Bytes out", "Bps",
        "Bytes per second that each worker writes to client sockets, including bytes sent with sendfile.",
        Query(_by_worker("odradek_socket_bytes_out_total"), WORKER), stacked=True),
    time_series(8, "By sendfile", "Bps",
        "Bytes per second that each worker sends with sendfile, from the page cache without a copy.",
        Query(_by_worker("odradek_sendfile_bytes_total"), WORKER), stacked=True),
    time_series(8, "Never sent", "Bps",
        "Bytes of responses per second that each worker did not send because the connection was closed.",
        Query(_by_worker("odradek_unsent_bytes_total"), WORKER)),
    time_series(8, "Idle, by Kafka's metrics", "percentunit",
        "Kafka's metrics for the fraction of the last minute in which network threads and request handlers were idle. "
        "A worker is both, so the two are equal.",
        Query(f"kafka_network_socketserver_networkprocessoravgidle_percent{{{BROKER}}}", "{{instance}} network"),
        Query(
            f"kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent{{{BROKER}}}",
            "{{instance}} handlers",
        ), high=1),
])

WAITING = Row("Waiting requests and locks", 8, [
    time_series(8, "Purgatory", "none",
        "Delayed requests, by kind: fetches wait for data, produce requests for replicas or a flush.",
        Query(f"sum by (kind) (odradek_purgatory_size{{{BROKER}}})", "{{kind}}"), stacked=True),
    time_series(8, "Purgatory, by Kafka's metrics", "none",
        "Delayed requests under Kafka's names of delayed operations.",
        Query(
            f"sum by (delayedoperation) (kafka_server_delayedoperationpurgatory_purgatorysize{{{BROKER}}})",
            "{{delayedoperation}}",
        ), stacked=True),
    time_series(8, "Locks of partitions", "cps",
        "How often per second a process found the lock of a partition held by another process, and how often it "
        "recovered the lock of a dead process.",
        Query(rate("odradek_lock_busy_total"), "busy"),
        Query(rate("odradek_lock_recoveries_total"), "recovered")),
])

PROCESS_ROW = Row("Processes", 9, [
    time_series(8, "CPU", "none",
        "Number of CPU cores that each process uses.",
        Query(rate("process_cpu_seconds_total", "instance, process, ordinal", where=PROCESSES), PROCESS),
        stacked=True),
    time_series(8, "Resident memory", "bytes",
        "Resident memory of each process, including shared pages.",
        Query(f"process_resident_memory_bytes{{{PROCESSES}}}", PROCESS)),
    time_series(8, "Virtual memory", "bytes",
        "Address space of each process. Most of it is the sparse mapping of the shared memory.",
        Query(f"process_virtual_memory_bytes{{{PROCESSES}}}", PROCESS)),
    bars(8, "Open file descriptors", "percentunit",
        "Open file descriptors of each process as a fraction of its limit. At 100% it cannot accept connections or "
        "open segments.",
        Query(f"process_open_fds{{{PROCESSES}}} / process_max_fds{{{PROCESSES}}}", PROCESS),
        steps=[(0.7, YELLOW), (0.9, RED)], high=1),
    rows(16, "Processes", "none",
        "Restarts, start time, open file descriptors and resident memory of each process.",
        {"instance": "Broker", "process": "Process", "ordinal": "Number"},
        Query(f"sum by (instance, process, ordinal) (odradek_process_restarts_total{{{PROCESSES}}})", "Restarts"),
        Query(
            f"sum by (instance, process, ordinal) (process_start_time_seconds{{{PROCESSES}}}) * 1000",
            "Started",
            unit="dateTimeAsIso",
        ),
        Query(f"sum by (instance, process, ordinal) (process_open_fds{{{PROCESSES}}})", "Descriptors"),
        Query(
            f"sum by (instance, process, ordinal) (process_resident_memory_bytes{{{PROCESSES}}})",
            "Memory",
            unit="bytes",
        ), steps={"Restarts": [(1, ORANGE), (3, RED)]}),
])

BOARD = Board(
    UID,
    "Odradek / Workers and processes",
    "Load of the broker's processes, delays of their event loops, waiting requests, memory and other resources, "
    "restarts, and background tasks.",
    [STATE, LOAD, WAITING, PROCESS_ROW, TASKS_ROW],
)
