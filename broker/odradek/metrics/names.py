"""The one table of metrics: name, type, labels and meaning. `/metrics`, docs/metrics.md and their tests derive from it.

Constants, the same in every process. Names are kafka_exporter's, those of Kafka's own metrics as Strimzi's rules for the JMX
exporter spell them, the standard ones of a process, and our own under `odradek_`. Names whose ending means something else in
Prometheus (a gauge that ends in _count or _sum) have no type, so that checkers do not take them for parts of a summary.
"""

from typing import NamedTuple

COUNTER, GAUGE, SUMMARY, HISTOGRAM, UNTYPED = "counter", "gauge", "summary", "histogram", "untyped"


class Metric(NamedTuple):
    """:param name: as in the text format, a counter's with its `_total`.
    :param labels: those that samples may have; a sample of the whole broker leaves out what does not apply to it.
    """

    name: str
    type: str
    labels: tuple[str, ...]
    help: str


def _rows(type_: str, labels: str, rows: dict[str, str], prefix: str = "") -> tuple[Metric, ...]:
    return tuple(Metric(prefix + name, type_, tuple(labels.split()), text) for name, text in rows.items())


PLACE = "topic partition"
GROUP_PLACE = "consumergroup topic partition"
READER = "principal client_id topic partition"

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
BATCH_BYTES = tuple(1 << power for power in range(8, 28, 2))
"""Upper bounds of the buckets of `odradek_produced_batch_bytes`."""
LOOP_DELAYS_US = tuple(1 << power for power in range(6, 26, 2))
"""Upper bounds of the buckets of `odradek_worker_loop_delay_seconds`."""

CLUSTER = (
    *_rows(GAUGE, "", {"kafka_brokers": "Brokers in the cluster."}),
    *_rows(GAUGE, "id address", {"kafka_broker_info": "A broker and where it is reached; always 1."}),
    *_rows(GAUGE, "topic", {"kafka_topic_partitions": "Partitions of a topic."}),
    *_rows(
        GAUGE,
        PLACE,
        {
            "kafka_topic_partition_current_offset": "Where the next committed record of a partition will be.",
            "kafka_topic_partition_oldest_offset": "Where a partition's log begins.",
            "kafka_topic_partition_in_sync_replica": "In-sync replicas of a partition.",
            "kafka_topic_partition_leader": "Id of the broker that leads a partition.",
            "kafka_topic_partition_leader_is_preferred": "1 if the leader is the partition's first replica.",
            "kafka_topic_partition_replicas": "Replicas of a partition.",
            "kafka_topic_partition_under_replicated_partition": "1 if not all replicas of a partition are in sync.",
        },
    ),
    *_rows(
        GAUGE,
        PLACE,
        {
            "underminisr": "1 if fewer replicas of a partition are in sync than min.insync.replicas; of topics without a name "
            "how many partitions.",
            "atminisr": "Likewise: 1 if just as many are.",
        },
        "kafka_cluster_partition_",
    ),
)

GROUPS = (
    *_rows(
        GAUGE,
        GROUP_PLACE,
        {
            "current_offset": "The offset that a group has committed.",
            "lag": "Records that a group has not committed yet.",
        },
        "kafka_consumergroup_",
    ),
    *_rows(
        UNTYPED,
        "consumergroup topic",
        {
            "current_offset_sum": "Committed offsets of a group, summed over a topic's partitions.",
            "lag_sum": "Records that a group has not committed yet, over a topic's partitions.",
        },
        "kafka_consumergroup_",
    ),
    *_rows(GAUGE, "consumergroup", {"kafka_consumergroup_members": "Members of a group."}),
    *_rows(
        GAUGE,
        GROUP_PLACE,
        {
            "odradek_consumergroup_lag_seconds": "How long ago the log went past the offset that a group has committed; 0 "
            "without lag. At least that, if it was before the reporter began to look."
        },
    ),
    *_rows(
        GAUGE,
        "state",
        {"kafka_coordinator_group_groupmetadatamanager_numgroups": "Groups in each state."},
    ),
    *_rows(
        GAUGE,
        READER,
        {
            "position": "The offset after the last record that the broker sent to a client, or the offset from which "
            "the client has fetched since then. It does not depend on commits.",
            "lag": "Records between a reader's position and the end of the log.",
            "lag_seconds": "Seconds since the log end passed a reader's position; 0 without lag.",
        },
        "odradek_reader_",
    ),
)

