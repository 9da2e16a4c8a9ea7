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
    PASSWORD,
    READ_ONLY,
    STRING,
    ConfigKey,
    NonEmpty,
    OneOf,
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
    ConfigKey("zookeeper.connect", STRING, None, SERVERS, HIGH, READ_ONLY,
        "The ZooKeeper servers, as comma-separated host:port pairs with an optional /chroot at the end, which is created "
        "if it does not exist. The default port is 2181. Ignored with metadata.store=embedded. Without that key, the "
        "broker joins the cluster of this ZooKeeper, see metadata.store."),
    ConfigKey("zookeeper.connection.timeout.ms", INT, None, Range(1), HIGH, READ_ONLY,
        "The time in ms within which the first connection to ZooKeeper must succeed; then the attempt is repeated. Default: "
        "zookeeper.session.timeout.ms.",
        "broker", (Synonym("zookeeper.session.timeout.ms"),)),
    ConfigKey("zookeeper.session.timeout.ms", INT, 18000, Range(1), HIGH, READ_ONLY,
        "The time in ms after which ZooKeeper ends the session of a broker that has lost its connection: then other brokers "
        "take over its leaderships. ZooKeeper limits it to between 2 and 20 of its ticks. Also the time that a request to "
        "ZooKeeper waits for its response."),
    ConfigKey("zookeeper.max.in.flight.requests", INT, 10, Range(1), HIGH, READ_ONLY,
        "The maximum number of reads of many nodes of ZooKeeper that wait for their responses at the same time."),
    ConfigKey("zookeeper.set.acl", BOOLEAN, False, None, HIGH, READ_ONLY,
        "Whether only brokers may change the nodes that this broker creates in ZooKeeper; everybody may read them, except the "
        "settings of users and brokers. Requires odradek.zookeeper.auth or a key store."),
    ConfigKey("zookeeper.ssl.client.enable", BOOLEAN, False, None, MEDIUM, READ_ONLY,
        "Whether the connection to ZooKeeper uses TLS."),
    ConfigKey("zookeeper.ssl.cipher.suites", LIST, None, None, LOW, READ_ONLY,
        "The cipher suites of TLSv1.2 for the connection to ZooKeeper, with Java's or OpenSSL's names. Default: those of "
        "OpenSSL."),
    ConfigKey("zookeeper.ssl.enabled.protocols", LIST, None, None, LOW, READ_ONLY,
        "The TLS versions for the connection to ZooKeeper: TLSv1.2, TLSv1.3. Default: zookeeper.ssl.protocol."),
    ConfigKey("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS", None, LOW, READ_ONLY,
        "Whether ZooKeeper's host name must match its certificate. HTTPS: yes. Empty: no."),
    ConfigKey("zookeeper.ssl.keystore.location", STRING, None, None, MEDIUM, READ_ONLY,
        "The path of the PEM file with the broker's private key and certificates for ZooKeeper. Default: no client "
        "certificate."),
    ConfigKey("zookeeper.ssl.keystore.password", PASSWORD, None, None, MEDIUM, READ_ONLY,
        "The password of the private key in the key store for ZooKeeper."),
    ConfigKey("zookeeper.ssl.keystore.type", STRING, None, None, MEDIUM, READ_ONLY,
        "The format of the key store for ZooKeeper. Only PEM is supported. Default: by the name of the file, which must then "
        "be *.pem."),
    ConfigKey("zookeeper.ssl.protocol", STRING, "TLSv1.2", None, LOW, READ_ONLY,
        "The TLS version for the connection to ZooKeeper if zookeeper.ssl.enabled.protocols is not set: TLSv1.2 or TLSv1.3."),
    ConfigKey("zookeeper.ssl.truststore.location", STRING, None, None, MEDIUM, READ_ONLY,
        "The path of the PEM file with the certificates against which ZooKeeper's certificate is checked. Default: those of "
        "the operating system."),
    ConfigKey("zookeeper.ssl.truststore.type", STRING, None, None, MEDIUM, READ_ONLY,
        "The format of the trust store for ZooKeeper. Only PEM is supported. Default: by the name of the file, which must then "
        "be *.pem."),
    ConfigKey("odradek.zookeeper.auth", STRING, None, OneOf(("digest", "sasl")), MEDIUM, READ_ONLY,
        "How the broker proves to ZooKeeper who it is. digest: with ZooKeeper's scheme digest. sasl: with SASL DIGEST-MD5, "
        "as Kafka brokers with a JAAS file of the module DigestLoginModule; requires the Python package pure-sasl. Default: "
        "not at all, except by a key store. Odradek's own key."),
    ConfigKey("odradek.zookeeper.username", STRING, None, NonEmpty(), MEDIUM, READ_ONLY,
        "The name of the broker for odradek.zookeeper.auth. Odradek's own key."),
    ConfigKey("odradek.zookeeper.password", PASSWORD, None, None, MEDIUM, READ_ONLY,
        "The password of the broker for odradek.zookeeper.auth. Odradek's own key."),
)
