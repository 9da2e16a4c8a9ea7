"""Dashboard of clients: traffic, requests, errors, throttling, software and connections of each client."""

from grafana.board import BROKER, CLIENT, RATE, TOPIC, Board, Row, largest
from grafana.panels import ORANGE, RED, YELLOW, Link, Query, bars, number, rows, time_series

UID = "odradek-clients"

CHOSEN = f'{BROKER},client_id=~"$client"'
CHOSEN_TOPIC = f'{CHOSEN},topic=~"$topic"'
TO_TOPIC = Link("Topic ${__field.labels.topic}", "odradek-topics", {"topic": "topic"})
SELF = Link("Only this client", UID, {"client": "Client"})
ONLY = Link("Only ${__field.labels.client_id}", UID, {"client": "client_id"})


def _used(name: str, chosen: str = CHOSEN, by: str = "client_id", window: str = RATE) -> str:
    return f"sum by ({by}) (rate(odradek_usage_{name}_total{{{chosen}}}[{window}]))"


def both_ways(chosen: str, by: str) -> str:
    """Return a query for bytes per second, in and out together. A plain + would omit series that have only one of the two."""
    ways = " or ".join(
        f'label_replace(rate(odradek_usage_bytes_{way}_total{{{chosen}}}[{RATE}]), "way", "{way}", "", "")'
        for way in ("in", "out")
    )
    return f"sum by ({by}) ({ways})"


def _in_range(name: str, chosen: str = CHOSEN) -> str:
    return f"sum by (client_id, principal) (increase(odradek_usage_{name}_total{{{chosen}}}[$__range]))"


COUNTS = Row(
    "The selected clients",
    4,
    [
        (
            4,
            number(
                "Clients",
                "Number of selected client ids. All clients beyond metrics.max.clients are counted as one client, `other`.",
                "none",
                Query(f"count(count by (client_id) (odradek_usage_connection_seconds_total{{{CHOSEN}}}))", "clients"),
            ),
        ),
        (
            4,
            number(
                "Received",
                "All bytes of requests received from the selected clients in the selected time range.",
                "bytes",
                Query(f"sum(increase(odradek_usage_bytes_in_total{{{CHOSEN}}}[$__range]))", "in"),
            ),
        ),
        (
            4,
            number(
                "Sent",
                "All bytes of responses sent to the selected clients in the selected time range.",
                "bytes",
                Query(f"sum(increase(odradek_usage_bytes_out_total{{{CHOSEN}}}[$__range]))", "out"),
            ),
        ),
        (
            4,
            number(
                "Requests",
                "Requests of the selected clients in the selected time range.",
                "short",
                Query(f'sum(increase(odradek_usage_requests_total{{{CHOSEN},topic=""}}[$__range]))', "requests"),
            ),
        ),
        (
            4,
            number(
                "Errors",
                "Errors returned to the selected clients, divided by their requests, in the selected time range. "
                "Produce and Fetch can have one error per partition.",
                "percentunit",
                Query(
                    f"sum(increase(odradek_usage_errors_total{{{CHOSEN}}}[$__range])) "
                    f'/ sum(increase(odradek_usage_requests_total{{{CHOSEN},topic=""}}[$__range]))',
                    "errors",
                ),
                steps=[(0.01, YELLOW), (0.05, RED)],
            ),
        ),
        (
            4,
            number(
                "Throttled",
                "Throttle time returned to the selected clients in the selected time range.",
                "s",
                Query(
                    f"sum(increase(odradek_usage_throttle_seconds_total{{{CHOSEN}}}[$__range]))",
                    "throttled",
                ),
                steps=[(1, ORANGE)],
            ),
        ),
    ],
)

TRAFFIC = Row(
    "Traffic by client",
    9,
    [
        (
            12,
            time_series(
                "Bytes in",
                "All bytes of requests received from each client per second: records, headers and everything else. The "
                "fifteen clients with the most.",
                "Bps",
                Query(largest(15, _used("bytes_in"), "client_id"), "{{client_id}}"),
                stacked=True,
                link=ONLY,
            ),
        ),
        (
            12,
            time_series(
                "Bytes out",
                "All bytes of responses sent to each client per second. The fifteen clients with the most.",
                "Bps",
                Query(largest(15, _used("bytes_out"), "client_id"), "{{client_id}}"),
                stacked=True,
                link=ONLY,
            ),
        ),
        (
            12,
            time_series(
                "Records written",
                "Records of each client that were appended per second. The fifteen clients with the most.",
                "recps",
                Query(largest(15, _used("records_in"), "client_id"), "{{client_id}}"),
                stacked=True,
                link=ONLY,
            ),
        ),
        (
            12,
            time_series(
                "Records read",
                "Records that were sent to each client per second. The fifteen clients with the most.",
                "recps",
                Query(largest(15, _used("records_out"), "client_id"), "{{client_id}}"),
                stacked=True,
                link=ONLY,
            ),
        ),
        (
            8,
            time_series(
                "Requests",
                "Requests of each client per second. The fifteen clients with the most.",
                "reqps",
                Query(largest(15, _used("requests", CHOSEN + ',topic=""'), "client_id"), "{{client_id}}"),
                link=ONLY,
            ),
        ),
        (
            8,
            time_series(
                "Errors",
                "Errors returned to each client per second: one per request, for Produce and Fetch one per partition. The "
                "fifteen clients with the most.",
                "reqps",
                Query(largest(15, _used("errors"), "client_id"), "{{client_id}}"),
                link=ONLY,
            ),
        ),
        (
            8,
            time_series(
                "Connections",
                "Mean number of open connections of each client. The fifteen clients with the most.",
                "none",
                Query(largest(15, _used("connection_seconds"), "client_id"), "{{client_id}}"),
                stacked=True,
                link=ONLY,
            ),
        ),
    ],
)

