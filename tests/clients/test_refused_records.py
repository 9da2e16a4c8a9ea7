"""A batch with bad records: Kafka's Java client and librdkafka report a specific error for those and another for the rest.

`ODRADEK_TEST_PEER=kafka` checks that the clients do the same with Kafka.
"""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import NewTopic

from tests import toolchains
from tests.clients.conftest import Cluster

pytestmark = [pytest.mark.xdist_group("clients"), pytest.mark.timeout(300)]

TIMEOUT_S = 90
HOUR_MS = 3_600_000
JUST_ONE_BAD = "Failed to append record because it was part of a batch which had one more more invalid records"
KEYS = ("a", None, "b", "c")


@pytest.fixture(scope="module")
def topics(cluster: Cluster) -> tuple[str, str]:
    """Topics: one refuses records without a key, one refuses old timestamps."""
    names = "refuses-without-key", "refuses-old"
    configs: list[dict[str, str]] = [{"cleanup.policy": "compact"}, {"message.timestamp.before.max.ms": str(HOUR_MS)}]
    new = [NewTopic(name, 1, 1, config=config) for name, config in zip(names, configs, strict=True)]
    for future in cluster.admin.create_topics(new, operation_timeout=TIMEOUT_S).values():
        future.result(TIMEOUT_S)
    return names


def of_java(cluster: Cluster, records: list[dict[str, Any]], **properties: str) -> list[dict[str, Any]]:
    """What the Java producer reports of each record of one batch."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": "1000", "acks": "all", **properties}
    done = subprocess.run(
        toolchains.java_command("Outcomes", classes=True),
        input=json.dumps({"properties": settings, "records": records}) + "\n",
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def of_librdkafka(cluster: Cluster, records: list[dict[str, Any]], **settings: object) -> list[int]:
    """The error code that librdkafka reports of each record of one batch; 0: delivered."""
    codes: dict[str, int] = {}
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 60_000, "log_level": 0, **settings},
    )
    producer.list_topics(records[0]["topic"], TIMEOUT_S)  # records that wait for the leader are not sent in one batch
    for record in records:
        producer.produce(
            record["topic"],
            value=record["value"],
            key=record["key"],
            partition=0,
            timestamp=record.get("timestamp", 0),
            on_delivery=lambda error, message: codes.update({message.value().decode(): error.code() if error else 0}),
        )
    assert producer.flush(TIMEOUT_S) == 0
    return [codes[record["value"]] for record in records]


@pytest.mark.java
@pytest.mark.parametrize("idempotence", ["true", "false"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_java_client_fails_the_record_without_key_alone(
    cluster: Cluster, topics: tuple[str, str], idempotence: str, codec: str
) -> None:
    records = [{"topic": topics[0], "key": key, "value": f"{number}"} for number, key in enumerate(KEYS)]
    settings = {"enable.idempotence": idempotence, "compression.type": codec}
    outcomes = of_java(cluster, records, **settings)
    assert [outcome.get("error") for outcome in outcomes] == [
        "KafkaException",
        "InvalidRecordException",
        *["KafkaException"] * 2,
    ]
    assert {outcomes[index]["message"] for index in (0, 2, 3)} == {JUST_ONE_BAD}
    assert "key" in outcomes[1]["message"]
    assert "error" not in of_java(cluster, [record for record in records if record["key"]], **settings)[0]


@pytest.mark.java
def test_the_java_client_names_the_timestamp(cluster: Cluster, topics: tuple[str, str]) -> None:
    now = int(time.time() * 1000)
    times = [now, now - 5 * HOUR_MS, now]
    records = [{"topic": topics[1], "key": "k", "value": "v", "timestamp": when} for when in times]
    outcomes = of_java(cluster, records)
    assert [outcome.get("error") for outcome in outcomes] == [
        "KafkaException",
        "InvalidTimestampException",
        "KafkaException",
    ]
    assert str(times[1]) in outcomes[1]["message"]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_librdkafka_fails_the_records_without_key_by_their_own_error(
    cluster: Cluster, topics: tuple[str, str], codec: str
) -> None:
    keys = ("a", None, "b", None)
    records = [{"topic": topics[0], "key": key, "value": f"{number}"} for number, key in enumerate(keys)]
    other, own = KafkaError._INVALID_DIFFERENT_RECORD, KafkaError.INVALID_RECORD
    assert of_librdkafka(cluster, records, **{"compression.type": codec}) == [other, own, other, own]
    # A single record error it takes for the whole batch's.
    assert of_librdkafka(cluster, records[:3], **{"compression.type": codec}) == [own] * 3
    kept = [record for record in records if record["key"]]
    assert of_librdkafka(cluster, kept, **{"compression.type": codec}) == [0, 0]
