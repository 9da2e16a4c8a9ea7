"""TLS, SASL, authorisation and delegation tokens.

Rows of the key table. Types, defaults and ranges are those of Kafka 4.3, or of 3.9 for keys that Kafka 4.0 removed.
"""

from odradek.config.key import (
    BOOLEAN,
    INT,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    READ_ONLY,
    STRING,
    ConfigKey,
    OneOf,
    Range,
    Synonym,
)

AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)
"""The authorizers of Kafka whose rules are those of this broker."""

TITLE = "TLS, SASL, authorisation and delegation tokens."

# fmt: off
KEYS = (
    ConfigKey("security.inter.broker.protocol", STRING, "PLAINTEXT",
        OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")), MEDIUM, READ_ONLY,
        "The security protocol among brokers. Used if inter.broker.listener.name is not set."),
    ConfigKey("authorizer.class.name", STRING, "", OneOf(("", *AUTHORIZERS)), LOW, READ_ONLY,
        "The authorizer: empty (every client may do everything), or one of Kafka's names, which all mean the broker's own "
        "authorizer by access control lists."),
    ConfigKey("super.users", STRING, "", None, MEDIUM, READ_ONLY,
        "Principals that may do everything, such as User:admin, separated by semicolons. In a cluster, the principal of the "
        "brokers must be one of them, or have an ACL for CLUSTER_ACTION on the cluster."),
    ConfigKey("allow.everyone.if.no.acl.found", BOOLEAN, False, None, MEDIUM, READ_ONLY,
        "Whether every client may use a resource that no ACL names. If false, only super users may use it."),
    ConfigKey("odradek.core.dumps", BOOLEAN, False, None, LOW, READ_ONLY,
        "Whether the system may write core dumps of a broker that has passwords or private keys in its memory. If false, the "
        "broker prevents them. A broker without secrets does not change the limit of the system. Odradek's own key."),
    ConfigKey("delegation.token.secret.key", PASSWORD, None, None, MEDIUM, READ_ONLY,
        "The secret that signs delegation tokens. All brokers must have the same value. Without it, the broker has no "
        "delegation tokens.",
        "broker", (Synonym("delegation.token.master.key"),)),
    ConfigKey("delegation.token.master.key", PASSWORD, None, None, MEDIUM, READ_ONLY,
        "The older name of delegation.token.secret.key."),
    ConfigKey("delegation.token.expiry.check.interval.ms", LONG, 3_600_000, Range(1), LOW, READ_ONLY,
        "The time in ms between two checks for expired delegation tokens."),
    ConfigKey("delegation.token.expiry.time.ms", LONG, 86_400_000, Range(1), MEDIUM, READ_ONLY,
        "The time in ms that a delegation token is valid without a renewal."),
    ConfigKey("delegation.token.max.lifetime.ms", LONG, 604_800_000, Range(1), MEDIUM, READ_ONLY,
        "The maximum lifetime of a delegation token in ms, with all renewals."),
    ConfigKey("odradek.delegation.tokens.max", INT, 10_000, Range(1), LOW, READ_ONLY,
        "The maximum number of delegation tokens. At this number, a request for a new one receives POLICY_VIOLATION. Odradek's "
        "own key."),
    ConfigKey("odradek.delegation.tokens.max.per.principal", INT, 1_000, Range(1), LOW, READ_ONLY,
        "The maximum number of delegation tokens that one principal owns or requested. At this number, a request for a new one "
        "receives POLICY_VIOLATION. Odradek's own key."),
)