SPLIT = Row(
    "Usage by API and topic",
    9,
    [
        (
            8,
            time_series(
                "Bytes by API",
                "Bytes per second received from and sent to the selected clients, by API.",
                "Bps",
                Query(largest(10, both_ways(CHOSEN, "api"), "api"), "{{api}}"),
                stacked=True,
            ),
        ),
        (
            8,
            time_series(
                "Requests by API",
                "Requests of the selected clients per second, by API.",
                "reqps",
                Query(largest(10, _used("requests", CHOSEN + ',topic=""', "api"), "api"), "{{api}}"),
                stacked=True,
            ),
        ),
        (
            8,
            bars(
                "Topics",
                "The ten topics of which the selected clients sent and received the most bytes of records per second.",
                "Bps",
                Query("topk(10, " + both_ways(CHOSEN_TOPIC + ',topic!=""', "topic") + ")", "{{topic}}"),
                link=TO_TOPIC,
            ),
        ),
        (
            24,
            rows(
                "Usage",
                "Usage of each client in the selected time range.",
                "short",
                {"client_id": "Client", "principal": "Principal"},
                Query(_in_range("bytes_in"), "In", unit="bytes"),
                Query(_in_range("bytes_out"), "Out", unit="bytes"),
                Query(_in_range("records_in"), "Records written"),
                Query(_in_range("records_out"), "Records read"),
                Query(_in_range("requests", CHOSEN + ',topic=""'), "Requests"),
                Query(_in_range("errors"), "Errors"),
                Query(_in_range("throttle_seconds"), "Throttled", unit="s"),
                Query(_in_range("connection_seconds"), "Connected", unit="s"),
                links={"Client": SELF},
                steps={"Errors": [(1, ORANGE)], "Throttled": [(1, ORANGE)]},
            ),
        ),
    ],
)

CONNECTIONS = Row(
    "Connections",
    8,
    [
        (
            8,
            time_series(
                "By software",
                "Open connections by the software name and version that clients report (KIP-511).",
                "none",
                Query(
                    largest(
                        15,
                        "sum by (clientsoftwarename, clientsoftwareversion) "
                        f"(kafka_server_socket_server_metrics_connections{{{BROKER}}})",
                        "clientsoftwarename",
                        "clientsoftwareversion",
                    ),
                    "{{clientsoftwarename}} {{clientsoftwareversion}}",
                ),
                stacked=True,
            ),
        ),
        (
            8,
            time_series(
                "By listener",
                "Open connections of all clients, by listener.",
                "none",
                Query(
                    f"sum by (listener) (kafka_server_socket_server_metrics_connection_count{{{BROKER}}})",
                    "{{listener}}",
                ),
                stacked=True,
            ),
        ),
        (
            8,
            time_series(
                "Closed",
                "Connections closed per second, by reason. `refused`: closed immediately because their address already had "
                "max.connections.per.ip connections.",
                "cps",
                Query(f"sum by (reason) (rate(odradek_connections_closed_total{{{BROKER}}}[{RATE}]))", "{{reason}}"),
                Query(f"sum(rate(odradek_connections_refused_total{{{BROKER}}}[{RATE}]))", "refused"),
                stacked=True,
            ),
        ),
        (
            12,
            time_series(
                "Versions of Produce and Fetch",
                "Produce and Fetch requests per second, by version. The broker must convert every record for clients that use "
                "Produce below version 3 or Fetch below version 4.",
                "reqps",
                Query(
                    "sum by (request, version) (rate(kafka_network_requestmetrics_requests_total"
                    f'{{{BROKER},request=~"Produce|Fetch"}}[{RATE}]))',
                    "{{request}} v{{version}}",
                ),
                stacked=True,
            ),
        ),
        (
            12,
            time_series(
                "Bad frames",
                "Connections per second that the broker closed because they sent bytes that are not a valid Kafka request.",
                "cps",
                Query(f"sum by (instance) (rate(odradek_bad_frames_total{{{BROKER}}}[{RATE}]))", "{{instance}}"),
                steps=[(1, ORANGE)],
            ),
        ),
    ],
)

BOARD = Board(
    UID,
    "Odradek / Clients and usage",
    "Usage of the broker by client, topic and API: bytes, records, requests, errors and connections.",
    [COUNTS, TRAFFIC, SPLIT, CONNECTIONS],
    variables=[CLIENT, TOPIC],
)
