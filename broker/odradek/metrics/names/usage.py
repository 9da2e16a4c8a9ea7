"""Metrics of usage by principal and client, and of the spool that keeps them. Constants."""

from odradek.metrics.metric import COUNTER, GAUGE, rows

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
