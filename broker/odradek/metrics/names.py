"""The table of all metrics: name, type, labels and HELP text. `/metrics`, docs/metrics.md and their tests derive from it.

Constants, imported by any process. The names come from kafka_exporter, from Strimzi's JMX exporter rules for Kafka's own
metrics, from Prometheus' standard process metrics, and from Odradek (`odradek_`). Gauges whose names end in _count or _sum
have the type untyped, because checkers take names with these endings for parts of a summary.

A HELP text is read alone, for example in Grafana's metric browser: it names what is measured and its unit.
"""

from odradek.metrics.metric import COUNTER, GAUGE, HISTOGRAM, SUMMARY, UNTYPED, rows

PLACE = "topic partition"
GROUP_PLACE = "consumergroup topic partition"
READER = "principal client_id topic partition"

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
BATCH_BYTES = tuple(1 << power for power in range(8, 28, 2))
"""Upper bounds of the buckets of `odradek_produced_batch_bytes`."""
LOOP_DELAYS_US = tuple(1 << power for power in range(6, 26, 2))
"""Upper bounds of the buckets of `odradek_worker_loop_delay_seconds`."""

CLUSTER = (
    *rows(GAUGE, "", {"kafka_brokers": "Number of brokers in the cluster."}),
    *rows(
        GAUGE,
        "id address",
        {
            "kafka_broker_info": "Always 1; the labels are the id of a broker and the address at which clients connect to it."
        },
    ),
    *rows(GAUGE, "topic", {"kafka_topic_partitions": "Number of partitions of a topic."}),
    *rows(
        GAUGE,
        PLACE,
        {
            "kafka_topic_partition_current_offset": "High watermark of a partition: the offset after its last committed "
            "record.",
            "kafka_topic_partition_oldest_offset": "Log start offset of a partition.",
            "kafka_topic_partition_in_sync_replica": "Number of in-sync replicas of a partition.",
            "kafka_topic_partition_leader": "Id of the broker that leads a partition.",
            "kafka_topic_partition_leader_is_preferred": "1 if the leader of a partition is its preferred (first) "
            "replica, else 0.",
            "kafka_topic_partition_replicas": "Number of replicas of a partition.",
            "kafka_topic_partition_under_replicated_partition": "1 if a partition has fewer in-sync replicas than "
            "replicas, else 0.",
        },
    ),
    *rows(
        GAUGE,
        PLACE,
        {
            "underminisr": "1 if a partition led by this broker has fewer in-sync replicas than min.insync.replicas, else 0. "
            'With topic="other": the number of such partitions in all topics without series.',
            "atminisr": "1 if a partition led by this broker has exactly min.insync.replicas in-sync replicas, else 0. "
            'With topic="other": the number of such partitions in all topics without series.',
        },
        "kafka_cluster_partition_",
    ),
)

GROUPS = (
    *rows(
        GAUGE,
        GROUP_PLACE,
        {
            "current_offset": "Committed offset of a consumer group in a partition.",
            "lag": "Consumer lag in records: the high watermark of a partition minus the committed offset of a group.",
        },
        "kafka_consumergroup_",
    ),
    *rows(
        UNTYPED,
        "consumergroup topic",
        {
            "current_offset_sum": "Sum of a consumer group's committed offsets over the partitions of a topic.",
            "lag_sum": "Consumer lag of a group in a topic, in records: the sum over the topic's partitions whose log is on "
            "this broker. In a cluster partitions may be missing: odradek_consumergroup_unknown_lag_partitions counts them.",
        },
        "kafka_consumergroup_",
    ),
    *rows(
        GAUGE,
        "consumergroup topic",
        {
            "odradek_consumergroup_unknown_lag_partitions": "Number of partitions of a topic in which a group has a committed "
            "offset, and whose lag the group's coordinator does not know, because another broker of the cluster has their log. "
            "Their lag is the highest kafka_topic_partition_current_offset of all brokers minus "
            "kafka_consumergroup_current_offset.",
        },
    ),
    *rows(GAUGE, "consumergroup", {"kafka_consumergroup_members": "Number of members of a consumer group."}),
    *rows(
        GAUGE,
        GROUP_PLACE,
        {
            "odradek_consumergroup_lag_seconds": "Consumer lag in seconds: the time since the high watermark of a partition "
            "passed the committed offset of a group; 0 without lag. A lower bound if the high watermark passed the "
            "offset before the reporter process started."
        },
    ),
    *rows(
        GAUGE,
        "state",
        {"kafka_coordinator_group_groupmetadatamanager_numgroups": "Number of groups in a state."},
    ),
    *rows(
        GAUGE,
        READER,
        {
            "position": "Position of a reader in a partition: the offset after the last record that the broker sent to the "
            "client, or the offset from which the client has fetched since then. It does not depend on commits.",
            "lag": "Lag of a reader in a partition, in records: the high watermark minus the reader's position.",
            "lag_seconds": "Lag of a reader in a partition, in seconds: the time since the high watermark passed the "
            "reader's position; 0 without lag. A lower bound if that was before the reporter process started.",
        },
        "odradek_reader_",
    ),
)

