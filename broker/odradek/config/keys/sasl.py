"""SASL: the authentication of clients.

Rows of the key table. Types, defaults and ranges are those of Kafka 4.3, or of 3.9 for keys that Kafka 4.0 removed.
"""

from odradek.config.key import (
    DOUBLE,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    READ_ONLY,
    SHORT,
    STRING,
    ConfigKey,
)

TITLE = "SASL: the authentication of clients."

# fmt: off
KEYS = (
    ConfigKey("sasl.enabled.mechanisms", LIST, ("GSSAPI",), None, MEDIUM, PER_BROKER,
        "The SASL mechanisms that clients can use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. A listener with SASL must "
        "have at least one of them; GSSAPI (Kerberos) is not supported, and is left out."),
    ConfigKey("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", None, MEDIUM, PER_BROKER,
        "The SASL mechanism with which this broker logs in at other brokers: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or "
        "OAUTHBEARER. It must be one of sasl.enabled.mechanisms of the inter-broker listener. GSSAPI (Kerberos) is not "
        "supported."),
    ConfigKey("sasl.jaas.config", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "The login module of a listener and mechanism, with the users of PLAIN, or the trust store for the https URL of "
        "OAUTHBEARER. For the inter-broker listener, it also has the user name and the password, or for OAUTHBEARER the "
        "client id and the client secret, with which this broker logs in at other brokers. Only the key "
        "listener.name.LISTENER.MECHANISM.sasl.jaas.config is used, with both names in lower case."),
    ConfigKey("sasl.server.max.receive.size", INT, 524_288, None, MEDIUM, READ_ONLY,
        "The maximum size in bytes of a message during authentication."),
    ConfigKey("sasl.login.connect.timeout.ms", INT, None, None, LOW, READ_ONLY,
        "The time in ms that the broker waits for a connection to the identity provider from which it gets its tokens for "
        "logins at other brokers. One attempt may take as long as this time and sasl.login.read.timeout.ms together, 10 s if "
        "neither is set."),
    ConfigKey("sasl.login.read.timeout.ms", INT, None, None, LOW, READ_ONLY,
        "The time in ms that the broker waits for the response of the identity provider from which it gets its tokens for "
        "logins at other brokers; see sasl.login.connect.timeout.ms."),
    ConfigKey("sasl.login.refresh.buffer.seconds", SHORT, 300, None, MEDIUM, PER_BROKER,
        "The broker gets the next token for logins at other brokers at least this time, in seconds from 0 to 3600, before the "
        "present one expires. It does not apply to tokens whose lifetime is not longer than this time and "
        "sasl.login.refresh.min.period.seconds together."),
    ConfigKey("sasl.login.refresh.min.period.seconds", SHORT, 60, None, MEDIUM, PER_BROKER,
        "The broker keeps a token for logins at other brokers for at least this time, in seconds from 0 to 900. It does not "
        "apply to tokens whose lifetime is not longer than this time and sasl.login.refresh.buffer.seconds together."),
    ConfigKey("sasl.login.refresh.window.factor", DOUBLE, 0.8, None, MEDIUM, PER_BROKER,
        "The fraction, from 0.5 to 1, of the lifetime of a token for logins at other brokers after which the broker gets the "
        "next one."),
    ConfigKey("sasl.login.refresh.window.jitter", DOUBLE, 0.05, None, MEDIUM, PER_BROKER,
        "A random time of up to this fraction, from 0 to 0.25, of the lifetime of a token is added to the time after which the "
        "broker gets the next one, so that brokers do not do so at the same time."),
    ConfigKey("sasl.login.retry.backoff.max.ms", LONG, 10000, None, LOW, READ_ONLY,
        "The maximum time in ms between two attempts to get a token for logins at other brokers after failures."),
    ConfigKey("sasl.login.retry.backoff.ms", LONG, 100, None, LOW, READ_ONLY,
        "The time in ms after the first failed attempt to get a token for logins at other brokers. It doubles with each "
        "further failure. Times below 100 count as 100."),
    ConfigKey("sasl.oauthbearer.client.credentials.client.id", STRING, None, None, MEDIUM, READ_ONLY,
        "The client id with which the broker gets tokens for logins at other brokers. If it is not set, the option clientId of "
        "sasl.jaas.config is used."),
    ConfigKey("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, None, MEDIUM, READ_ONLY,
        "The client secret with which the broker gets tokens for logins at other brokers. If it is not set, the option "
        "clientSecret of sasl.jaas.config is used."),
    ConfigKey("sasl.oauthbearer.clock.skew.seconds", INT, 30, None, LOW, READ_ONLY,
        "The time in seconds for which a token is accepted after its end (exp) and before its beginning (nbf), because the "
        "clocks of broker and identity provider differ."),
    ConfigKey("sasl.oauthbearer.expected.audience", LIST, (), None, LOW, READ_ONLY,
        "The accepted audiences (aud). A token must contain at least one of them. If no audience is set, the broker refuses "
        "tokens that contain one."),
    ConfigKey("sasl.oauthbearer.expected.issuer", STRING, None, None, LOW, READ_ONLY,
        "The issuer (iss) that a token must contain. If no issuer is set, the broker does not check it."),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, None, LOW, READ_ONLY,
        "The time in ms between two reads of the identity provider's keys. Times below 1,000 count as 1,000. A token that is "
        "signed with an unknown key also leads to a read, at most every 10 s."),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10000, None, LOW, READ_ONLY,
        "The maximum time in ms between two attempts to read the identity provider's keys after failures."),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, None, LOW, READ_ONLY,
        "The time in ms after the first failed attempt to read the identity provider's keys. It doubles with each further "
        "failure. Times below 100 count as 100."),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.url", STRING, None, None, MEDIUM, READ_ONLY,
        "The URL of the key set (JWKS) of the identity provider: https:, http: or file:. A listener that offers OAUTHBEARER "
        "must have one, and accepts only tokens that are signed with one of these keys. It cannot be changed at run time: "
        "whoever could change it could log in as any user."),
    ConfigKey("sasl.oauthbearer.scope", STRING, None, None, MEDIUM, READ_ONLY,
        "The scope that the broker requests for its tokens for logins at other brokers. If it is not set, the option scope of "
        "sasl.jaas.config is used."),
    ConfigKey("sasl.oauthbearer.scope.claim.name", STRING, "scope", None, LOW, READ_ONLY,
        "The name of the claim that contains the scope of a token. A token with a malformed scope is refused; the scope has no "
        "other effect."),
    ConfigKey("sasl.oauthbearer.sub.claim.name", STRING, "sub", None, LOW, READ_ONLY,
        "The name of the claim of a token that contains the name of the user: the principal is User:NAME."),
    ConfigKey("sasl.oauthbearer.token.endpoint.url", STRING, None, None, MEDIUM, READ_ONLY,
        "The URL (https: or http:) of the identity provider from which the broker gets its tokens for logins at other brokers, "
        "or file:///PATH of a file with a token, which is read for each login. Needed if sasl.mechanism.inter.broker.protocol "
        "is OAUTHBEARER. It cannot be changed at run time: whoever could change it could learn the client secret."),
)
