"""Dashboard of the broker's processes: load, delays, waiting requests, memory, restarts."""

from grafana.board import BROKER, RATE, Board, Row
from grafana.panels import GREEN, ORANGE, RED, YELLOW, Query, bars, histogram, number, rows, states, time_series
from grafana.tasks import TASKS_ROW

UID = "odradek-workers"

WORKER = "{{instance}} worker {{worker}}"
PROCESS = "{{instance}} {{process}} {{ordinal}}"
PROCESSES = f'{BROKER},process!=""'


def _by_worker(name: str) -> str:
    return f"sum by (instance, worker) (rate({name}{{{BROKER}}}[{RATE}]))"


STATE = Row(
    "State",
    5,
    [
        (
            4,
            number(
                "Workers",
                "Number of worker processes (num.network.threads).",
                "none",
                Query(f"count(odradek_worker_connections{{{BROKER}}})", "workers"),
            ),
        ),
        (
            4,
            number(
                "Connections",
                "Number of open connections of all workers.",
                "none",
                Query(f"sum(odradek_worker_connections{{{BROKER}}})", "connections"),
            ),
        ),
        (
            4,
            number(
                "Idle",
                "Fraction of the last minute in which the workers were idle.",
                "percentunit",
                Query(f"avg(kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent{{{BROKER}}})", "idle"),
                steps=[(0, RED), (0.1, YELLOW), (0.3, GREEN)],
            ),
        ),
        (
            4,
            number(
                "Memory",
                "Resident memory of all processes together. Shared memory is counted in each of them.",
                "bytes",
                Query(f"sum(process_resident_memory_bytes{{{PROCESSES}}})", "memory"),
            ),
        ),
        (
            8,
            states(
                "Processes",
                "Whether each process of the broker is up.",
                Query(f"odradek_process_up{{{BROKER}}}", PROCESS),
                {1: ("up", GREEN), 0: ("down", RED)},
            ),
        ),
    ],
)

LOAD = Row(
    "Workers",
    9,
    [
        (
            8,
            time_series(
                "Busy",
                "Fraction of the time in which the event loop of each worker is busy. Near 100% its clients wait.",
                "percentunit",
                Query(_by_worker("odradek_worker_busy_seconds_total"), WORKER),
                high=1,
                steps=[(0.7, YELLOW), (0.9, RED)],
            ),
        ),
        (
            8,
            time_series(
                "Event loop delay",
                "How late the event loop of each worker runs a timer, which is how long its clients wait for the loop: 99th "
                "percentile and median.",
                "s",
                Query(
                    "histogram_quantile(0.99, sum by (instance, worker, le) "
                    f"(rate(odradek_worker_loop_delay_seconds_bucket{{{BROKER}}}[{RATE}])))",
                    f"{WORKER} p99",
                ),
                Query(
                    "histogram_quantile(0.5, sum by (instance, worker, le) "
                    f"(rate(odradek_worker_loop_delay_seconds_bucket{{{BROKER}}}[{RATE}])))",
                    f"{WORKER} p50",
                ),
                steps=[(0.1, ORANGE)],
            ),
        ),
        (
            8,
            histogram(
                "Distribution of event loop delays",
                "Number of measurements of the event loop delay by duration, all workers together.",
                "s",
                Query(
                    f"sum by (le) (increase(odradek_worker_loop_delay_seconds_bucket{{{BROKER}}}[{RATE}]))", "{{le}}"
                ),
            ),
        ),
        (
            8,
            time_series(
                "Connections",
                "Open connections of each worker. The acceptor hands a new connection to the worker with the fewest.",
                "none",
                Query(f"odradek_worker_connections{{{BROKER}}}", WORKER),
                stacked=True,
            ),
        ),
        (
            8,
            time_series(
                "Bytes in",
                "Bytes per second that each worker reads from client sockets.",
                "Bps",
                Query(_by_worker("odradek_socket_bytes_in_total"), WORKER),
                stacked=True,
            ),
        ),
        (
            8,
            time_series(
                "Bytes out",
                "Bytes per second that each worker writes to client sockets, including bytes sent with sendfile.",
                "Bps",
                Query(_by_worker("odradek_socket_bytes_out_total"), WORKER),
                stacked=True,
            ),
        ),
        (
            8,
            time_series(
                "By sendfile",
                "Bytes per second that each worker sends with sendfile, from the page cache without a copy.",
                "Bps",
                Query(_by_worker("odradek_sendfile_bytes_total"), WORKER),
                stacked=True,
            ),
        ),
        (
            8,
            time_series(
                "Never sent",
                "Bytes of responses per second that each worker did not send because the connection was closed.",
                "Bps",
                Query(_by_worker("odradek_unsent_bytes_total"), WORKER),
            ),
        ),
        (
            8,
            time_series(
                "Idle, by Kafka's metrics",
                "Kafka's metrics for the fraction of the last minute in which network threads and request handlers were "
                "idle. A worker is both, so the two are equal.",
                "percentunit",
                Query(
                    f"kafka_network_socketserver_networkprocessoravgidle_percent{{{BROKER}}}", "{{instance}} network"
                ),
                Query(
                    f"kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent{{{BROKER}}}",
                    "{{instance}} handlers",
                ),
                high=1,
            ),
        ),
    ],
)

