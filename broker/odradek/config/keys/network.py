"""Connections, listeners and the threads and processes that serve them.

Rows of the table of keys: type, default and range as in Kafka 4.3, or 3.9 for what 4.x dropped.
"""

from odradek.config.key import (
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MAX_INT,
    MEDIUM,
    NONE,
    NONE_YET,
    NOW,
    READ_ONLY,
    STRING,
    ConfigKey,
    NonEmpty,
    Pattern,
    Range,
)

TITLE = "Connections, listeners and the threads and processes that serve them."

# fmt: off
KEYS = (
    ConfigKey("listeners", LIST, ("PLAINTEXT://:9092",), NonEmpty(), HIGH, READ_ONLY, NOW,
        "Addresses to listen on: NAME://host:port, comma-separated; an empty host is all interfaces, port 0 a free "
        "one."),
    ConfigKey("advertised.listeners", LIST, None, NonEmpty(), HIGH, READ_ONLY, NOW,
        "The addresses that the broker returns to clients. Default: the listeners, with this machine's name for those on all "
        "interfaces."),
    ConfigKey("listener.security.protocol.map", STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        None, LOW, READ_ONLY, NOW,
        "The security protocol of each listener name: NAME:PROTOCOL, comma-separated."),
    ConfigKey("early.start.listeners", LIST, None, None, HIGH, READ_ONLY, NONE,
        "Listeners that Kafka opens before its authorizer is ready."),
    ConfigKey("inter.broker.listener.name", STRING, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The listener that brokers use among themselves; unset, the one security.inter.broker.protocol picks."),
    ConfigKey("control.plane.listener.name", STRING, None, None, HIGH, READ_ONLY, NONE,
        "A listener of its own for a controller's requests (until Kafka 3.9)."),
    ConfigKey("num.network.threads", INT, None, Range(1), HIGH, READ_ONLY, NOW,
        "Worker processes; each serves its share of the connections. Unset: the processor cores of this machine."),
    ConfigKey("num.io.threads", INT, 8, Range(1), HIGH, CLUSTER_WIDE, NONE,
        "Threads that execute requests in Kafka; here workers execute what they receive."),
    ConfigKey("background.threads", INT, 10, Range(1), HIGH, CLUSTER_WIDE, NONE,
        "Threads for background work in Kafka; here the cleaner and the coordinator do it."),
    ConfigKey("queued.max.requests", INT, 500, Range(1), HIGH, READ_ONLY, NOW,
        "Requests that may wait for execution before a worker stops reading from its connections."),
    ConfigKey("queued.max.request.bytes", LONG, -1, Range(1, None, -1), MEDIUM, READ_ONLY, NONE_YET,
        "Bytes of requests that may wait before a worker stops reading; -1 is no limit."),
    ConfigKey("request.timeout.ms", INT, 30000, Range(1), HIGH, READ_ONLY, NONE_YET,
        "How long this broker, as a client of others, waits for an answer."),
    ConfigKey("socket.request.max.bytes", INT, 104_857_600, Range(1), HIGH, READ_ONLY, NOW,
        "The largest request accepted; a larger one closes its connection."),
    ConfigKey("socket.send.buffer.bytes", INT, 102_400, Range(1, None, -1), HIGH, READ_ONLY, NOW,
        "SO_SNDBUF of client sockets; -1 leaves it to the system."),
    ConfigKey("socket.receive.buffer.bytes", INT, -1, Range(1, None, -1), HIGH, READ_ONLY, NOW,
        "SO_RCVBUF of client sockets; -1 leaves it to the system."),
    ConfigKey("socket.listen.backlog.size", INT, 50, Range(1), MEDIUM, READ_ONLY, NOW,
        "Connections that may wait to be accepted on a listener."),
    ConfigKey("socket.connection.setup.timeout.ms", LONG, 10000, None, MEDIUM, READ_ONLY, NONE_YET,
        "How long this broker waits for a connection to another one, at first."),
    ConfigKey("socket.connection.setup.timeout.max.ms", LONG, 30000, None, MEDIUM, READ_ONLY, NONE_YET,
        "The most that the wait for a connection to another broker grows to."),
    ConfigKey("connections.max.idle.ms", LONG, 600_000, None, MEDIUM, READ_ONLY, NOW,
        "A connection without a request for so long is closed; negative means never."),
    ConfigKey("odradek.connections.kept.bytes", LONG, 67_108_864, Range(1_048_576), MEDIUM, READ_ONLY, NOW,
        "The most memory in bytes that all workers together keep for idle connections; each worker may use an equal share. It "
        "holds the state of fetches without a session, incomplete requests, and responses that clients do not read. Above the "
        "limit a worker drops the fetch state that was idle longest, and closes connections whose request is incomplete, or "
        "whose response is unread, for 10 s; it begins with the client address that keeps most (clients behind one gateway "
        "count as one). Odradek's own key."),
    ConfigKey("connections.max.reauth.ms", LONG, 0, None, MEDIUM, READ_ONLY, NONE_YET,
        "How long a SASL session lasts before it must authenticate again; 0 is for ever."),
    ConfigKey("connection.failed.authentication.delay.ms", INT, 100, Range(0), LOW, READ_ONLY, NONE_YET,
        "How long the answer to a failed authentication is held back."),
    ConfigKey("max.connections", INT, MAX_INT, Range(0), MEDIUM, CLUSTER_WIDE, NOW,
        "Connections in all; beyond it new ones are not accepted until others close."),
    ConfigKey("max.connections.per.ip", INT, MAX_INT, Range(0), MEDIUM, CLUSTER_WIDE, NOW,
        "Connections from one address; beyond it they are closed at once."),
    ConfigKey("max.connections.per.ip.overrides", STRING, "",
        Pattern(r"|[^,]+:[0-9]+(,[^,]+:[0-9]+)*", "host:count, comma-separated"), MEDIUM, CLUSTER_WIDE, NOW,
        "Limits for single addresses or hosts: host:count, comma-separated."),
    ConfigKey("max.connection.creation.rate", INT, MAX_INT, Range(0), MEDIUM, CLUSTER_WIDE, NONE_YET,
        "New connections a second, in all or for a listener."),
    ConfigKey("max.incremental.fetch.session.cache.slots", INT, 1000, Range(0), MEDIUM, READ_ONLY, NOW,
        "The most incremental fetch sessions (KIP-227) that the broker keeps for all clients together. A client without a "
        "session names all its partitions in every fetch."),
    ConfigKey("odradek.fetch.session.max.partitions", INT, 250_000, Range(0), MEDIUM, READ_ONLY, NOW,
        "The most partitions that the incremental fetch sessions of all clients together may contain, which limits their "
        "memory: about 500 bytes a partition. The broker does not create a session that would exceed the limit, and ends a "
        "session that grows beyond it; the client then names all its partitions in every fetch. Odradek's own key."),
    ConfigKey("odradek.fetch.max.wait.ms", INT, 300_000, Range(0), MEDIUM, READ_ONLY, NOW,
        "The longest time in ms that a Fetch waits for records, even if the client's max_wait_ms is longer. After that the "
        "broker responds with the records that it has. Odradek's own key."),
    ConfigKey("fetch.max.bytes", INT, 57_671_680, Range(1024), MEDIUM, READ_ONLY, NOW,
        "The most bytes that a Fetch response carries, whatever the client asks for."),
    ConfigKey("odradek.produce.max.decompressed.bytes", LONG, 536_870_912, Range(134_217_728), MEDIUM, READ_ONLY, NOW,
        "The most bytes that the compressed batches of one Produce request may have after decompression, all partitions "
        "together. The broker refuses the partitions beyond the limit with NOT_ENOUGH_REPLICAS, which producers retry. A "
        "single batch may have at most 128 MiB after decompression. Odradek's own key."),
    ConfigKey("max.request.partition.size.limit", INT, 2000, Range(1), MEDIUM, READ_ONLY, NOW,
        "The most partitions that a DescribeTopicPartitions response lists."),
)
