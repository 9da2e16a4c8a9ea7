"""ZooKeeper, the metadata store of Kafka clusters up to 3.9.

Rows of the key table. Types, defaults and ranges are those of Kafka 4.3, or of 3.9 for keys that Kafka 4.0 removed.
"""

from odradek.config.key import (
    BOOLEAN,
    HIGH,
    INT,
    LIST,
    LOW,
    MEDIUM,
    NONE,
    NONE_YET,
    PASSWORD,
    READ_ONLY,
    STRING,
    ConfigKey,
    Pattern,
    Range,
    Synonym,
)

SERVERS = Pattern(
    r"(\[[0-9a-fA-F:.]+\]|[^,/:\s\[\]]+)(:[0-9]+)?(,(\[[0-9a-fA-F:.]+\]|[^,/:\s\[\]]+)(:[0-9]+)?)*(/\S*)?",
    "host:port, comma-separated, with an optional /chroot",
)

TITLE = "ZooKeeper, the metadata store of Kafka clusters up to 3.9."

# fmt: off
KEYS = (
    ConfigKey("zookeeper.connect", STRING, None, SERVERS, HIGH, READ_ONLY, NONE_YET,
        "The ZooKeeper servers, as comma-separated host:port pairs with an optional /chroot at the end. Not supported "
        "yet: the broker refuses to start with this key unless metadata.store=embedded is set. In that case it ignores "
        "the key."),
    ConfigKey("zookeeper.connection.timeout.ms", INT, None, Range(1), HIGH, READ_ONLY, NONE_YET,
        "The time in ms that the broker waits for ZooKeeper when it starts. Default: zookeeper.session.timeout.ms.",
        "broker", (Synonym("zookeeper.session.timeout.ms"),)),
    ConfigKey("zookeeper.session.timeout.ms", INT, 18000, Range(1), HIGH, READ_ONLY, NONE_YET,
        "The time in ms after which ZooKeeper ends a session that has lost its connection."),
    ConfigKey("zookeeper.max.in.flight.requests", INT, 10, Range(1), HIGH, READ_ONLY, NONE_YET,
        "The maximum number of requests to ZooKeeper that wait for a response."),
    ConfigKey("zookeeper.set.acl", BOOLEAN, False, None, HIGH, READ_ONLY, NONE_YET,
        "Whether znodes are created with an ACL."),
    ConfigKey("zookeeper.clientCnxnSocket", STRING, None, None, MEDIUM, READ_ONLY, NONE,
        "A Java class that implements the connection to ZooKeeper."),
    ConfigKey("zookeeper.metadata.migration.enable", BOOLEAN, False, None, HIGH, READ_ONLY, NONE,
        "Whether Kafka migrates its metadata from ZooKeeper to KRaft."),
    ConfigKey("zookeeper.metadata.migration.min.batch.size", INT, 200, Range(1), MEDIUM, READ_ONLY, NONE,
        "The minimum number of records in a batch of Kafka's migration from ZooKeeper to KRaft."),
    ConfigKey("zookeeper.ssl.client.enable", BOOLEAN, False, None, MEDIUM, READ_ONLY, NONE_YET,
        "Whether the connection to ZooKeeper uses TLS."),
    ConfigKey("zookeeper.ssl.cipher.suites", LIST, None, None, LOW, READ_ONLY, NONE_YET,
        "The cipher suites for the connection to ZooKeeper."),
    ConfigKey("zookeeper.ssl.crl.enable", BOOLEAN, False, None, LOW, READ_ONLY, NONE_YET,
        "Whether ZooKeeper's certificate is checked against revocation lists."),
    ConfigKey("zookeeper.ssl.enabled.protocols", LIST, None, None, LOW, READ_ONLY, NONE_YET,
        "The TLS versions for the connection to ZooKeeper."),
    ConfigKey("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS", None, LOW, READ_ONLY, NONE_YET,
        "Whether ZooKeeper's host name must match its certificate. HTTPS: yes. Empty: no."),
    ConfigKey("zookeeper.ssl.keystore.location", STRING, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The path of the key store with the broker's private key and certificate for ZooKeeper."),
    ConfigKey("zookeeper.ssl.keystore.password", PASSWORD, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The password of the key store for ZooKeeper."),
    ConfigKey("zookeeper.ssl.keystore.type", STRING, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The format of the key store for ZooKeeper."),
    ConfigKey("zookeeper.ssl.ocsp.enable", BOOLEAN, False, None, LOW, READ_ONLY, NONE_YET,
        "Whether the revocation of ZooKeeper's certificate is checked with OCSP."),
    ConfigKey("zookeeper.ssl.protocol", STRING, "TLSv1.2", None, LOW, READ_ONLY, NONE_YET,
        "The TLS version that the broker negotiates with ZooKeeper."),
    ConfigKey("zookeeper.ssl.truststore.location", STRING, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The path of the trust store with the certificates that ZooKeeper's certificate is checked against."),
    ConfigKey("zookeeper.ssl.truststore.password", PASSWORD, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The password of the trust store for ZooKeeper."),
    ConfigKey("zookeeper.ssl.truststore.type", STRING, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The format of the trust store for ZooKeeper."),
)
