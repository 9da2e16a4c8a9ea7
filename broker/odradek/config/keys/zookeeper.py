"""ZooKeeper, the metadata store of clusters.

Rows of the table of keys: type, default and range as in Kafka 4.3, or 3.9 for what 4.x dropped.
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

TITLE = "ZooKeeper, the metadata store of clusters."

# fmt: off
KEYS = (
    ConfigKey("zookeeper.connect", STRING, None, SERVERS, HIGH, READ_ONLY, NONE_YET,
        "The ZooKeeper servers, as comma-separated host:port pairs with an optional /chroot at the end. Not supported yet: the "
        "broker refuses to start with this key, unless metadata.store=embedded is set; then the key is ignored."),
    ConfigKey("zookeeper.connection.timeout.ms", INT, None, Range(1), HIGH, READ_ONLY, NONE_YET,
        "How long to wait for ZooKeeper at the start; unset, zookeeper.session.timeout.ms.",
        "broker", (Synonym("zookeeper.session.timeout.ms"),)),
    ConfigKey("zookeeper.session.timeout.ms", INT, 18000, Range(1), HIGH, READ_ONLY, NONE_YET,
        "How long a session outlives its connection."),
    ConfigKey("zookeeper.max.in.flight.requests", INT, 10, Range(1), HIGH, READ_ONLY, NONE_YET,
        "Requests to ZooKeeper on their way at a time."),
    ConfigKey("zookeeper.set.acl", BOOLEAN, False, None, HIGH, READ_ONLY, NONE_YET,
        "Whether znodes are created with an ACL."),
    ConfigKey("zookeeper.clientCnxnSocket", STRING, None, None, MEDIUM, READ_ONLY, NONE,
        "A Java class for the connection to ZooKeeper."),
    ConfigKey("zookeeper.metadata.migration.enable", BOOLEAN, False, None, HIGH, READ_ONLY, NONE,
        "Whether Kafka moves its metadata from ZooKeeper to KRaft."),
    ConfigKey("zookeeper.metadata.migration.min.batch.size", INT, 200, Range(1), MEDIUM, READ_ONLY, NONE,
        "Records of a batch of that move."),
    ConfigKey("zookeeper.ssl.client.enable", BOOLEAN, False, None, MEDIUM, READ_ONLY, NONE_YET,
        "Whether TLS is spoken to ZooKeeper."),
    ConfigKey("zookeeper.ssl.cipher.suites", LIST, None, None, LOW, READ_ONLY, NONE_YET,
        "Cipher suites for ZooKeeper."),
    ConfigKey("zookeeper.ssl.crl.enable", BOOLEAN, False, None, LOW, READ_ONLY, NONE_YET,
        "Whether revocation lists are looked at."),
    ConfigKey("zookeeper.ssl.enabled.protocols", LIST, None, None, LOW, READ_ONLY, NONE_YET,
        "TLS versions for ZooKeeper."),
    ConfigKey("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS", None, LOW, READ_ONLY, NONE_YET,
        "Whether ZooKeeper's host name must match its certificate: HTTPS, or empty."),
    ConfigKey("zookeeper.ssl.keystore.location", STRING, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The file with the key and certificate shown to ZooKeeper."),
    ConfigKey("zookeeper.ssl.keystore.password", PASSWORD, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The password of that file."),
    ConfigKey("zookeeper.ssl.keystore.type", STRING, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The format of that file."),
    ConfigKey("zookeeper.ssl.ocsp.enable", BOOLEAN, False, None, LOW, READ_ONLY, NONE_YET,
        "Whether OCSP is asked."),
    ConfigKey("zookeeper.ssl.protocol", STRING, "TLSv1.2", None, LOW, READ_ONLY, NONE_YET,
        "The TLS version to negotiate with ZooKeeper."),
    ConfigKey("zookeeper.ssl.truststore.location", STRING, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The file with the certificates that ZooKeeper is trusted by."),
    ConfigKey("zookeeper.ssl.truststore.password", PASSWORD, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The password of that file."),
    ConfigKey("zookeeper.ssl.truststore.type", STRING, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The format of that file."),
)
