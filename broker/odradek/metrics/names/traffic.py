"""Metrics of requests and of what producers and consumers transfer. Constants."""

from odradek.metrics.metric import COUNTER, GAUGE, HISTOGRAM, SUMMARY, UNTYPED, rows

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
BATCH_BYTES = tuple(1 << power for power in range(8, 28, 2))
"""Upper bounds of the buckets of `odradek_produced_batch_bytes`."""

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
            "metrics.usage.idle.ms.",
            "odradek_topic_max_message_bytes": "max.message.bytes of a topic: the size in bytes of the largest record batch "
            "that the broker accepts.",
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