WAITING = Row(
    "Waiting requests and locks",
    8,
    [
        (
            8,
            time_series(
                "Purgatory",
                "Delayed requests, by kind: fetches wait for data, produce requests for replicas or a flush.",
                "none",
                Query(f"sum by (kind) (odradek_purgatory_size{{{BROKER}}})", "{{kind}}"),
                stacked=True,
            ),
        ),
        (
            8,
            time_series(
                "Purgatory, by Kafka's metrics",
                "Delayed requests under Kafka's names of delayed operations.",
                "none",
                Query(
                    f"sum by (delayedoperation) (kafka_server_delayedoperationpurgatory_purgatorysize{{{BROKER}}})",
                    "{{delayedoperation}}",
                ),
                stacked=True,
            ),
        ),
        (
            8,
            time_series(
                "Locks of partitions",
                "How often per second a process found the lock of a partition held by another process, and how often it "
                "recovered the lock of a dead process.",
                "cps",
                Query(f"sum(rate(odradek_lock_busy_total{{{BROKER}}}[{RATE}]))", "busy"),
                Query(f"sum(rate(odradek_lock_recoveries_total{{{BROKER}}}[{RATE}]))", "recovered"),
            ),
        ),
    ],
)

PROCESS_ROW = Row(
    "Processes",
    9,
    [
        (
            8,
            time_series(
                "CPU",
                "Number of CPU cores that each process uses.",
                "none",
                Query(
                    f"sum by (instance, process, ordinal) (rate(process_cpu_seconds_total{{{PROCESSES}}}[{RATE}]))",
                    PROCESS,
                ),
                stacked=True,
            ),
        ),
        (
            8,
            time_series(
                "Resident memory",
                "Resident memory of each process, including shared pages.",
                "bytes",
                Query(f"process_resident_memory_bytes{{{PROCESSES}}}", PROCESS),
            ),
        ),
        (
            8,
            time_series(
                "Virtual memory",
                "Address space of each process. Most of it is the sparse mapping of the shared memory.",
                "bytes",
                Query(f"process_virtual_memory_bytes{{{PROCESSES}}}", PROCESS),
            ),
        ),
        (
            8,
            bars(
                "Open file descriptors",
                "Open file descriptors of each process as a fraction of its limit. At 100% it cannot accept connections or "
                "open segments.",
                "percentunit",
                Query(f"process_open_fds{{{PROCESSES}}} / process_max_fds{{{PROCESSES}}}", PROCESS),
                steps=[(0.7, YELLOW), (0.9, RED)],
                high=1,
            ),
        ),
        (
            16,
            rows(
                "Processes",
                "Restarts, start time, open file descriptors and resident memory of each process.",
                "none",
                {"instance": "Broker", "process": "Process", "ordinal": "Number"},
                Query(
                    f"sum by (instance, process, ordinal) (odradek_process_restarts_total{{{PROCESSES}}})", "Restarts"
                ),
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
                ),
                steps={"Restarts": [(1, ORANGE), (3, RED)]},
            ),
        ),
    ],
)

BOARD = Board(
    UID,
    "Odradek / Workers and processes",
    "Load of the broker's processes, delays of their event loops, waiting requests, memory and other resources, "
    "restarts, and background tasks.",
    [STATE, LOAD, WAITING, PROCESS_ROW, TASKS_ROW],
)