TRAFFIC = (
    *_rows(
        COUNTER,
        "topic",
        {
            "bytesin_total": "Bytes of records received from producers; without a topic, of all.",
            "bytesout_total": "Bytes of records sent to consumers.",
            "messagesin_total": "Records appended.",
            "totalproducerequests_total": "Produce requests that named the topic.",
            "totalfetchrequests_total": "Fetch requests that named the topic.",
            "failedproducerequests_total": "Produce requests that named the topic and failed with an error.",
            "failedfetchrequests_total": "Fetch requests that named the topic and failed with an error.",
            "bytesrejected_total": "Bytes of records that the broker refused for any reason.",
        },
        "kafka_server_brokertopicmetrics_",
    ),
    *_rows(
        HISTOGRAM,
        "le",
        {
            "odradek_produced_batch_bytes": "Sizes in bytes of the record batches that producers sent, as sent "
            "(compressed or not), including refused batches. A message set of an old client counts as one batch."
        },
    ),
    *_rows(
        GAUGE,
        "topic",
        {
            "odradek_topic_largest_batch_bytes": "Size in bytes, as stored, of the largest record batch that "
            "producers appended to a topic. The value is reset when no client has used the topic for "
            "metrics.usage.idle.ms."
        },
    ),
    *_rows(
        COUNTER,
        "request version",
        {"kafka_network_requestmetrics_requests_total": "Requests answered, by API and version."},
    ),
    *_rows(
        COUNTER,
        "request error",
        {
            "kafka_network_requestmetrics_errors_total": "Error codes in answers, by API: one for each partition, topic, "
            "group or resource that has one."
        },
    ),
    *_rows(
        SUMMARY,
        "request quantile",
        {
            "requestqueuetimems": "Milliseconds from a request's arrival to its execution; the "
            "quantiles are those of the last five minutes.",
            "localtimems": "Milliseconds of execution in the process that has the connection.",
            "remotetimems": "Milliseconds of waiting for others: data, flush, or the coordinator.",
            "responsesendtimems": "Milliseconds from the answer's making to its last byte's sending.",
            "totaltimems": "Milliseconds from a request's arrival to its answer's last byte.",
        },
        "kafka_network_requestmetrics_",
    ),
    *_rows(
        GAUGE,
        "",
        {
            "kafka_network_socketserver_networkprocessoravgidle_percent": "Share of the last minute in which workers had "
            "nothing to do, 0 to 1.",
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": "The same: workers execute requests.",
        },
    ),
    *_rows(
        UNTYPED,
        "listener networkprocessor",
        {"kafka_server_socket_server_metrics_connection_count": "Open connections by listener and worker."},
    ),
    *_rows(
        GAUGE,
        "clientsoftwarename clientsoftwareversion listener networkprocessor",
        {
            "kafka_server_socket_server_metrics_connections": "Open connections by client software, listener and "
            "worker; unknown: of clients that did not say; other: of more kinds than a worker has room for (256)."
        },
    ),
    *_rows(
        GAUGE,
        "delayedoperation",
        {"kafka_server_delayedoperationpurgatory_purgatorysize": "Requests that wait, by kind."},
    ),
    *_rows(
        GAUGE,
        "",
        {
            "numincrementalfetchsessions": "Incremental fetch sessions that the broker keeps.",
            "numincrementalfetchpartitionscached": "Partitions in all incremental fetch sessions together.",
        },
        "kafka_server_fetchsessioncache_",
    ),
    *_rows(
        COUNTER,
        "",
        {
            "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total": "Incremental fetch sessions that "
            "the broker evicted to make room for others."
        },
    ),
)

BROKER = (
    *_rows(
        GAUGE,
        "",
        {
            "kafka_server_replicamanager_leadercount": "Partitions that this broker leads.",
            "kafka_server_replicamanager_partitioncount": "Partitions on this broker.",
            "kafka_server_replicamanager_underreplicatedpartitions": "Led partitions with replicas not in sync.",
            "kafka_server_replicamanager_underminisrpartitioncount": "Led partitions below min.insync.replicas.",
            "kafka_server_replicamanager_atminisrpartitioncount": "Led partitions at min.insync.replicas.",
            "kafka_server_replicamanager_offlinereplicacount": "Partitions whose log or log directory has failed.",
            "kafka_controller_kafkacontroller_activecontrollercount": "1 if this broker is the controller.",
            "kafka_controller_kafkacontroller_offlinepartitionscount": "Partitions without a leader that serves.",
            "kafka_controller_kafkacontroller_globaltopiccount": "Topics in the cluster.",
            "kafka_controller_kafkacontroller_globalpartitioncount": "Partitions in the cluster.",
            "kafka_log_logmanager_offlinelogdirectorycount": "Log directories that have failed.",
            "kafka_server_kafkaserver_brokerstate": "3 running, 7 shutting down, as in Kafka.",
        },
    ),
    *_rows(
        GAUGE,
        PLACE,
        {
            "size": "Bytes of a partition's log.",
            "logstartoffset": "Where a partition's log begins.",
            "logendoffset": "Where a partition's log ends.",
            "numlogsegments": "Segments of a partition's log.",
        },
        "kafka_log_log_",
    ),
)

