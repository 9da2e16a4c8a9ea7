"""TLS for listeners.

Rows of the key table. Types, defaults and ranges are those of Kafka 4.3, or of 3.9 for keys that Kafka 4.0 removed.
"""

from odradek.config.key import (
    BOOLEAN,
    CLASS,
    LIST,
    LOW,
    MEDIUM,
    NONE,
    NONE_YET,
    PASSWORD,
    PER_BROKER,
    READ_ONLY,
    STRING,
    ConfigKey,
    OneOf,
)

TITLE = "TLS for listeners."

# fmt: off
KEYS = (
    ConfigKey("ssl.allow.dn.changes", BOOLEAN, False, None, LOW, READ_ONLY, NONE_YET,
        "Whether a new certificate of a listener may have a different distinguished name."),
    ConfigKey("ssl.allow.san.changes", BOOLEAN, False, None, LOW, READ_ONLY, NONE_YET,
        "Whether a new certificate of a listener may have different alternative names."),
    ConfigKey("ssl.cipher.suites", LIST, (), None, MEDIUM, PER_BROKER, NONE_YET,
        "The cipher suites that listeners accept. Empty: those of the TLS library."),
    ConfigKey("ssl.client.auth", STRING, "none", OneOf(("required", "requested", "none")), MEDIUM, PER_BROKER, NONE_YET,
        "Whether clients present a certificate. required: a connection without a certificate fails. requested: the "
        "certificate is optional. none: no certificate is requested."),
    ConfigKey("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), None, MEDIUM, PER_BROKER, NONE_YET,
        "The TLS versions that listeners accept."),
    ConfigKey("ssl.endpoint.identification.algorithm", STRING, "https", None, LOW, PER_BROKER, NONE_YET,
        "Whether the host name of a server must match its certificate. https: yes. Empty: no."),
    ConfigKey("ssl.engine.factory.class", CLASS, None, None, LOW, PER_BROKER, NONE,
        "A Java class that creates TLS engines."),
    ConfigKey("ssl.key.password", PASSWORD, None, None, MEDIUM, PER_BROKER, NONE_YET,
        "The password of the private key."),
    ConfigKey("ssl.keymanager.algorithm", STRING, "SunX509", None, MEDIUM, PER_BROKER, NONE,
        "The algorithm of Java's key manager."),
    ConfigKey("ssl.keystore.certificate.chain", PASSWORD, None, None, MEDIUM, PER_BROKER, NONE_YET,
        "The certificate chain of the listeners, as PEM text."),
    ConfigKey("ssl.keystore.key", PASSWORD, None, None, MEDIUM, PER_BROKER, NONE_YET,
        "The private key of the listeners, as PEM text."),
    ConfigKey("ssl.keystore.location", STRING, None, None, MEDIUM, PER_BROKER, NONE_YET,
        "The path of the key store: the file that contains the private key and its certificates."),
    ConfigKey("ssl.keystore.password", PASSWORD, None, None, MEDIUM, PER_BROKER, NONE_YET,
        "The password of the key store (ssl.keystore.location)."),
    ConfigKey("ssl.keystore.type", STRING, "JKS", None, MEDIUM, PER_BROKER, NONE_YET,
        "The format of the key store (ssl.keystore.location)."),
    ConfigKey("ssl.principal.mapping.rules", STRING, "DEFAULT", None, LOW, READ_ONLY, NONE_YET,
        "The rules that map the distinguished name of a client certificate to a principal."),
    ConfigKey("ssl.protocol", STRING, "TLSv1.3", None, MEDIUM, PER_BROKER, NONE_YET,
        "The TLS version that the broker, as a client, negotiates."),
    ConfigKey("ssl.provider", STRING, None, None, MEDIUM, PER_BROKER, NONE,
        "The Java security provider for TLS."),
    ConfigKey("ssl.secure.random.implementation", STRING, None, None, LOW, PER_BROKER, NONE,
        "The Java random number generator for TLS."),
    ConfigKey("ssl.trustmanager.algorithm", STRING, "PKIX", None, MEDIUM, PER_BROKER, NONE,
        "The algorithm of Java's trust manager."),
    ConfigKey("ssl.truststore.certificates", PASSWORD, None, None, MEDIUM, PER_BROKER, NONE_YET,
        "The trusted certificates, as PEM text."),
    ConfigKey("ssl.truststore.location", STRING, None, None, MEDIUM, PER_BROKER, NONE_YET,
        "The path of the trust store: the file that contains the trusted certificates."),
    ConfigKey("ssl.truststore.password", PASSWORD, None, None, MEDIUM, PER_BROKER, NONE_YET,
        "The password of the trust store (ssl.truststore.location)."),
    ConfigKey("ssl.truststore.type", STRING, "JKS", None, MEDIUM, PER_BROKER, NONE_YET,
        "The format of the trust store (ssl.truststore.location)."),
)
