"""The rows for transactions: producers with one transaction in flight each, consume-transform-produce, the time until committed
records are visible, and transactional against plain produce. The row for the load of many transactional ids is in `life.py`.

Protocol 2 is that of `transaction.version` 2 (Java 4, franz-go), protocol 1 that of librdkafka and of older Java clients.
"""

from collections.abc import Callable

from bench.brokers import Server, generate
from bench.rows import WORKED_BYTES, Figures, Row, Target, measured, scratch

PRODUCERS, WIDE_PARTITIONS = 8, 10
WARM_UP_PRODUCERS, WARM_UP_TRANSACTIONS = 64, 30_000
BULK_BATCH, BULK_PRODUCERS, BATCHES_A_TRANSACTION = 1 << 20, 4, 25
BULK_PAIRS = 8
LOAD = ("--conns", str(PRODUCERS), "--seconds", "3", "--warmup", "1")
TAG = "transactions"


def transactions(*load: str) -> Callable[[Server, str], Figures]:
    """CPU for each transaction, and transactions a second."""

    def run(server: Server, topic: str) -> Figures:
        figures = measured("transactions", server, "--topic", topic, *LOAD, *load)
        count = figures["transactions"]
        return {
            "cpu_us": figures["cpu_ns"] / 1e3 / count,
            "rate": count / figures["seconds"],
            "retries": figures["retries"] / count,
        }

    return run


def visible(server: Server, topic: str) -> Figures:
    """Time from EndTxn to the answer of a Fetch with read_committed that waits."""
    figures = measured("visible", server, "--topic", topic, "--seconds", "3", "--warmup", "1")
    return {"p50": figures["p50_us"], "p99": figures["p99_us"]}


def transactional_bulk(server: Server, topic: str) -> Figures:
    """Batches of 1 MiB by producers with transactions of 25 of them, and by plain producers, in turn; the least CPU of each."""
    batches = WORKED_BYTES // BULK_BATCH
    plain, transactional = [], []
    load = (
        "--topic", topic, "--partitions", "4", "--conns", str(BULK_PRODUCERS), "--inflight", "3", "--acks", "-1",
        "--batch-bytes", str(BULK_BATCH), "--size", "200", "--size-max", "1000",
    )  # fmt: skip
    for _ in range(BULK_PAIRS):
        scratch(WORKED_BYTES + WORKED_BYTES // 8)
        figures = measured("produce", server, *load, "--requests", str(batches))
        plain.append(figures["cpu_ns"] / figures["bytes"])
        scratch(WORKED_BYTES + WORKED_BYTES // 8)
        figures = measured(
            "transactions", server, *load, "--batches", str(BATCHES_A_TRANSACTION),
            "--requests", str(batches // BATCHES_A_TRANSACTION),
        )  # fmt: skip
        transactional.append(figures["cpu_ns"] / figures["bytes"])
    return {"cpu_s": min(transactional), "more": min(transactional) / min(plain)}


def warm_up(server: Server) -> None:
    """Transactions of both protocols, unmeasured, by many producers at once: a JVM compiles the code of transactions only after
    tens of thousands of them, and with the older protocol each producer waits between two of them."""
    for protocol in ("2", "1"):
        topic = f"warm-up-transactions-{protocol}"
        server.create_topic(topic, WARM_UP_PRODUCERS * 2)
        server.wait(topic, WARM_UP_PRODUCERS * 2)
        generate(
            "transactions", server, "--topic", topic, "--partitions", str(WARM_UP_PRODUCERS), "--conns",
            str(WARM_UP_PRODUCERS), "--spread", "2", "--transform", "--protocol", protocol, "--requests",
            str(WARM_UP_TRANSACTIONS),
        )  # fmt: skip
        server.delete_topic(topic)


CPU = Target("cpu_us", "us CPU per transaction", 0.3)
RATE = Target("rate", "transactions/s", 1.0, more_is_better=True, middle=True)
TRANSACTION_ROWS = (
    Row("transactions", "transactions of one record, 8 producers, version 2",
        transactions("--partitions", "8"),
        (Target("cpu_us", "us CPU per transaction", 0.25),
         Target("rate", "transactions/s", 3.0, more_is_better=True, middle=True)), partitions=8, tags=(TAG,)),
    Row("transactions-10", "transactions of a record in each of 10 partitions, 8 producers, version 2",
        transactions("--partitions", "10", "--spread", "10"), (CPU, RATE), partitions=WIDE_PARTITIONS, tags=(TAG,)),
    Row("transactions-10-old", "transactions of a record in each of 10 partitions, 8 producers, version 1",
        transactions("--partitions", "10", "--spread", "10", "--protocol", "1"), (CPU, RATE), partitions=WIDE_PARTITIONS,
        tags=(TAG,)),
    Row("transform", "fetch, produce, commit of an offset, of one record in a transaction, 8 producers, version 2",
        transactions("--partitions", "8", "--transform"), (CPU, RATE), partitions=8 + PRODUCERS, tags=(TAG,)),
    Row("transform-old", "fetch, produce, commit of an offset, of one record in a transaction, 8 producers, version 1",
        transactions("--partitions", "8", "--transform", "--protocol", "1"), (CPU, RATE), partitions=8 + PRODUCERS,
        tags=(TAG,)),
    Row("visible", "EndTxn to long-polling fetch of committed records on another connection", visible,
        (Target("p50", "us p50", 0.4, middle=True), Target("p99", "us p99", 0.6, middle=True)), tags=(TAG,)),
    Row("transactional-bulk", "transactional produce, 1 MiB batches, 25 in a transaction", transactional_bulk,
        (Target("cpu_s", "s CPU per GB", 1.0), Target("more", "x plain produce", 2.0, absolute=1.05)), "pwrite", 4,
        tags=(TAG,)),
)  # fmt: skip
