"""Dashboard of consumer groups and of readers that never commit: lag in records and in seconds, and progress."""

from grafana.board import BROKER, CLIENT, CLUSTER, GROUP, RATE, TOPIC, Board, Row, largest
from grafana.panels import ORANGE, RED, YELLOW, Link, Query, number, rows, time_series

UID = "odradek-groups"

CHOSEN = f'{CLUSTER},consumergroup=~"$consumergroup",topic=~"$topic"'
READERS = f'{CLUSTER},client_id=~"$client",topic=~"$topic"'
GROUP_TOPIC = "consumergroup, topic"
READER_TOPIC = "client_id, topic"
SECONDS_STEPS = [(60, YELLOW), (300, RED)]
SELF = Link("Only this group", UID, {"consumergroup": "Group"})
TO_TOPIC = Link("The topic", "odradek-topics", {"topic": "Topic"})

# fmt: off
COUNTS = Row("The selected groups", 4, [
    number(5, "Groups", "none",
        "Number of selected groups.",
        Query(f'count(kafka_consumergroup_members{{{CLUSTER},consumergroup=~"$consumergroup"}})', "groups")),
    number(5, "Members", "none",
        "Number of members of the selected groups.",
        Query(f'sum(kafka_consumergroup_members{{{CLUSTER},consumergroup=~"$consumergroup"}})', "members")),
    number(5, "Lag", "short",
        "Records that the selected groups have not committed yet.",
        Query(f"sum(kafka_consumergroup_lag_sum{{{CHOSEN}}})", "lag")),
    number(5, "Largest lag", "s",
        "The age of the oldest record that one of the selected groups has not committed yet.",
        Query(f"max(odradek_consumergroup_lag_seconds{{{CHOSEN}}})", "lag"), steps=SECONDS_STEPS),
    number(4, "Without members", "none",
        "Selected groups that have committed offsets but no members: no consumer reads for them.",
        Query(
            f'count(kafka_consumergroup_members{{{CLUSTER},consumergroup=~"$consumergroup"}} == 0) or vector(0)',
            "groups",
        ), steps=[(1, ORANGE)]),
])

LAG = Row("Lag", 10, [
    time_series(12, "Lag in records", "short",
        "Records between the committed offsets of a group and the high watermarks, summed over the partitions of a "
        "topic. The fifteen largest.",
        Query(
            largest(15, f"sum by ({GROUP_TOPIC}) (kafka_consumergroup_lag_sum{{{CHOSEN}}})", GROUP_TOPIC),
            "{{consumergroup}} {{topic}}",
        )),
    time_series(12, "Lag in seconds", "s",
        "Time since the high watermark passed the committed offset of a group, for the partition of the topic with "
        "the largest lag. The delay that users of the data see. The fifteen largest.",
        Query(
            largest(15, f"max by ({GROUP_TOPIC}) (odradek_consumergroup_lag_seconds{{{CHOSEN}}})", GROUP_TOPIC),
            "{{consumergroup}} {{topic}}",
        ), steps=SECONDS_STEPS),
    time_series(12, "Consumed", "recps",
        "Records per second by which the committed offsets of each group advance.",
        Query(
            largest(
                15,
                f"sum by ({GROUP_TOPIC}) (rate(kafka_consumergroup_current_offset{{{CHOSEN}}}[{RATE}]))",
                GROUP_TOPIC,
            ),
            "{{consumergroup}} {{topic}}",
        )),
    time_series(12, "Time to catch up", "s",
        "The lag divided by the rate at which the group consumes: the time to consume the current lag if no new "
        "records were produced. Groups that do not consume are not shown.",
        Query(
            f"sum by (consumergroup, topic) (kafka_consumergroup_lag_sum{{{CHOSEN}}}) / (sum by (consumergroup, "
            f"topic) (rate(kafka_consumergroup_current_offset{{{CHOSEN}}}[{RATE}])) > 0)",
            "{{consumergroup}} {{topic}}",
        )),
    rows(24, "Partitions", "none",
        "Committed offset and lag of each group in each partition.",
        {"consumergroup": "Group", "topic": "Topic", "partition": "Partition"},
        Query(f"sum by (consumergroup, topic, partition) (kafka_consumergroup_lag{{{CHOSEN}}})", "Lag", unit="short"),
        Query(
            f"max by (consumergroup, topic, partition) (odradek_consumergroup_lag_seconds{{{CHOSEN}}})",
            "Lag in seconds",
            unit="s",
        ),
        Query(
            f"max by (consumergroup, topic, partition) (kafka_consumergroup_current_offset{{{CHOSEN}}})",
            "Committed offset",
        ), links={"Group": SELF, "Topic": TO_TOPIC}, steps={"Lag in seconds": SECONDS_STEPS}),
])