PROCESSES = (
    *_rows(COUNTER, "process ordinal", {"process_cpu_seconds_total": "User and system time of a process."}),
    *_rows(
        GAUGE,
        "process ordinal",
        {
            "process_resident_memory_bytes": "Resident memory of a process, pages that it shares with others included.",
            "process_virtual_memory_bytes": "Virtual memory of a process; most of it is the sparse shared mapping.",
            "process_open_fds": "Open descriptors of a process.",
            "process_max_fds": "Most descriptors that a process may open.",
            "process_start_time_seconds": "When a process was started, in seconds since 1970.",
            "odradek_process_up": "1 while a process serves.",
            "kafka_server_kafkaserver_linux_disk_read_bytes": "Bytes that a process had read from devices.",
            "kafka_server_kafkaserver_linux_disk_write_bytes": "Bytes that a process had written to devices.",
        },
    ),
    *_rows(
        COUNTER, "process ordinal", {"odradek_process_restarts_total": "How often the supervisor restarted a process."}
    ),
    *_rows(GAUGE, "version", {"odradek_build_info": "The broker's version; always 1."}),
    *_rows(
        GAUGE,
        "",
        {"odradek_boot_time_seconds": "When the shared memory was made, since 1970: all counters began at 0 then."},
    ),
    *_rows(GAUGE, "worker", {"odradek_worker_connections": "Open connections of a worker."}),
    *_rows(
        COUNTER,
        "worker",
        {
            "odradek_worker_busy_seconds_total": "Seconds in which a worker's event loop was not idle.",
            "odradek_sendfile_bytes_total": "Bytes sent from the page cache by sendfile.",
            "odradek_socket_bytes_in_total": "Bytes read from clients' sockets.",
            "odradek_socket_bytes_out_total": "Bytes written to clients' sockets, those by sendfile included.",
            "odradek_unsent_bytes_total": "Bytes of responses that were not sent because the connection was closed.",
            "odradek_bad_frames_total": "Malformed frames, after each of which the broker closed the connection.",
            "odradek_idle_connections_memory_dropped_bytes_total": "Bytes of memory kept for idle connections that a "
            "worker freed because odradek.connections.kept.bytes was exceeded, by dropping fetch state or "
            "closing connections.",
        },
    ),
    *_rows(
        GAUGE,
        "worker",
        {
            "odradek_idle_connections_memory_bytes": "Bytes of memory that a worker keeps for connections that were "
            "idle for at least a second: state of fetches without a session, incomplete requests, and responses "
            "that clients do not read.",
        },
    ),
    *_rows(
        COUNTER,
        "process ordinal",
        {
            "odradek_late_requests_total": "Requests that were not executed because they had waited for 1 s or longer "
            "when their clients closed the connection.",
        },
    ),
    *_rows(COUNTER, "worker reason", {"odradek_connections_closed_total": "Connections closed, by reason."}),
    *_rows(GAUGE, "", {"odradek_connections_limit": "Connections that may be open at once: max.connections."}),
    *_rows(
        COUNTER,
        "",
        {
            "odradek_connections_full_total": "How often the open connections reached max.connections. New "
            "connections then wait until others close.",
            "odradek_connections_refused_total": "Connections closed at once because their address already has "
            "max.connections.per.ip connections.",
        },
    ),
    *_rows(
        HISTOGRAM,
        "worker le",
        {"odradek_worker_loop_delay_seconds": "How long a turn of a worker's loop kept others waiting."},
    ),
    *_rows(GAUGE, "worker kind", {"odradek_purgatory_size": "Requests that wait in a worker, by kind."}),
    *_rows(
        COUNTER,
        "",
        {
            "odradek_lock_busy_total": "How often a process found a partition's lock held by another.",
            "odradek_lock_recoveries_total": "Partition locks taken over from a process that died while holding them.",
        },
    ),
)

