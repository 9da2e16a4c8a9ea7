"""Dashboard of clients: traffic, requests, errors, throttling, software and connections of each client."""

from grafana.board import BROKER, CLIENT, RATE, TOPIC, Board, Row, largest, rate
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


# fmt: off
COUNTS = Row("The selected clients", 4, [
    number(4, "Clients", "none",
        "Number of selected client ids. All clients beyond metrics.max.clients are counted as one client, `other`.",
        Query(f"count(count by (client_id) (odradek_usage_connection_seconds_total{{{CHOSEN}}}))", "clients")),
    number(4, "Received", "bytes",
        "All bytes of requests received from the selected clients in the selected time range.",
        Query(f"sum(increase(odradek_usage_bytes_in_total{{{CHOSEN}}}[$__range]))", "in")),
    number(4, "Sent", "bytes",
        "All bytes of responses sent to the selected clients in the selected time range.",
        Query(f"sum(increase(odradek_usage_bytes_out_total{{{CHOSEN}}}[$__range]))", "out")),
    number(4, "Requests", "short",
        "Requests of the selected clients in the selected time range.",
        Query(f'sum(increase(odradek_usage_requests_total{{{CHOSEN},topic=""}}[$__range]))', "requests")),
    number(4, "Errors", "percentunit",
        "Errors returned to the selected clients, divided by their requests, in the selected time range. Produce and "
        "Fetch can have one error per partition.",
        Query(
            f"sum(increase(odradek_usage_errors_total{{{CHOSEN}}}[$__range])) "
            f'/ sum(increase(odradek_usage_requests_total{{{CHOSEN},topic=""}}[$__range]))',
            "errors",
        ), steps=[(0.01, YELLOW), (0.05, RED)]),
    number(4, "Throttled", "s",
        "Throttle time returned to the selected clients in the selected time range.",
        Query(f"sum(increase(odradek_usage_throttle_seconds_total{{{CHOSEN}}}[$__range]))", "throttled"),
        steps=[(1, ORANGE)]),
])

TRAFFIC = Row("Traffic by client", 9, [
    time_series(12, "Bytes in", "Bps",
        "All bytes of requests received from each client per second: records, headers and everything else. The "
        "fifteen clients with the most.",
        Query(largest(15, _used("bytes_in"), "client_id"), "{{client_id}}"), stacked=True, link=ONLY),
    time_series(12, "Bytes out", "Bps",
        "All bytes of responses sent to each client per second. The fifteen clients with the most.",
        Query(largest(15, _used("bytes_out"), "client_id"), "{{client_id}}"), stacked=True, link=ONLY),
    time_series(12, "Records written", "recps",
        "Records of each client that were appended per second. The fifteen clients with the most.",
        Query(largest(15, _used("records_in"), "client_id"), "{{client_id}}"), stacked=True, link=ONLY),
    time_series(12, "Records read", "recps",
        "Records that were sent to each client per second. The fifteen clients with the most.",
        Query(largest(15, _used("records_out"), "client_id"), "{{client_id}}"), stacked=True, link=ONLY),
    time_series(8, "Requests", "reqps",
        "Requests of each client per second. The fifteen clients with the most.",
        Query(largest(15, _used("requests", CHOSEN + ',topic=""'), "client_id"), "{{client_id}}"), link=ONLY),
    time_series(8, "Errors", "reqps",
        "Errors returned to each client per second: one per request, for Produce and Fetch one per partition. The "
        "fifteen clients with the most.",
        Query(largest(15, _used("errors"), "client_id"), "{{client_id}}"), link=ONLY),
    time_series(8, "Connections", "none",
        "Mean number of open connections of each client. The fifteen clients with the most.",
        Query(largest(15, _used("connection_seconds"), "client_id"), "{{client_id}}"), stacked=True, link=ONLY),
])

SPLIT = Row("Usage by API and topic", 9, [
    time_series(8, "Bytes by API", "Bps",
        "Bytes per second received from and sent to the selected clients, by API.",
        Query(largest(10, both_ways(CHOSEN, "api"), "api"), "{{api}}"), stacked=True),
    time_series(8, "Requests by API", "reqps",
        "Requests of the selected clients per second, by API.",
        Query(largest(10, _used("requests", CHOSEN + ',topic=""', "api"), "api"), "{{api}}"), stacked=True),
    bars(8, "Topics", "Bps",
        "The ten topics of which the selected clients sent and received the most bytes of records per second.",
        Query("topk(10, " + both_ways(CHOSEN_TOPIC + ',topic!=""', "topic") + ")", "{{topic}}"), link=TO_TOPIC),
    rows(24, "Usage", "short",
        "Usage of each client in the selected time range.",
        {"client_id": "Client", "principal": "Principal"},
        Query(_in_range("bytes_in"), "In", unit="bytes"),
        Query(_in_range("bytes_out"), "Out", unit="bytes"),
        Query(_in_range("records_in"), "Records written"),
        Query(_in_range("records_out"), "Records read"),
        Query(_in_range("requests", CHOSEN + ',topic=""'), "Requests"),
        Query(_in_range("errors"), "Errors"),
        Query(_in_range("throttle_seconds"), "Throttled", unit="s"),
        Query(_in_range("connection_seconds"), "Connected", unit="s"), links={"Client": SELF},
        steps={"Errors": [(1, ORANGE)], "Throttled": [(1, ORANGE)]}),
])

CONNECTIONS = Row("Connections", 8, [
    time_series(8, "By software", "none",
        "Open connections by the software name and version that clients report (KIP-511).",
        Query(
            largest(
                15,
                "sum by (clientsoftwarename, clientsoftwareversion) "
                f"(kafka_server_socket_server_metrics_connections{{{BROKER}}})",
                "clientsoftwarename",
                "clientsoftwareversion",
            ),
            "{{clientsoftwarename}} {{clientsoftwareversion}}",
        ), stacked=True),
    time_series(8, "By listener", "none",
        "Open connections of all clients, by listener.",
        Query(f"sum by (listener) (kafka_server_socket_server_metrics_connection_count{{{BROKER}}})", "{{listener}}"),
        stacked=True),
    time_series(8, "Closed", "cps",
        "Connections closed per second, by reason. `refused`: closed immediately because their address already had "
        "max.connections.per.ip connections.",
        Query(rate("odradek_connections_closed_total", "reason"), "{{reason}}"),
        Query(rate("odradek_connections_refused_total"), "refused"), stacked=True),
    time_series(12, "Versions of Produce and Fetch", "reqps",
        "Produce and Fetch requests per second, by version. The broker must convert every record for clients that use "
        "Produce below version 3 or Fetch below version 4.",
        Query(
            "sum by (request, version) (rate(kafka_network_requestmetrics_requests_total"
            f'{{{BROKER},request=~"Produce|Fetch"}}[{RATE}]))',
            "{{request}} v{{version}}",
        ), stacked=True),
    time_series(12, "Bad frames", "cps",
        "Connections per second that the broker closed because they sent bytes that are not a valid Kafka request.",
        Query(rate("odradek_bad_frames_total", "instance"), "{{instance}}"),
        steps=[(1, ORANGE)]),
])

BOARD = Board(
    UID,
    "Odradek / Clients and usage",
    "Usage of the broker by client, topic and API: bytes, records, requests, errors and connections.",
    [COUNTS, TRAFFIC, SPLIT, CONNECTIONS],
    variables=[CLIENT, TOPIC],
)