MEMBERS = Row("Groups", 8, [
    time_series(8, "Members", "none",
        "Number of members of each group. A step is usually a deployment; a saw-tooth is a consumer that is removed "
        "and joins again.",
        Query(
            largest(
                15,
                f'kafka_consumergroup_members{{{CLUSTER},consumergroup=~"$consumergroup"}}',
                "consumergroup",
            ),
            "{{consumergroup}}",
        )),
    time_series(8, "States", "none",
        "Number of groups in each state. Classic groups do not consume while they are in PreparingRebalance.",
        Query(f"sum by (state) (kafka_coordinator_group_groupmetadatamanager_numgroups{{{CLUSTER}}})", "{{state}}"),
        stacked=True),
    time_series(8, "Requests of groups", "reqps",
        "Requests of the group protocols per second, by API.",
        Query(
            "sum by (request) (rate(kafka_network_requestmetrics_requests_total"
            f'{{{BROKER},request=~".*Group.*|Heartbeat|Offset(Commit|Fetch)|FindCoordinator"}}[{RATE}]))',
            "{{request}}",
        ), stacked=True),
])

READING = Row("Readers, with and without commits (Spark, Flink, assigned consumers)", 10, [
    time_series(8, "Lag in records", "short",
        "Records between the last record sent to a client and the high watermark, summed over the partitions of a "
        "topic. The fifteen largest.",
        Query(
            largest(15, f"sum by ({READER_TOPIC}) (odradek_reader_lag{{{READERS}}})", READER_TOPIC),
            "{{client_id}} {{topic}}",
        )),
    time_series(8, "Lag in seconds", "s",
        "Time since the high watermark passed the position of a client, for the partition of the topic with the "
        "largest lag. The fifteen largest.",
        Query(
            largest(15, f"max by ({READER_TOPIC}) (odradek_reader_lag_seconds{{{READERS}}})", READER_TOPIC),
            "{{client_id}} {{topic}}",
        ), steps=SECONDS_STEPS),
    time_series(8, "Read", "recps",
        "Records per second by which the positions of each client advance.",
        Query(
            largest(
                15,
                f"sum by ({READER_TOPIC}) (rate(odradek_reader_position{{{READERS}}}[{RATE}]))",
                READER_TOPIC,
            ),
            "{{client_id}} {{topic}}",
        )),
    rows(24, "Positions", "none",
        "Position and lag of each reader in each partition, and the time since the position last moved back (empty if "
        "it never did). The lag of a reader that reads records again shows where it reads.",
        {"client_id": "Client", "principal": "Principal", "topic": "Topic", "partition": "Partition"},
        Query(
            f"sum by (client_id, principal, topic, partition) (odradek_reader_lag{{{READERS}}})",
            "Lag",
            unit="short",
        ),
        Query(
            f"max by (client_id, principal, topic, partition) (odradek_reader_lag_seconds{{{READERS}}})",
            "Lag in seconds",
            unit="s",
        ),
        Query(f"max by (client_id, principal, topic, partition) (odradek_reader_position{{{READERS}}})", "Position"),
        Query(
            "time() - max by (client_id, principal, topic, partition) "
            f"(odradek_reader_last_back_timestamp_seconds{{{READERS}}})",
            "Moved back",
            unit="s",
        ), links={"Client": Link("The client", "odradek-clients", {"client": "Client"}), "Topic": TO_TOPIC},
        steps={"Lag in seconds": SECONDS_STEPS}),
])

BOARD = Board(
    UID,
    "Odradek / Consumer groups and lag",
    "Lag of consumer groups and readers, in records and in seconds, and whether they catch up.",
    [COUNTS, LAG, MEMBERS, READING],
    variables=[GROUP, TOPIC, CLIENT],
)
