"""Connections, listeners and the threads and processes that serve them.

Rows of the key table. Types, defaults and ranges are those of Kafka 4.3, or of 3.9 for keys that Kafka 4.0 removed.
"""

from odradek.config.key import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MAX_INT,
    MEDIUM,
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
    ConfigKey("listeners", LIST, ("PLAINTEXT://:9092",), NonEmpty(), HIGH, READ_ONLY,
        "The addresses at which the broker accepts connections, as comma-separated NAME://host:port. An empty host "
        "means all interfaces, port 0 means a free port."),
    ConfigKey("advertised.listeners", LIST, None, NonEmpty(), HIGH, READ_ONLY,
        "The addresses that the broker returns to clients, as comma-separated NAME://host:port. Default: the value of "
        "listeners. In place of an empty host, a single broker returns to each client the address to which this client has "
        "connected; in a cluster, and for listeners with TLS, the name of this machine."),
    ConfigKey("odradek.published.address", STRING, None, NonEmpty(), MEDIUM, READ_ONLY,
        "The host, or host:port, that a single broker returns to clients that connect through a published port of its "
        "container, as in `-p 19092:9092`: clients whose address is the broker's own (not loopback), a gateway, or in a "
        "network behind a gateway. Other clients receive the address to which they have connected. Default port: that to which "
        "the client has connected. No effect if advertised.listeners is set, in a cluster, and for listeners with a host or "
        "with TLS. The image sets it to localhost, except with the host's network and in Kubernetes. Odradek's own key."),
    ConfigKey("listener.security.protocol.map", STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        None, LOW, READ_ONLY,
        "The security protocol of each listener name, as comma-separated NAME:PROTOCOL."),
    ConfigKey("inter.broker.listener.name", STRING, None, None, MEDIUM, READ_ONLY,
        "The listener that brokers use among themselves. Default: an advertised listener with the protocol of "
        "security.inter.broker.protocol."),
    ConfigKey("odradek.inter.broker.listener.only", BOOLEAN, True, None, MEDIUM, READ_ONLY,
        "Whether requests of brokers are accepted only on the listener that brokers use among themselves: the controller's "
        "requests, AlterPartition, and Fetch requests of followers. The broker closes a connection that sends one to another "
        "listener. Set it to false while inter.broker.listener.name is changed from broker to broker. Odradek's own key."),
    ConfigKey("odradek.authentication.timeout.ms", INT, 10_000, Range(100, 600_000), LOW, READ_ONLY,
        "The maximum time in ms from the beginning of a connection to a listener with TLS or SASL until the client has "
        "authenticated, and for each renewal of a login. The broker closes a connection that takes longer. Odradek's own key."),
    ConfigKey("odradek.unauthenticated.max.connections", INT, 2_000, Range(1), LOW, READ_ONLY,
        "The maximum number of connections to listeners with TLS or SASL whose clients have not authenticated yet. At this "
        "number, a new connection replaces one whose client has been silent for a second, or one of the IP address that has "
        "most of them; if there is none, the new connection is closed. Each worker has an equal part. Odradek's own key."),
    ConfigKey("odradek.unauthenticated.max.connections.per.ip", INT, 500, Range(1), LOW, READ_ONLY,
        "The maximum number of connections from one IP address (of IPv6, from one /64 network) to listeners with TLS or SASL "
        "whose clients have not authenticated yet. At the limit, the broker closes the oldest of them that has been silent for "
        "a second; if there is none, it closes the new connection. Each worker has an equal part. Odradek's own key."),
    ConfigKey("num.network.threads", INT, None, Range(1), HIGH, READ_ONLY,
        "The number of worker processes. Each worker serves an equal part of the connections. Default: the number of "
        "CPU cores that the broker may use."),
    ConfigKey("queued.max.requests", INT, 500, Range(1), HIGH, READ_ONLY,
        "The number of requests that may wait for execution, in all workers together. A worker with more than an equal "
        "part of them stops reading from its connections."),
    ConfigKey("request.timeout.ms", INT, 30000, Range(1), HIGH, READ_ONLY,
        "The time in ms that the coordinator of transactions waits for a response of another broker. Requests of "
        "the controller and of replicas have controller.socket.timeout.ms and replica.socket.timeout.ms."),
    ConfigKey("socket.request.max.bytes", INT, 104_857_600, Range(1), HIGH, READ_ONLY,
        "The maximum size in bytes of a Produce request (other requests: 16 MiB at most). The broker closes a "
        "connection that sends a larger request."),
    ConfigKey("socket.send.buffer.bytes", INT, 102_400, Range(1, None, -1), HIGH, READ_ONLY,
        "The send buffer (SO_SNDBUF) of client connections, in bytes. -1: the operating system decides."),
    ConfigKey("socket.receive.buffer.bytes", INT, -1, Range(1, None, -1), HIGH, READ_ONLY,
        "The receive buffer (SO_RCVBUF) of client connections, in bytes. -1: the operating system decides."),
    ConfigKey("socket.listen.backlog.size", INT, 4096, Range(1), MEDIUM, READ_ONLY,
        "The number of connections to a listener that can wait to be accepted. The operating system may limit it "
        "further (net.core.somaxconn). Kafka's default is 50."),
    ConfigKey("socket.connection.setup.timeout.ms", LONG, 10000, None, MEDIUM, READ_ONLY,
        "The time in ms within which a connection to another broker must be set up: connected, the TLS handshake done, and "
        "logged in. After it, the attempt is repeated."),
    ConfigKey("socket.connection.setup.timeout.max.ms", LONG, 30000, None, MEDIUM, READ_ONLY,
        "The maximum time in ms within which a connection to another broker must be set up. The time begins with "
        "socket.connection.setup.timeout.ms and doubles after each time-out."),
    ConfigKey("connections.max.idle.ms", LONG, 600_000, None, MEDIUM, READ_ONLY,
        "The time in ms without a request after which the broker closes a connection. A negative value means never."),
    ConfigKey("odradek.connections.kept.bytes", LONG, 67_108_864, Range(1_048_576), MEDIUM, READ_ONLY,
        "The maximum memory in bytes that all workers together keep for connections that are idle or slow. Each worker may "
        "use an equal part of it. The memory contains the state of fetches without a session, requests that have been "
        "incomplete for a second, and responses that have been unread for a second. Above the limit, a worker first drops "
        "the fetch state that has been idle longest. It then closes connections whose request has been incomplete, or whose "
        "response has been unread, for 10 s, also if the client sends or reads single bytes. It starts with the client address "
        "that uses most memory (clients behind one gateway count as one), and there with the connection that makes the least "
        "progress. Below the limit a request may take any time to arrive. Odradek's own key."),
    ConfigKey("connections.max.reauth.ms", LONG, 0, None, MEDIUM, READ_ONLY,
        "The time in ms after which a SASL client must authenticate again (KIP-368). The broker closes a connection that "
        "sends another request after this time. 0: never. Can be set for a listener and mechanism."),
    ConfigKey("connection.failed.authentication.delay.ms", INT, 100, Range(0), LOW, READ_ONLY,
        "The time in ms by which the broker delays its response to a failed authentication."),
    ConfigKey("max.connections", INT, MAX_INT, Range(0), MEDIUM, CLUSTER_WIDE,
        "The maximum number of open connections, or of one listener with the prefix listener.name.NAME. At the limit, the "
        "broker accepts no new connection until another one is closed. The listener of brokers, if there are others, still "
        "accepts: the connection of another listener that was idle for the longest time is closed instead."),
    ConfigKey("max.connections.per.ip", INT, MAX_INT, Range(0), MEDIUM, CLUSTER_WIDE,
        "The maximum number of open connections from one IP address (of IPv6, from one /64 network). The broker closes "
        "further connections at once."),
    ConfigKey("max.connections.per.ip.overrides", STRING, "",
        Pattern(r"|[^,]+:[0-9]+(,[^,]+:[0-9]+)*", "host:count, comma-separated"), MEDIUM, CLUSTER_WIDE,
        "Values of max.connections.per.ip for single addresses or host names, as comma-separated host:count. An IPv6 address "
        "in this list is counted by itself, and not with its /64 network."),
    ConfigKey("max.connection.creation.rate", INT, MAX_INT, Range(0), MEDIUM, CLUSTER_WIDE,
        "The maximum number of new connections per second, for the broker, or for one listener with the prefix "
        "listener.name.NAME. Above it, the broker does not accept connections for up to a window (quota.window.size.seconds). "
        "The limit of the broker does not apply to the listener of brokers, if there are others."),
    ConfigKey("max.incremental.fetch.session.cache.slots", INT, 1000, Range(0), MEDIUM, READ_ONLY,
        "The maximum number of incremental fetch sessions (KIP-227) that the broker keeps for all clients together. A "
        "client without a session sends all its partitions in every Fetch request."),
    ConfigKey("odradek.fetch.session.max.partitions", INT, 250_000, Range(0), MEDIUM, READ_ONLY,
        "The maximum number of partitions in the incremental fetch sessions of all clients together. It limits their "
        "memory: about 500 bytes per partition. The broker does not create a session that would exceed the limit, and "
        "ends a session that grows beyond it; its client then sends all its partitions in every Fetch request. "
        "Odradek's own key."),
    ConfigKey("odradek.fetch.max.wait.ms", INT, 300_000, Range(0), MEDIUM, READ_ONLY,
        "The maximum time in ms that a Fetch request waits for records, even if the client's max_wait_ms is longer. "
        "After that time, the broker responds with the records that it has. Odradek's own key."),
    ConfigKey("fetch.max.bytes", INT, 57_671_680, Range(1024), MEDIUM, READ_ONLY,
        "The maximum number of bytes of records in a Fetch response, even if the client requests more."),
    ConfigKey("odradek.produce.max.decompressed.bytes", LONG, 536_870_912, Range(134_217_728), MEDIUM, READ_ONLY,
        "The maximum number of bytes that all compressed batches of one Produce request may have after decompression. "
        "The broker refuses the partitions beyond the limit with NOT_ENOUGH_REPLICAS, and producers retry them. One "
        "batch may have at most 128 MiB after decompression. Odradek's own key."),
    ConfigKey("max.request.partition.size.limit", INT, 2000, Range(1), MEDIUM, READ_ONLY,
        "The maximum number of partitions in a DescribeTopicPartitions response."),
)