TRAFFIC = (
    *rows(
        COUNTER,
        "topic",
        {
            "bytesin_total": "Bytes of record batches received from producers, of a topic; without the label topic, of the "
            "whole broker.",
            "bytesout_total": "Bytes of record batches sent to consumers, of a topic; without the label topic, of the whole "
            "broker.",
            "messagesin_total": "Records appended to the partitions of a topic; without the label topic, of the whole broker.",
            "totalproducerequests_total": "Produce requests that contained a topic; without the label topic, the sum over "
            "all topics.",
            "totalfetchrequests_total": "Fetch requests of clients that contained a topic, without those of followers; without "
            "the label topic, the sum over all topics.",
            "failedproducerequests_total": "Partitions of a topic that Produce requests returned with an error; without the "
            "label topic, of all topics.",
            "failedfetchrequests_total": "Partitions of a topic that Fetch requests returned with an error; without the "
            "label topic, of all topics.",
            "bytesrejected_total": "Bytes of record batches that the broker refused, for any reason.",
            "replicationbytesin_total": "Bytes of record batches that the broker replicated from the leaders of the "
            "partitions that it follows; without a label.",
            "replicationbytesout_total": "Bytes of record batches that the broker sent to the followers of the partitions that "
            "it leads; bytesout does not contain them. Without a label.",
            "reassignmentbytesin_total": "Bytes of record batches that the broker replicated as a replica that a reassignment "
            "adds; replicationbytesin contains them. Without a label.",
            "reassignmentbytesout_total": "Bytes of record batches that the broker, as the leader, sent to replicas that a "
            "reassignment adds; replicationbytesout contains them. Without a label.",
        },
        "kafka_server_brokertopicmetrics_",
    ),
    *rows(
        HISTOGRAM,
        "le",
        {
            "odradek_produced_batch_bytes": "Size in bytes of the record batches that producers sent, as sent "
            "(compressed or not), including refused batches. A message set of an old client counts as one batch."
        },
    ),
    *rows(
        GAUGE,
        "topic",
        {
            "odradek_topic_largest_batch_bytes": "Size in bytes, as stored, of the largest record batch that "
            "producers appended to a topic. The broker resets the value when no client has used the topic for "
            "metrics.usage.idle.ms."
        },
    ),
    *rows(
        COUNTER,
        "request version",
        {"kafka_network_requestmetrics_requests_total": "Requests that the broker answered, by API and version."},
    ),
    *rows(
        COUNTER,
        "request error",
        {
            "kafka_network_requestmetrics_errors_total": "Error codes in responses, by API and error. A response counts once "
            "for each partition, topic, group or resource with an error."
        },
    ),
    *rows(
        SUMMARY,
        "request quantile",
        {
            "requestqueuetimems": "Time from the arrival of a request to its execution, in milliseconds; quantiles over the "
            "last five minutes.",
            "localtimems": "Time to execute a request in the worker that has the connection, in milliseconds; quantiles "
            "over the last five minutes.",
            "remotetimems": "Time that a request waited for records, acknowledgements, another thread or the coordinator, in "
            "milliseconds; quantiles over the last five minutes.",
            "responsesendtimems": "Time to send a response, in milliseconds; quantiles over the last five minutes.",
            "totaltimems": "Time from the arrival of a request to the end of its response, in milliseconds; quantiles over "
            "the last five minutes.",
        },
        "kafka_network_requestmetrics_",
    ),
    *rows(
        GAUGE,
        "",
        {
            "kafka_network_socketserver_networkprocessoravgidle_percent": "Fraction of the last minute in which the workers' "
            "event loops were idle, 0 to 1, mean of all workers.",
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": "Fraction of the last minute in which the "
            "workers' event loops were idle, 0 to 1, mean of all workers. Workers are both network threads and "
            "request handlers, so kafka_network_socketserver_networkprocessoravgidle_percent has the same value.",
        },
    ),
    *rows(
        UNTYPED,
        "listener networkprocessor",
        {
            "kafka_server_socket_server_metrics_connection_count": "Open client connections, by listener and worker (label "
            "networkprocessor)."
        },
    ),
    *rows(
        COUNTER,
        "listener mechanism networkprocessor",
        {
            "kafka_server_socket_server_metrics_successful_authentication_total": "Logins of clients that succeeded, by "
            "listener, SASL mechanism and worker (label networkprocessor), without renewals.",
            "kafka_server_socket_server_metrics_failed_authentication_total": "Logins of clients that failed, by listener, "
            "SASL mechanism and worker (label networkprocessor), without renewals. mechanism=unknown: the client had not "
            "chosen an enabled mechanism.",
            "kafka_server_socket_server_metrics_successful_reauthentication_total": "Renewals of logins (KIP-368) that "
            "succeeded, by listener, SASL mechanism and worker (label networkprocessor).",
            "kafka_server_socket_server_metrics_failed_reauthentication_total": "Renewals of logins (KIP-368) that failed, by "
            "listener, SASL mechanism and worker (label networkprocessor).",
        },
    ),
    *rows(
        COUNTER,
        "listener networkprocessor",
        {
            "kafka_server_socket_server_metrics_expired_connections_killed_total": "Connections that the broker closed because "
            "the client sent a request after the end of its session without having renewed its login (KIP-368), by listener "
            "and worker (label networkprocessor).",
        },
    ),
    *rows(
        GAUGE,
        "clientsoftwarename clientsoftwareversion listener networkprocessor",
        {
            "kafka_server_socket_server_metrics_connections": "Open client connections, by client software name and version, "
            "listener and worker (label networkprocessor). unknown: the client did not send its software name. other: "
            "the worker already counts 256 kinds of software."
        },
    ),
    *rows(
        GAUGE,
        "delayedoperation",
        {
            "kafka_server_delayedoperationpurgatory_purgatorysize": "Delayed requests in the purgatory: Fetch requests that "
            "wait for records, Produce requests that wait for acknowledgements."
        },
    ),
    *rows(
        GAUGE,
        "",
        {
            "numincrementalfetchsessions": "Number of incremental fetch sessions in the broker's cache.",
            "numincrementalfetchpartitionscached": "Number of partitions in all incremental fetch sessions together.",
        },
        "kafka_server_fetchsessioncache_",
    ),
    *rows(
        COUNTER,
        "",
        {
            "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total": "Incremental fetch sessions that "
            "the broker evicted to make room for others."
        },
    ),
)

