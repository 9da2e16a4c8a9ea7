"""Metrics of the broker's processes, of their connections and event loops. Constants."""

from odradek.metrics.metric import COUNTER, GAUGE, HISTOGRAM, rows

LOOP_DELAYS_US = tuple(1 << power for power in range(6, 26, 2))
"""Upper bounds of the buckets of `odradek_worker_loop_delay_seconds`."""

PROCESSES = (
    *rows(
        COUNTER, "process ordinal", {"process_cpu_seconds_total": "User and system CPU time of a process, in seconds."}
    ),
    *rows(
        GAUGE,
        "process ordinal",
        {
            "process_resident_memory_bytes": "Resident memory of a process, in bytes, including pages that several "
            "processes share.",
            "process_virtual_memory_bytes": "Address space of a process, in bytes. Most of it is the sparse mapping of the "
            "shared memory.",
            "process_open_fds": "Number of open file descriptors of a process.",
            "process_max_fds": "Maximum number of open file descriptors of a process (the soft limit of RLIMIT_NOFILE).",
            "process_start_time_seconds": "Start time of a process, in seconds since 1970.",
            "odradek_process_up": "1 while a process of the broker is ready to do its work, 0 while it starts, stops or is "
            "dead.",
            "kafka_server_kafkaserver_linux_disk_read_bytes": "Bytes that a process caused to be read from storage devices "
            "since its start.",
            "kafka_server_kafkaserver_linux_disk_write_bytes": "Bytes that a process caused to be written to storage devices "
            "since its start.",
        },
    ),
    *rows(
        COUNTER,
        "process ordinal",
        {"odradek_process_restarts_total": "Number of times that the supervisor restarted a process."},
    ),
    *rows(GAUGE, "version", {"odradek_build_info": "Always 1; the label is the version of the broker."}),
    *rows(GAUGE, "id", {"odradek_broker_info": "Always 1; the label is the id of the broker that was scraped."}),
    *rows(
        GAUGE,
        "",
        {
            "odradek_boot_time_seconds": "Time at which the broker created its shared memory, in seconds since 1970. All "
            "counters of the broker began at 0 then.",
            "odradek_metrics_left_out_series": "Number of series that this scrape omits because metrics.max.bytes is "
            "exceeded. 0 if the scrape is complete.",
        },
    ),
    *rows(GAUGE, "worker", {"odradek_worker_connections": "Number of open client connections of a worker."}),
    *rows(
        COUNTER,
        "worker",
        {
            "odradek_worker_busy_seconds_total": "Time in which the event loop of a worker was busy, in seconds.",
            "odradek_sendfile_bytes_total": "Bytes that a worker sent with sendfile, from the page cache without a copy.",
            "odradek_socket_bytes_in_total": "Bytes that a worker read from client sockets.",
            "odradek_socket_bytes_out_total": "Bytes that a worker wrote to client sockets, including bytes sent with "
            "sendfile.",
            "odradek_unsent_bytes_total": "Bytes of responses that a worker did not send because the connection was closed.",
            "odradek_bad_frames_total": "Malformed frames that a worker received. The worker closes the connection after "
            "each of them.",
            "odradek_idle_connections_memory_dropped_bytes_total": "Bytes of memory of idle or slow connections that a worker "
            "freed because odradek.connections.kept.bytes was exceeded, by dropping fetch state or closing connections.",
        },
    ),
    *rows(
        GAUGE,
        "worker",
        {
            "odradek_idle_connections_memory_bytes": "Bytes of memory that a worker keeps for connections that have been "
            "idle or slow for at least a second: state of fetches without a session, incomplete requests, and responses "
            "that clients do not read.",
        },
    ),
    *rows(
        COUNTER,
        "process ordinal",
        {
            "odradek_late_requests_total": "Requests that a process did not execute, because their clients had closed the "
            "connection and the requests had waited for at least 1 s.",
        },
    ),
    *rows(
        COUNTER,
        "worker reason",
        {"odradek_connections_closed_total": "Client connections that were closed, by reason."},
    ),
    *rows(
        GAUGE,
        "",
        {"odradek_connections_limit": "Maximum number of open client connections of the broker (max.connections)."},
    ),
    *rows(
        COUNTER,
        "",
        {
            "odradek_connections_full_total": "Number of times that the open connections reached max.connections. New "
            "connections then wait in the listen backlog until others close.",
            "odradek_connections_refused_total": "Connections that the broker closed immediately, because their address "
            "already had max.connections.per.ip connections.",
        },
    ),
    *rows(
        HISTOGRAM,
        "worker le",
        {
            "odradek_worker_loop_delay_seconds": "Delay of the event loop of a worker, in seconds: how late a timer that is "
            "due every 0.5 s ran. All connections of the worker wait that long."
        },
    ),
    *rows(
        GAUGE,
        "worker kind",
        {
            "odradek_purgatory_size": "Requests that wait in a worker, by kind: Fetch for records, Produce for "
            "acknowledgements, forward for the coordinator, other for something else."
        },
    ),
    *rows(
        GAUGE,
        "task",
        {
            "odradek_task_last_run_timestamp_seconds": "Unix time in seconds of the end of the last run of a background task, "
            "such as retention; before its first run, the time at which the broker started the task. Up to 10 s old.",
            "odradek_task_last_success_timestamp_seconds": "Unix time in seconds of the end of the last run of a background "
            "task that failed at nothing; before its first run, the time at which the broker started the task. Up to 10 s old.",
            "odradek_task_interval_seconds": "Time in seconds between two runs of a background task. 0: the task runs all the "
            "time, and has no last run until it fails.",
            "odradek_task_failed_runs": "Number of runs of a background task that have failed since its last success; 0 after "
            "a success. A run that fails at one partition has failed.",
            "odradek_task_failing_objects": "Number of partitions, files or log directories at which the last run of a "
            "background task failed; 1 if the whole run failed. odradek doctor names them, and so does the log.",
        },
    ),
    *rows(
        COUNTER,
        "",
        {
            "odradek_lock_busy_total": "Number of times that a process found the lock of a partition held by another "
            "process.",
            "odradek_lock_recoveries_total": "Number of partition locks that a process recovered after their holder died.",
        },
    ),
)