STORAGE = (
    *_rows(
        GAUGE,
        "log_dir",
        {
            "odradek_recovery_bytes": "Bytes behind the recovery points that the last start found.",
            "odradek_recovered_bytes": "Bytes behind the recovery points that the last start has read or cut off so "
            "far.",
            "odradek_recovery_logs": "Logs that the last start has to open.",
            "odradek_recovered_logs": "Logs that the last start has opened so far.",
            "odradek_recovery_truncated_bytes": "Bytes that the last start cut off, because they were no whole batch.",
            "odradek_log_dir_online": "1 while a log directory is in use, 0 once it has failed.",
            "odradek_log_dir_full_state": "0 roomy, 1 low, 2 full: producers are refused.",
            "odradek_log_dir_free_bytes": "Free bytes of the file system below a log directory.",
            "odradek_log_dir_total_bytes": "All bytes of the file system below a log directory.",
        },
    ),
    *_rows(COUNTER, "log_dir", {"odradek_log_dir_full_total": "How often a log directory became full."}),
    *_rows(GAUGE, "topic", {"odradek_topic_stored_bytes": "Bytes of the logs of a topic's partitions."}),
)

PRODUCERS = (
    *_rows(
        GAUGE,
        "",
        {
            "odradek_producer_state_bytes": "Bytes of shared memory that hold the state of idempotent producers.",
            "odradek_producer_state_max_bytes": "The most bytes that the state of idempotent producers may take "
            "(odradek.producer.state.max.bytes).",
            "odradek_producer_state_producers": "Idempotent producers that the partitions of this broker remember; a producer "
            "counts once in each partition that it writes to.",
        },
    ),
    *_rows(
        COUNTER,
        "reason",
        {
            "odradek_producers_evicted_total": "Idempotent producers that a partition forgot before "
            "producer.id.expiration.ms, by reason. client: evicted for a new producer of the same client, which "
            "is at its limit; silent: evicted for a new producer after 15 minutes without a write, because the "
            "partition or the memory is full; early: expired early because the memory is nearly full; start: "
            "dropped at a start that restored more producers than fit.",
            "odradek_producer_batches_refused_total": "Record batches of new idempotent producers that were refused "
            "with NOT_ENOUGH_REPLICAS, by the limit that was reached. client: "
            "odradek.producer.state.client.max.percent; partition: "
            "odradek.producer.state.partition.max.producers; memory: odradek.producer.state.max.bytes.",
        },
    ),
)

USAGE = (
    *_rows(
        COUNTER,
        "principal client_id topic api",
        {
            "odradek_usage_bytes_in_total": "Bytes received: with a topic those of records, without one all others.",
            "odradek_usage_bytes_out_total": "Bytes sent: with a topic those of records, without one all others.",
            "odradek_usage_records_in_total": "Records appended.",
            "odradek_usage_records_out_total": "Records sent to consumers. If a size limit cuts a response, its first "
            "batch is counted at once, and the other batches when the consumer fetches the records after them.",
            "odradek_usage_requests_total": "Requests: without a topic all, with one those that named it.",
            "odradek_usage_errors_total": "Of these requests, those with an error.",
            "odradek_usage_throttle_seconds_total": "Seconds of throttle time in responses to clients.",
        },
    ),
    *_rows(
        COUNTER,
        "principal client_id",
        {"odradek_usage_connection_seconds_total": "Time for which connections were open."},
    ),
)

SPOOL = (
    *_rows(COUNTER, "", {"odradek_spool_intervals_total": "Intervals written to the spool since the reporter began."}),
    *_rows(GAUGE, "", {"odradek_spool_bytes": "Bytes of the spool's files."}),
    *_rows(COUNTER, "", {"odradek_spool_failures_total": "Intervals that could not be written at first."}),
)

SECTIONS = (
    ("The cluster, by the names of kafka_exporter", CLUSTER),
    ("Groups and readers", GROUPS),
    ("Traffic and requests", TRAFFIC),
    ("The broker", BROKER),
    ("Processes", PROCESSES),
    ("Storage", STORAGE),
    ("The state of idempotent producers", PRODUCERS),
    ("Usage", USAGE),
    ("The spool of usage", SPOOL),
)

METRICS = {metric.name: metric for _, section in SECTIONS for metric in section}