BROKER = (
    *rows(
        GAUGE,
        "",
        {
            "kafka_server_replicamanager_leadercount": "Number of partitions that this broker leads.",
            "kafka_server_replicamanager_partitioncount": "Number of partitions with a replica on this broker.",
            "kafka_server_replicamanager_underreplicatedpartitions": "Number of partitions led by this broker that have "
            "fewer in-sync replicas than replicas.",
            "kafka_server_replicamanager_underminisrpartitioncount": "Number of partitions led by this broker that have "
            "fewer in-sync replicas than min.insync.replicas; they refuse Produce requests with acks=all.",
            "kafka_server_replicamanager_atminisrpartitioncount": "Number of partitions led by this broker that have "
            "exactly min.insync.replicas in-sync replicas.",
            "kafka_server_replicamanager_offlinereplicacount": "Number of partitions on this broker whose log or log "
            "directory has failed.",
            "kafka_server_replicamanager_reassigningpartitions": "Number of partitions led by this broker whose replicas a "
            "reassignment changes; 0 without a cluster.",
            "kafka_server_replicafetchermanager_maxlag": "Largest number of records by which a partition that this broker "
            "follows is behind its leader's high watermark; 0 without a cluster.",
            "kafka_server_replicafetchermanager_failedpartitionscount": "Number of partitions that this broker follows and "
            "does not fetch because of an error; the log names each. 0 without a cluster.",
            "kafka_server_leaderreplication_byte_rate": "Bytes of records per second that this broker, as the leader, sends to "
            "throttled followers that are not in sync, over the time of replication.quota.window.num windows; "
            "leader.replication.throttled.rate limits it. 0 while that is not set.",
            "kafka_server_followerreplication_byte_rate": "Bytes of records per second that this broker fetches as a throttled "
            "follower that is not in sync, over the time of replication.quota.window.num windows; "
            "follower.replication.throttled.rate limits it. 0 while that is not set.",
            "kafka_controller_kafkacontroller_activecontrollercount": "1 if this broker is the active controller, else 0.",
            "kafka_controller_kafkacontroller_offlinepartitionscount": "Number of partitions in the cluster without an "
            "available leader: clients can neither write nor read them. 0 on brokers that are not the active controller.",
            "kafka_controller_kafkacontroller_globaltopiccount": "Number of topics in the cluster. 0 on brokers that are not "
            "the active controller.",
            "kafka_controller_kafkacontroller_globalpartitioncount": "Number of partitions in the cluster. 0 on brokers that "
            "are not the active controller.",
            "kafka_controller_kafkacontroller_activebrokercount": "Number of live brokers in the cluster. 0 on brokers that "
            "are not the active controller.",
            "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": "Number of partitions in the cluster that "
            "another broker than their preferred (first) replica leads, or none. 0 on brokers that are not the active "
            "controller.",
            "kafka_log_logmanager_offlinelogdirectorycount": "Number of log directories of this broker that have failed.",
            "kafka_server_kafkaserver_brokerstate": "State of the broker, in Kafka's numbers: 3 running, 7 shutting down. "
            "Kafka's other values do not occur: metrics are served only after the start (1 starting, 2 recovery of logs), "
            "and a stop moves no leaders to other brokers (6 pending controlled shutdown).",
        },
    ),
    *rows(
        COUNTER,
        "",
        {
            "kafka_server_replicamanager_isrshrinks_total": "Number of times that a follower of a partition led by this "
            "broker left the in-sync replicas, because it lagged for replica.lag.time.max.ms or its broker stopped answering.",
            "kafka_server_replicamanager_isrexpands_total": "Number of times that a follower of a partition led by this "
            "broker joined the in-sync replicas, because it had caught up.",
            "kafka_server_replicamanager_failedisrupdates_total": "Number of proposed changes of in-sync replicas that the "
            "controller did not accept, or did not answer; the broker proposes them again where they are still right.",
            "kafka_controller_controllerstats_uncleanleaderelections_total": "Number of times that this broker as the "
            "controller elected a leader that was not in sync, so that acknowledged records may have been lost.",
            "kafka_server_sessionexpirelistener_zookeeperexpires_total": "Number of times that the session of this broker in "
            "ZooKeeper ended; other brokers then take over its partitions, and it registers again.",
            "kafka_server_sessionexpirelistener_zookeeperdisconnects_total": "Number of times that this broker lost the "
            "connection to ZooKeeper.",
        },
    ),
    *rows(
        SUMMARY,
        "quantile",
        {
            "kafka_controller_controllerstats_leaderelectionrateandtimems": "Time in milliseconds in which this broker as the "
            "controller executed changes of the live brokers, including the elections of leaders. Only the sum and "
            "the count are measured, no quantiles.",
        },
    ),
    *rows(
        GAUGE,
        PLACE,
        {
            "kafka_server_fetcherlagmetrics_consumerlag": "Number of records by which a partition that this broker follows "
            "was behind its leader's high watermark when the leader last answered. Absent until the first answer in a leader "
            "epoch, and for partitions that this broker does not follow.",
        },
    ),
    *rows(
        COUNTER,
        "role",
        {
            "odradek_throttled_replication_bytes_total": "Bytes of records of throttled replicas that are not in sync: sent "
            'by this broker (role="leader") and fetched by it (role="follower") while a limit was set.',
        },
    ),
    *rows(
        GAUGE,
        "",
        {
            "odradek_isr_change_pending_seconds": "Age in seconds of the oldest proposed change of in-sync replicas that the "
            "controller has not decided; 0 if there is none.",
            "odradek_lost_tail_partitions": "Number of partitions whose log lost records at its end when this broker loaded "
            "it, and which have neither been in sync again nor had this broker as the leader since. 0 without a cluster.",
            "odradek_lost_tail_led_partitions": "Number of partitions with other replicas that this broker leads although "
            "their log had lost records at its end when it was loaded: acknowledged records may be lost. 0 without a cluster.",
            "odradek_broker_registered": "1 while this broker is registered in ZooKeeper in a session that has not ended, "
            "else 0. Absent without a cluster.",
            "odradek_zookeeper_disconnected_seconds": "Time in seconds since this broker lost the connection to ZooKeeper; 0 "
            "while it is connected. Absent without a cluster, and while no coordinator has joined the cluster.",
        },
    ),
    *rows(
        GAUGE,
        PLACE,
        {
            "size": "Size of a partition's log on disk, in bytes.",
            "logstartoffset": "Log start offset of a partition.",
            "logendoffset": "Log end offset of a partition.",
            "numlogsegments": "Number of segments of a partition's log.",
        },
        "kafka_log_log_",
    ),
)

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
    *rows(
        GAUGE,
        "",
        {
            "odradek_boot_time_seconds": "Time at which the broker created its shared memory, in seconds since 1970. All "
            "counters of the broker began at 0 then."
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
            "odradek_idle_connections_memory_dropped_bytes_total": "Bytes of memory of idle connections that a worker freed "
            "because odradek.connections.kept.bytes was exceeded, by dropping fetch state or closing connections.",
        },
    ),
    *rows(
        GAUGE,
        "worker",
        {
            "odradek_idle_connections_memory_bytes": "Bytes of memory that a worker keeps for connections that were "
            "idle for at least a second: state of fetches without a session, incomplete requests, and responses "
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
        COUNTER,
        "worker version",
        {"odradek_tls_handshakes_total": "TLS handshakes that a worker completed, by version (TLSv1.2 or TLSv1.3)."},
    ),
    *rows(
        COUNTER,
        "worker",
        {
            "odradek_tls_handshake_seconds_total": "Time in seconds that a worker spent on TLS handshakes, also on those that "
            "failed.",
            "odradek_tls_resumed_handshakes_total": "TLS handshakes that a worker completed by resuming an earlier session, "
            "which costs little time.",
            "odradek_failed_authentications_total": "Connections to listeners with TLS or SASL that a worker closed because "
            "the TLS handshake failed, the client did not authenticate in time, or too many connections had not authenticated "
            "yet. Logins that SASL refused are counted by "
            "kafka_server_socket_server_metrics_failed_authentication_total instead.",
            "odradek_unauthenticated_connections_closed_total": "Connections that a worker closed because their clients did "
            "not authenticate in time (odradek.authentication.timeout.ms), or because too many connections had not "
            "authenticated yet.",
        },
    ),
    *rows(
        COUNTER,
        "",
        {
            "odradek_tls_reloads_total": "Number of times that the broker replaced certificates of listeners while it ran.",
            "odradek_tls_reload_failures_total": "Number of times that the broker could not use changed key stores or trust "
            "stores. The former certificates stay in use.",
            "odradek_failed_broker_logins_total": "Number of times that this broker could not authenticate a connection to "
            "another broker: the TLS handshake or the login failed, or a process could not get a token for its logins from the "
            "identity provider (OAUTHBEARER).",
        },
    ),
    *rows(
        GAUGE,
        "",
        {
            "odradek_failing_broker_logins": "Number of addresses of other brokers to which this broker could not authenticate "
            "its last connection: the TLS handshake or the login failed, within the last 10 minutes.",
        },
    ),
    *rows(
        GAUGE,
        "listener",
        {
            "odradek_tls_certificate_expiry_timestamp_seconds": "Unix time in seconds at which the certificate of a listener, "
            "or one of its chain, expires.",
            "odradek_tls_certificate_start_timestamp_seconds": "Unix time in seconds from which the certificate of a listener "
            "and its chain are valid.",
            "odradek_tls_truststore_expiry_timestamp_seconds": "Unix time in seconds at which the first authority in the trust "
            "store of a listener expires, if the listener asks for certificates or is the inter-broker listener.",
            "odradek_tls_reload_failed": "Whether the changed key store or trust store of a listener cannot be used (1), so "
            "that the former one is in use, or not (0).",
            "odradek_jwks_keys": "Number of keys of the identity provider (JWKS) with which the broker checks the tokens of a "
            "listener. With 0, no client can log in with OAUTHBEARER.",
            "odradek_jwks_read_timestamp_seconds": "Unix time in seconds at which the broker last read the keys of the "
            "identity provider (JWKS) of a listener without an error; 0 if it never did.",
        },
    ),
    *rows(
        COUNTER,
        "listener",
        {
            "odradek_jwks_read_failures_total": "Attempts of the broker to read the keys of the identity provider (JWKS) of a "
            "listener that failed. The former keys stay in use.",
        },
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
        COUNTER,
        "",
        {
            "odradek_lock_busy_total": "Number of times that a process found the lock of a partition held by another "
            "process.",
            "odradek_lock_recoveries_total": "Number of partition locks that a process recovered after their holder died.",
        },
    ),
)

