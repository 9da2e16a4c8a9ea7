"""TLS, SASL, authorisation and delegation tokens.

Rows of the table of keys: type, default and range as in Kafka 4.3, or 3.9 for what 4.x dropped.
"""

from odradek.config.key import (
    CLASS,
    INT,
    LONG,
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
    OnlyDefault,
    Range,
    Synonym,
)

TITLE = "TLS, SASL, authorisation and delegation tokens."

# fmt: off
KEYS = (
    ConfigKey("security.inter.broker.protocol", STRING, "PLAINTEXT",
        OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")), MEDIUM, READ_ONLY, NONE_YET,
        "The security protocol among brokers, if inter.broker.listener.name is not set."),
    ConfigKey("security.providers", STRING, None, None, LOW, READ_ONLY, NONE,
        "Java classes that provide cryptography."),
    ConfigKey("authorizer.class.name", STRING, "", OnlyDefault(""), LOW, READ_ONLY, NONE_YET,
        "What decides who may do what: none can be loaded yet."),
    ConfigKey("principal.builder.class", CLASS, None, None, MEDIUM, PER_BROKER, NONE,
        "A Java class that makes a principal of a connection."),
    ConfigKey("delegation.token.secret.key", PASSWORD, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The secret that signs delegation tokens; the same on all brokers.",
        "broker", (Synonym("delegation.token.master.key"),)),
    ConfigKey("delegation.token.master.key", PASSWORD, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The older name of delegation.token.secret.key."),
    ConfigKey("delegation.token.expiry.check.interval.ms", LONG, 3_600_000, Range(1), LOW, READ_ONLY, NONE_YET,
        "How often to look for expired tokens."),
    ConfigKey("delegation.token.expiry.time.ms", LONG, 86_400_000, Range(1), MEDIUM, READ_ONLY, NONE_YET,
        "How long a token is valid before it must be renewed."),
    ConfigKey("delegation.token.max.lifetime.ms", LONG, 604_800_000, Range(1), MEDIUM, READ_ONLY, NONE_YET,
        "How long a token can be renewed."),
    ConfigKey("password.encoder.secret", PASSWORD, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The secret that hides passwords in ZooKeeper (until Kafka 3.9)."),
    ConfigKey("password.encoder.old.secret", PASSWORD, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The secret before, while it is being changed."),
    ConfigKey("password.encoder.cipher.algorithm", STRING, "AES/CBC/PKCS5Padding", None, LOW, READ_ONLY, NONE_YET,
        "The cipher of that."),
    ConfigKey("password.encoder.iterations", INT, 4096, Range(1024), LOW, READ_ONLY, NONE_YET,
        "The iterations of that."),
    ConfigKey("password.encoder.key.length", INT, 128, Range(8), LOW, READ_ONLY, NONE_YET,
        "The key length of that, in bits."),
    ConfigKey("password.encoder.keyfactory.algorithm", STRING, None, None, LOW, READ_ONLY, NONE_YET,
        "The key derivation of that."),
)
