"""Idempotent producers and transactions.

Rows of the table of keys: type, default and range as in Kafka 4.3, or 3.9 for what 4.x dropped.
"""

from odradek.config.key import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LONG,
    LOW,
    MEDIUM,
    NONE_YET,
    NOW,
    READ_ONLY,
    SHORT,
    ConfigKey,
    Range,
)

TITLE = "Idempotent producers and transactions."

# fmt: off
KEYS = (
    ConfigKey("producer.id.expiration.ms", INT, 86_400_000, Range(1), LOW, CLUSTER_WIDE, NOW,
        "How long in ms a partition remembers an idempotent producer after its last append or retry, by the broker's clock. If "
        "a producer repeats a request later than that, the records may be appended twice."),
    ConfigKey("producer.id.expiration.check.interval.ms", INT, 600_000, Range(1), LOW, READ_ONLY, NOW,
        "How often to look for producers to forget."),
    ConfigKey("odradek.producer.state.max.bytes", LONG, 1_073_741_824, Range(1_048_576, 274_877_906_944), MEDIUM, READ_ONLY,
        NOW,
        "The most memory in bytes for the state of idempotent producers in all partitions; each producer takes 256 to 512 "
        "bytes in each partition that it writes to. The broker takes this memory only as it needs it. When it is full, the "
        "broker refuses the batches of new producers with NOT_ENOUGH_REPLICAS, and the producers retry. Odradek's own key."),
    ConfigKey("odradek.producer.state.client.max.percent", INT, 25, Range(1, 100), MEDIUM, READ_ONLY, NOW,
        "The largest share, in percent, of odradek.producer.state.max.bytes and of the producers of each partition that one "
        "client may use. A client is an IPv4 address or an IPv6 /64 network. At the limit, a new producer of a client replaces "
        "the client's least recently used producer. 100 means no limit for a client. Odradek's own key."),
    ConfigKey("odradek.producer.state.partition.max.producers", INT, 32768, Range(128, 1_048_576), MEDIUM, READ_ONLY, NOW,
        "The most idempotent producers that a partition remembers, and never more than fit into an eighth of "
        "odradek.producer.state.max.bytes. In a full partition, a new producer replaces one that has not written for 15 "
        "minutes. After the death of a process in the middle of an append, the partition is locked while its list of producers "
        "is rebuilt: about 0.1 s for 32,768 producers, over 1 s for 131,072. Odradek's own key."),
    ConfigKey("transaction.max.timeout.ms", INT, 900_000, Range(1), HIGH, READ_ONLY, NONE_YET,
        "The longest transaction timeout a producer may ask for."),
    ConfigKey("transactional.id.expiration.ms", INT, 604_800_000, Range(1), HIGH, READ_ONLY, NONE_YET,
        "How long a transactional id without transactions is remembered."),
    ConfigKey("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10000,
        Range(1), LOW, READ_ONLY, NONE_YET,
        "How often to look for transactions past their timeout."),
    ConfigKey("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000,
        Range(1), LOW, READ_ONLY, NONE_YET,
        "How often to look for expired transactional ids."),
    ConfigKey("transaction.partition.verification.enable", BOOLEAN, True, None, LOW, CLUSTER_WIDE, NONE_YET,
        "Whether a transactional write is checked against the coordinator's list of partitions (KIP-890)."),
    ConfigKey("transaction.two.phase.commit.enable", BOOLEAN, False, None, LOW, READ_ONLY, NONE_YET,
        "Whether producers may prepare a transaction and end it from outside (KIP-939)."),
    ConfigKey("transaction.state.log.load.buffer.size", INT, 5_242_880, Range(1), HIGH, READ_ONLY, NONE_YET,
        "Bytes read at a time while transactions are loaded."),
    ConfigKey("transaction.state.log.min.isr", INT, 2, Range(1), HIGH, READ_ONLY, NONE_YET,
        "In-sync replicas that a write to __transaction_state needs."),
    ConfigKey("transaction.state.log.num.partitions", INT, 50, Range(1), HIGH, READ_ONLY, NONE_YET,
        "Partitions of __transaction_state; not to be changed once it exists."),
    ConfigKey("transaction.state.log.replication.factor", SHORT, 3, Range(1), HIGH, READ_ONLY, NONE_YET,
        "Replicas of __transaction_state."),
    ConfigKey("transaction.state.log.segment.bytes", INT, 104_857_600, Range(1), HIGH, READ_ONLY, NONE_YET,
        "The segment size of __transaction_state."),
    ConfigKey("add.partitions.to.txn.retry.backoff.ms", INT, 20, Range(1), HIGH, READ_ONLY, NONE_YET,
        "The pause before a partition is added to a transaction again that is not ready."),
    ConfigKey("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, Range(0), HIGH, READ_ONLY, NONE_YET,
        "How long in all a partition is tried to be added."),
)