STORAGE = (
    *rows(
        GAUGE,
        "log_dir",
        {
            "odradek_recovery_bytes": "Bytes after the recovery points of a log directory, which the last start of the "
            "broker has to check.",
            "odradek_recovered_bytes": "Bytes after the recovery points of a log directory that the last start of the broker "
            "has checked or truncated so far.",
            "odradek_recovery_logs": "Number of logs in a log directory that the last start of the broker has to open.",
            "odradek_recovered_logs": "Number of logs in a log directory that the last start of the broker has opened so far.",
            "odradek_recovery_truncated_bytes": "Bytes that the last start of the broker truncated from the ends of logs, "
            "because they were not a complete record batch.",
            "odradek_log_dir_online": "1 while a log directory is in use, 0 after it has failed.",
            "odradek_log_dir_full_state": "Free space of a log directory. 0: sufficient. 1: below the soft limit, the broker "
            "deletes expired segments sooner. 2: full, the broker refuses producers.",
            "odradek_log_dir_free_bytes": "Free bytes of the file system that holds a log directory.",
            "odradek_log_dir_total_bytes": "Size in bytes of the file system that holds a log directory.",
        },
    ),
    *rows(
        COUNTER,
        "log_dir",
        {
            "odradek_log_dir_full_total": "Number of times that a log directory became full, so that producers were refused."
        },
    ),
    *rows(
        GAUGE,
        "topic",
        {"odradek_topic_stored_bytes": "Size on disk of the logs of a topic's partitions on this broker, in bytes."},
    ),
)

