"""What Kafka's command-line tools print of transactions and features: kafka-transactions.sh and kafka-features.sh.

Each row runs on a broker whose `transaction.partition.verification.enable` is false, so that a transaction can be left hanging.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.clients.kafka_tools import ToolResult
from tests.transactions_against_kafka.sides import BROKER_ID, Rows, Stage, rows
from tests.transactions_against_kafka.transaction_talk import Producer

CONFIG: dict[str, str | int] = {"transaction.partition.verification.enable": "false"}
NEVER_MS = 86_400_000
COLUMNS: dict[str, Callable[[Stage, str], str]] = {
    "ProducerId": lambda stage, text: stage.transcript.producer(int(text)),
    "LastTimestamp": lambda _, text: "a time" if int(text) > 0 else text,
    "CurrentTransactionStartTimeMs": lambda _, text: "a time" if text.isdigit() else text,
    "TransactionDurationMs": lambda _, text: "a time" if text.isdigit() else text,
    "Duration(min)": lambda _, text: "a time",
    "TopicPartitions": lambda _, text: ",".join(sorted(text.split(","))),
}
"""What is shown instead of a cell of a column."""


def printed(stage: Stage, tool: str, *arguments: str, only: str = "") -> ToolResult:
    """Run a tool and note what it printed: tables cell by cell, errors without what the tool's own logger says.

    :param only: lines that contain it.
    """
    result = stage.side.tools.run(tool, *arguments)
    stage.transcript.note(f"{tool} {masked(' '.join(arguments))}: code {result.code}")
    lines = [line for line in result.out.splitlines() if only in line]
    heads = lines[0].split("\t") if lines and "\t" in lines[0] else []
    cells = [[cell.strip() for cell in line.split("\t")] for line in lines]
    if heads:
        names = cells[0]
        for row in sorted(cells[1:]):
            text = [
                COLUMNS.get(name, lambda _, cell: cell)(stage, cell) for name, cell in zip(names, row, strict=False)
            ]
            stage.transcript.note(f"| {' | '.join(text)}")
        stage.transcript.note(f"columns {names}")
    else:
        for line in lines:
            stage.transcript.note(masked(line))
    for line in dict.fromkeys(result.err.splitlines()):  # some say it twice
        if not re.match(r"\s+at |\s*\.\.\. |\[?\d{4}-|Caused by", line):
            stage.transcript.note(f"error {masked(line)}")
    return result


def masked(text: str) -> str:
    """A line without what is each broker's own: ids, epochs of features, messages."""
    text = re.sub(r"--producer-id \d+", "--producer-id n", text)
    text = re.sub(r"Epoch: \d+", "Epoch: n", text)
    text = re.sub(r"producerId=\d+", "producer n", text)
    text = re.sub(r"(had an error: |due to unexpected error: ).*", r"\1<message>", text)
    return re.sub(r" +", " ", text)


def transactions_in_all_states(stage: Stage) -> None:
    """list, describe, describe-producers."""
    topic = stage.topic(partitions=2)
    held = {state: stage.brought(state, state) for state in ("Empty", "CompleteCommit", "CompleteAbort")}
    with stage.talk.quietly():
        held["Ongoing"] = stage.started("Ongoing", timeout_ms=900_000)
        for partition in (0, 1):
            stage.talk.send_batch(held["Ongoing"], (topic, partition), 0)
        ended = stage.started("ended")
        stage.talk.send_batch(ended, (topic, 0), 0)
        stage.talk.end(ended, False)
    only = f"{stage.name}-.*"
    for arguments in (
        ("list", "--transactional-id-pattern", only),
        ("list", "--transactional-id-pattern", only, "--duration-filter", str(NEVER_MS)),
        ("list", "--transactional-id-pattern", "nothing"),
        ("list", "--transactional-id-pattern", "("),
        ("describe", "--transactional-id", stage.word("Ongoing")),
        ("describe", "--transactional-id", stage.word("Empty")),
        ("describe", "--transactional-id", stage.word("CompleteAbort")),
        ("describe", "--transactional-id", stage.word("unknown")),
        ("describe-producers", "--topic", topic, "--partition", "0"),
        ("describe-producers", "--topic", topic, "--partition", "1"),
        ("describe-producers", "--topic", topic, "--partition", "0", "--broker-id", str(BROKER_ID)),
    ):
        printed(stage, "transactions", *arguments)


def hanging_transactions(stage: Stage) -> None:
    """One that the coordinator does not know: found, aborted; another one, aborted as for old brokers."""
    talk = stage.talk
    topic = stage.topic(partitions=3)
    known = stage.started("known")
    talk.send_batch(known, (topic, 2), 0)
    hanging = [stage.started(word) for word in ("one", "two")]
    for partition, producer in enumerate(hanging):
        talk.send_batch(producer, (topic, partition), 0, version=11)
    find = ("find-hanging", "--broker-id", str(BROKER_ID))
    printed(stage, "transactions", *find, "--max-transaction-timeout", "1")
    printed(stage, "transactions", "find-hanging", "--topic", topic)
    printed(stage, "transactions", "find-hanging", "--topic", topic, "--partition", "1")
    abort = ("abort", "--topic", topic, "--partition")
    printed(stage, "transactions", *abort, "0")
    printed(stage, "transactions", *abort, "0", "--start-offset", "7")
    printed(stage, "transactions", *abort, "0", "--start-offset", "0")
    two = hanging[1]
    for epoch in (two.epoch - 1, two.epoch):
        old = ("--producer-id", str(two.producer_id), "--producer-epoch", str(epoch), "--coordinator-epoch", "0")
        printed(stage, "transactions", *abort, "1", *old)
    printed(stage, "transactions", "find-hanging", "--topic", topic)
    for partition in range(3):
        talk.fetch_at((topic, partition))


def a_transaction_is_terminated(stage: Stage) -> None:
    talk = stage.talk
    topic = stage.topic()
    producer = stage.started()
    talk.send_batch(producer, (topic, 0), 0)
    for word in ("id", "unknown"):
        printed(stage, "transactions", "forceTerminateTransaction", "--transactionalId", stage.word(word))
    talk.until_complete(producer.transactional_id)
    talk.end(Producer(producer.transactional_id, producer.producer_id, producer.epoch), True, 4)
    talk.fetch_at((topic, 0))


def features(stage: Stage) -> None:
    """describe, upgrade, downgrade, disable; dry, safe and unsafe."""

    def run(*arguments: str) -> None:
        printed(stage, "features", *arguments, only="transaction.version")

    run("describe")
    for arguments in (
        ("upgrade", "--feature", "transaction.version=3"),
        ("upgrade", "--feature", "transaction.version=2"),
        ("upgrade", "--feature", "transaction.version=1"),
        ("downgrade", "--feature", "transaction.version=1", "--dry-run"),
        ("downgrade", "--feature", "transaction.version=1"),
        ("upgrade", "--feature", "transaction.version=2", "--dry-run"),
        ("downgrade", "--feature", "transaction.version=2"),
        ("disable", "--feature", "transaction.version"),
        ("disable", "--feature", "transaction.version", "--unsafe"),
        ("upgrade", "--feature", "transaction.version=1"),
        ("downgrade", "--feature", "transaction.version=0", "--unsafe"),
        ("upgrade", "--feature", "transaction.version=2"),
    ):
        run(*arguments)
    stage.talk.at_level(2)
    run("describe")


ROWS: Rows = [
    *rows(transactions_in_all_states),
    *rows(hanging_transactions),
    *rows(a_transaction_is_terminated),
    *rows(features),
]
