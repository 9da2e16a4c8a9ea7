"""Idempotent producers and transactions.

Rows of the key table. Types, defaults and ranges are those of Kafka 4.3, or of 3.9 for keys that Kafka 4.0 removed.
"""

from odradek.config.key import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LONG,
    LOW,
    MEDIUM,
    READ_ONLY,
    SHORT,
    ConfigKey,
    Range,
)

TITLE = "Idempotent producers and transactions."

# fmt: off
KEYS = (
    ConfigKey("odradek.transactional.ids.max", INT, 100_000, Range(1), MEDIUM, CLUSTER_WIDE,
        "The maximum number of transactional ids that a broker coordinates. An InitProducerId request for another one receives "
        "POLICY_VIOLATION, but a client (a principal; without a login one address, of IPv6 one /64 network) that has created "
        "fewer than 100 of them may create more, up to twice this number in all. Existing ids above the limit are loaded and "
        "served. Odradek's own key."),
    ConfigKey("odradek.transactional.ids.max.per.client", INT, 10_000, Range(1), MEDIUM, CLUSTER_WIDE,
        "The maximum number of existing transactional ids that one client (a principal; without a login one address, of IPv6 "
        "one /64 network) has created at a broker since its coordinator process started. An InitProducerId request for another "
        "one receives POLICY_VIOLATION. Odradek's own key."),
    ConfigKey("producer.id.expiration.ms", INT, 86_400_000, Range(1), LOW, CLUSTER_WIDE,
        "The time in ms that a partition remembers an idempotent producer after its last append or retry, by the "
        "broker's clock. If a producer repeats a request later than that, the records may be appended twice."),
    ConfigKey("producer.id.expiration.check.interval.ms", INT, 600_000, Range(1), LOW, READ_ONLY,
        "The time in ms between two checks for producers that a partition no longer needs to remember "
        "(producer.id.expiration.ms)."),
    ConfigKey("odradek.producer.state.max.bytes", LONG, 1_073_741_824, Range(1_048_576, 274_877_906_944), MEDIUM, READ_ONLY,
        "The maximum memory in bytes for the state of idempotent producers in all partitions. Each producer takes 256 "
        "to 512 bytes in each partition that it writes to. The broker takes this memory only when it needs it. When "
        "the memory is full, the broker refuses the batches of new producers with NOT_ENOUGH_REPLICAS, and the "
        "producers retry. Odradek's own key."),
    ConfigKey("odradek.producer.state.client.max.percent", INT, 25, Range(1, 100), MEDIUM, READ_ONLY,
        "The maximum part, in percent, of odradek.producer.state.max.bytes and of the producers of each partition that "
        "one client may use. A client is an IPv4 address or an IPv6 /64 network. At the limit, a new producer of a "
        "client replaces the client's least recently used producer. 100: no limit per client. Odradek's own key."),
    ConfigKey("odradek.producer.state.partition.max.producers", INT, 32768, Range(128, 1_048_576), MEDIUM, READ_ONLY,
        "The maximum number of idempotent producers that a partition remembers; they never take more than one eighth "
        "of odradek.producer.state.max.bytes. In a full partition, a new producer replaces one that has not written "
        "for 15 minutes. After the death of a process in the middle of an append, the partition is locked while its "
        "list of producers is rebuilt: about 0.1 s for 32,768 producers, over 1 s for 131,072. Odradek's own key."),
    ConfigKey("transaction.max.timeout.ms", INT, 900_000, Range(1), HIGH, READ_ONLY,
        "The maximum transaction timeout in ms that a producer may request. The broker refuses a longer one with "
        "INVALID_TRANSACTION_TIMEOUT."),
    ConfigKey("transactional.id.expiration.ms", INT, 604_800_000, Range(1), HIGH, READ_ONLY,
        "The time in ms without a transaction after which a transactional id is removed. A producer that uses the id later "
        "fails with INVALID_PRODUCER_ID_MAPPING."),
    ConfigKey("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10000,
        Range(1), LOW, READ_ONLY,
        "The time in ms between two checks for transactions that have exceeded their timeout, which the coordinator aborts."),
    ConfigKey("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000,
        Range(1), LOW, READ_ONLY,
        "The time in ms between two checks for expired transactional ids."),
    ConfigKey("transaction.partition.verification.enable", BOOLEAN, True, None, LOW, CLUSTER_WIDE,
        "Whether the broker checks, before it appends the first batch of a transaction to a partition, that the producer "
        "added the partition to the transaction (KIP-890). Without the check, a batch that arrives after the end of its "
        "transaction can open a transaction that no coordinator ends. The key applies to Produce requests of version 11 and "
        "older; for newer requests the broker adds the partition itself."),
    ConfigKey("odradek.transaction.version", INT, -1, Range(-1, 2), LOW, CLUSTER_WIDE,
        "The level of the feature transaction.version. 2: clients that support KIP-890 get a new producer epoch with every "
        "transaction. 0 and 1: all clients use the older protocol. -1: 2 for a single broker, 0 in a cluster. Change it only "
        "with UpdateFeatures (kafka-features.sh), because clients notice a change by odradek.features.epoch. Odradek's own "
        "key."),
    ConfigKey("odradek.features.epoch", LONG, 0, Range(0), LOW, CLUSTER_WIDE,
        "The number of changes of the levels of features. UpdateFeatures increments it. Odradek's own key."),
    ConfigKey("odradek.transactions.after.unclean.start", BOOLEAN, True, None, LOW, READ_ONLY,
        "Whether a single broker, after a start, aborts transactions that are open in its logs but belong to no open "
        "transaction of a transactional id. No coordinator would end them, and consumers with isolation level read_committed "
        "would wait for them for ever. A broker in a cluster never aborts them. Odradek's own key."),
    ConfigKey("transaction.state.log.min.isr", INT, 2, Range(1), HIGH, READ_ONLY,
        "The number of in-sync replicas that a write to __transaction_state requires, at most the number of its replicas. The "
        "broker uses the value when it creates the topic; later, change min.insync.replicas of the topic."),
    ConfigKey("transaction.state.log.num.partitions", INT, 50, Range(1), HIGH, READ_ONLY,
        "The number of partitions of __transaction_state. Do not change it after the topic has been created."),
    ConfigKey("transaction.state.log.replication.factor", SHORT, 3, Range(1), HIGH, READ_ONLY,
        "The number of replicas of __transaction_state when the broker creates the topic. A single broker gives the topic one "
        "replica. A cluster creates the topic only when that many brokers are live; until then, clients get "
        "COORDINATOR_NOT_AVAILABLE and retry."),
    ConfigKey("transaction.state.log.segment.bytes", INT, 104_857_600, Range(1), HIGH, READ_ONLY,
        "The maximum size in bytes of a segment of __transaction_state. The broker uses the value when it creates the topic; "
        "later, change segment.bytes of the topic."),
    ConfigKey("add.partitions.to.txn.retry.backoff.ms", INT, 20, Range(1), HIGH, READ_ONLY,
        "The time in ms between two attempts to add a partition to a transaction that a coordinator on another broker refuses "
        "because the producer's previous transaction is not complete."),
    ConfigKey("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, Range(0), HIGH, READ_ONLY,
        "The maximum time in ms for which a Produce request (version 12 or newer) or a TxnOffsetCommit request (version 5 or "
        "newer) waits until the producer's previous transaction is complete. After this time it fails with "
        "CONCURRENT_TRANSACTIONS."),
)