PRODUCERS = (
    *rows(
        GAUGE,
        "",
        {
            "odradek_producer_state_bytes": "Bytes of shared memory that hold the state of idempotent producers.",
            "odradek_producer_state_max_bytes": "Maximum size in bytes of the state of idempotent producers "
            "(odradek.producer.state.max.bytes).",
            "odradek_producer_state_producers": "Number of idempotent producers whose state the partitions of this broker "
            "hold. A producer counts once for each partition that it writes to.",
        },
    ),
    *rows(
        COUNTER,
        "reason",
        {
            "odradek_producers_evicted_total": "Idempotent producers whose state a partition evicted before "
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

TRANSACTIONS = (
    *rows(
        GAUGE,
        PLACE,
        {
            "kafka_cluster_partition_laststableoffsetlag": "Number of offsets from the last stable offset of a "
            "partition led by this broker to its high watermark. Consumers with isolation level read_committed do not "
            'receive these records yet. With topic="other": the largest value of all topics without series.',
        },
    ),
    *rows(
        GAUGE,
        "",
        {
            "odradek_partitions_with_open_transactions": "Number of partitions led by this broker in which a "
            "transaction is open.",
            "odradek_oldest_open_transaction_seconds": "Time in seconds for which the oldest transaction that is "
            "open in a partition led by this broker has been open; 0 without one. A lower bound if the transaction began "
            "before the reporter process started.",
            "kafka_server_replicamanager_partitionswithlatetransactionscount": "Number of partitions led by this "
            "broker in which a transaction has been open for more than 5 minutes longer than transaction.max.timeout.ms. "
            "The age is measured from the time at which the reporter process first saw the transaction open, so the number "
            "is 0 after a start of this process. Kafka measures from the producer's last write to the partition.",
        },
    ),
    *rows(
        GAUGE,
        "state",
        {
            "odradek_transactional_ids": "Number of transactional ids in a state, of those that this broker "
            "coordinates. Ongoing: the id has an open transaction.",
        },
    ),
    *rows(
        GAUGE,
        "",
        {
            "odradek_transactions_completing": "Number of transactions that this broker coordinates whose outcome is "
            "decided, but whose markers in the partitions or whose last record in __transaction_state are missing.",
            "odradek_oldest_completing_transaction_seconds": "Time in seconds since the outcome of a transaction was "
            "decided, for the oldest transaction that is not complete; 0 without one.",
            "odradek_transaction_partitions_loading": "Number of partitions of __transaction_state that this broker "
            "is loading; requests for their transactional ids are answered with COORDINATOR_LOAD_IN_PROGRESS.",
            "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize": "Number of "
            "transaction markers that this broker as the coordinator sends again, because the leader of their partition is "
            "not known, refused them or did not respond.",
            "kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize": "Number of "
            "transactions whose markers are written, but whose last record could not be appended to __transaction_state. "
            "This broker as the coordinator appends it again.",
            "kafka_server_transaction_coordinator_metrics_partition_load_time_max": "Longest time in milliseconds to "
            "load a partition of __transaction_state, of the loads of the last 30 seconds. Absent without a load.",
            "kafka_server_transaction_coordinator_metrics_partition_load_time_avg": "Mean time in milliseconds to "
            "load a partition of __transaction_state, of the loads of the last 30 seconds. Absent without a load.",
        },
    ),
    *rows(
        COUNTER,
        "outcome",
        {
            "odradek_transactions_completed_total": "Transactions that this broker as the coordinator has completed, "
            "by outcome: committed or aborted.",
        },
    ),
    *rows(
        COUNTER,
        "reason",
        {
            "odradek_transactions_aborted_by_coordinator_total": "Transactions that this broker as the coordinator "
            "has aborted without a request of their producers, by reason. timeout: the transaction was open for longer than "
            "its timeout; fenced: another producer with the same transactional id started. "
            "odradek_transactions_completed_total counts them too.",
        },
    ),
    *rows(
        COUNTER,
        "",
        {
            "odradek_transaction_markers_total": "Transaction markers that this broker as the coordinator has sent "
            "to partitions, including repetitions.",
            "odradek_transaction_marker_failures_total": "Transaction markers that a partition did not write, and "
            "that this broker as the coordinator sends again.",
            "odradek_transactional_ids_expired_total": "Transactional ids that this broker as the coordinator has "
            "removed, because they were not used for transactional.id.expiration.ms.",
        },
    ),
    *rows(
        SUMMARY,
        "quantile",
        {
            "odradek_transaction_completion_seconds": "Time in seconds from the durable outcome of a transaction to "
            "its completion, when all partitions have their markers. Only the sum and the count are measured, no quantiles.",
            "kafka_server_addpartitionstotxnmanager_verificationtimems": "Time in milliseconds for which Produce requests "
            "to this broker waited until a transaction coordinator answered whether their partitions belong to a "
            "transaction. Only the sum and the count are measured, no quantiles.",
        },
    ),
    *rows(
        UNTYPED,
        "",
        {
            "kafka_server_addpartitionstotxnmanager_verificationfailurerate_count": "Number of transactional batches that "
            "were refused since the broker's start, because the transaction coordinator did not confirm that the partition "
            "is in a transaction of the producer, or did not answer. Producers retry some of them. Never decreases.",
        },
    ),
)

USAGE = (
    *rows(
        COUNTER,
        "principal client_id topic api",
        {
            "odradek_usage_bytes_in_total": "Bytes received from a client by API. With a topic: bytes of the topic's record "
            'batches. With topic="": all other bytes of the requests.',
            "odradek_usage_bytes_out_total": "Bytes sent to a client by API. With a topic: bytes of the topic's record "
            'batches. With topic="": all other bytes of the responses.',
            "odradek_usage_records_in_total": "Records of a client that were appended to a topic.",
            "odradek_usage_records_out_total": "Records of a topic that were sent to a client. If a size limit cuts a "
            "response, its first batch is counted at once, and the other batches when the client fetches the records "
            "after them.",
            "odradek_usage_requests_total": 'Requests of a client by API. With topic="": all requests. With a topic: requests '
            "that contained the topic.",
            "odradek_usage_errors_total": 'Errors returned to a client by API. With topic="": requests with an error. With a '
            "topic: partitions of the topic with an error.",
            "odradek_usage_throttle_seconds_total": "Throttle time returned in responses to a client, in seconds.",
        },
    ),
    *rows(
        COUNTER,
        "principal client_id",
        {
            "odradek_usage_connection_seconds_total": "Time for which connections of a client were open, in seconds, summed "
            "over its connections."
        },
    ),
)

SPOOL = (
    *rows(
        COUNTER,
        "",
        {
            "odradek_spool_intervals_total": "Intervals that the reporter process has written to the usage spool since its "
            "start."
        },
    ),
    *rows(GAUGE, "", {"odradek_spool_bytes": "Size of the files of the usage spool, in bytes."}),
    *rows(
        COUNTER,
        "",
        {
            "odradek_spool_failures_total": "Failed attempts of the reporter process to write an interval of the usage spool "
            "or to compress one of its files. The process retries after the next interval."
        },
    ),
)

QUOTAS = (
    *rows(
        GAUGE,
        "user client_id",
        {
            "kafka_server_produce_byte_rate": "Bytes of Produce requests per second of a client with a producer_byte_rate, "
            "over the windows of its quota. A level that does not tell users, or client ids, apart omits the label.",
            "kafka_server_fetch_byte_rate": "Bytes of Fetch responses per second of a client with a consumer_byte_rate, over "
            "the windows of its quota. A level that does not tell users, or client ids, apart omits the label.",
            "kafka_server_request_request_time": "Time of this broker's processes that a client with a request_percentage "
            "uses, in percent of one thread, over the windows of its quota. A level that does not tell users, or client ids, "
            "apart omits the "
            "label.",
        },
    ),
    *rows(
        GAUGE,
        "user client_id",
        {
            "kafka_server_produce_throttle_time": "Remaining time in ms for which a client is throttled because of its "
            "producer_byte_rate; 0 if it is not.",
            "kafka_server_fetch_throttle_time": "Remaining time in ms for which a client is throttled because of its "
            "consumer_byte_rate; 0 if it is not.",
            "kafka_server_request_throttle_time": "Remaining time in ms for which a client is throttled because of its "
            "request_percentage; 0 if it is not.",
        },
    ),
    *rows(
        GAUGE,
        "quota user client_id",
        {
            "odradek_quota_limit": "The limit of a client's quota: bytes per second, or percent of one thread for "
            "request_percentage.",
        },
    ),
    *rows(
        COUNTER,
        "quota user client_id",
        {
            "odradek_quota_throttled_seconds_total": "Sum of the throttle times of a client's requests, in seconds, by quota. "
            "It begins again when the client has sent nothing for an hour.",
        },
    ),
    *rows(
        COUNTER,
        "quota",
        {
            "odradek_quota_throttled_requests_total": "Requests, or new connections for connection_creation_rate, whose "
            "clients were throttled, by quota.",
        },
    ),
    *rows(
        GAUGE,
        "",
        {
            "odradek_quota_buckets": "Number of clients whose rates are measured for quotas, each counted once for each quota.",
            "odradek_quota_buckets_limit": "Largest value of odradek_quota_buckets.",
            "odradek_quota_throttled_clients": "Number of clients that are throttled now, each counted once for each quota.",
        },
    ),
    *rows(
        COUNTER,
        "",
        {
            "odradek_quota_overflows_total": "Number of times that a client had to share its quota with other clients of its "
            "address, because odradek_quota_buckets reached its limit.",
            "odradek_quota_evictions_total": "Number of clients whose measured rates were dropped because another client "
            "needed the memory: clients that had sent nothing within the windows of a rate, or those of an address that used "
            "most of the places.",
        },
    ),
)

ACCESS = (
    *rows(
        COUNTER,
        "result",
        {
            "odradek_authorizations_total": "Operations of clients on resources that the authorizer decided, by result "
            "(allowed or denied). Decisions that only hide resources from lists are not counted."
        },
    ),
    *rows(
        GAUGE,
        "",
        {
            "odradek_acls": "Number of access control lists (ACLs) that are in force; 0 without an authorizer.",
            "odradek_delegation_tokens": "Number of delegation tokens of the cluster that have not expired, as this broker "
            "knows them; 0 without delegation.token.secret.key.",
        },
    ),
    *rows(
        COUNTER,
        "",
        {
            "odradek_delegation_tokens_created_total": "Delegation tokens that this broker has created.",
            "odradek_delegation_tokens_renewed_total": "Number of times that this broker has renewed a delegation token.",
            "odradek_delegation_tokens_expired_total": "Delegation tokens that this broker has removed: at the request of an "
            "owner or a renewer, or, as the controller, because they had expired.",
        },
    ),
)

SECTIONS = (
    ("Cluster (names of kafka_exporter)", CLUSTER),
    ("Groups and readers", GROUPS),
    ("Traffic and requests", TRAFFIC),
    ("Broker", BROKER),
    ("Processes", PROCESSES),
    ("Storage", STORAGE),
    ("State of idempotent producers", PRODUCERS),
    ("Transactions", TRANSACTIONS),
    ("Access control", ACCESS),
    ("Usage", USAGE),
    ("Usage spool", SPOOL),
    ("Quotas of clients", QUOTAS),
)

METRICS = {metric.name: metric for _, section in SECTIONS for metric in section}
