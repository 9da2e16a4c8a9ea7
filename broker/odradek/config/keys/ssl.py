"""TLS for listeners.

Rows of the key table. Types, defaults and ranges are those of Kafka 4.3, or of 3.9 for keys that Kafka 4.0 removed.
"""

from odradek.config.key import (
    BOOLEAN,
    INT,
    LIST,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    READ_ONLY,
    STRING,
    ConfigKey,
    OneOf,
    Range,
)

TITLE = "TLS for listeners."

# fmt: off
KEYS = (
    ConfigKey("odradek.ssl.reload.ms", INT, 60_000, Range(0), LOW, READ_ONLY,
        "The time in ms between two checks of the files of key stores and trust stores. A file that was replaced, and did not "
        "change between two checks, is read again, for new connections. 0: only AlterConfigs re-reads files. "
        "Odradek's own key."),
    ConfigKey("ssl.allow.dn.changes", BOOLEAN, False, None, LOW, READ_ONLY,
        "Whether a new certificate of a listener may have a different distinguished name."),
    ConfigKey("ssl.allow.san.changes", BOOLEAN, False, None, LOW, READ_ONLY,
        "Whether a new certificate of a listener may have different alternative names."),
    ConfigKey("ssl.cipher.suites", LIST, (), None, MEDIUM, PER_BROKER,
        "The cipher suites that listeners accept, with the names of IANA or OpenSSL. Those of TLS 1.3 can only be named "
        "together; without them, TLS 1.3 is disabled. Empty: all of TLS 1.3, and those of TLS 1.2 with ECDHE and AES-GCM or "
        "ChaCha20-Poly1305."),
    ConfigKey("ssl.client.auth", STRING, "none", OneOf(("required", "requested", "none")), MEDIUM, PER_BROKER,
        "Whether clients present a certificate. required: a connection without a certificate fails. requested: the "
        "certificate is optional. none: no certificate is requested."),
    ConfigKey("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), None, MEDIUM, PER_BROKER,
        "The TLS versions that listeners accept."),
    ConfigKey("ssl.endpoint.identification.algorithm", STRING, "https", None, LOW, PER_BROKER,
        "Whether the host name of a server must match its certificate. https: yes. Empty: no."),
    ConfigKey("ssl.key.password", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "The password of the private key."),
    ConfigKey("ssl.keystore.certificate.chain", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "The certificate chain of the listeners, as PEM text."),
    ConfigKey("ssl.keystore.key", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "The private key of the listeners, as PEM text."),
    ConfigKey("ssl.keystore.location", STRING, None, None, MEDIUM, PER_BROKER,
        "The path of the key store: the file (PEM, PKCS12 or JKS) that contains the private key and its certificates."),
    ConfigKey("ssl.keystore.password", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "The password of the key store (ssl.keystore.location)."),
    ConfigKey("ssl.keystore.type", STRING, "JKS", None, MEDIUM, PER_BROKER,
        "The format of the key store (ssl.keystore.location): PEM, PKCS12 or JKS. If unset, the broker recognizes it."),
    ConfigKey("ssl.principal.mapping.rules", STRING, "DEFAULT", None, LOW, READ_ONLY,
        "The rules that map the distinguished name of a client certificate to a principal."),
    ConfigKey("ssl.protocol", STRING, "TLSv1.3", None, MEDIUM, PER_BROKER,
        "The TLS version of Java's TLS context: TLSv1.3, TLSv1.2 or TLS. Listeners use ssl.enabled.protocols instead."),
    ConfigKey("ssl.truststore.certificates", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "The trusted certificates, as PEM text."),
    ConfigKey("ssl.truststore.location", STRING, None, None, MEDIUM, PER_BROKER,
        "The path of the trust store: the file that contains the trusted certificates."),
    ConfigKey("ssl.truststore.password", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "The password of the trust store (ssl.truststore.location)."),
    ConfigKey("ssl.truststore.type", STRING, "JKS", None, MEDIUM, PER_BROKER,
        "The format of the trust store (ssl.truststore.location): PEM, PKCS12 or JKS. If unset, the broker recognizes it."),
)
