"""SASL: the authentication of clients.

Rows of the key table. Types, defaults and ranges are those of Kafka 4.3, or of 3.9 for keys that Kafka 4.0 removed.
"""

from odradek.config.key import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    NONE,
    NONE_YET,
    NOW,
    PASSWORD,
    PER_BROKER,
    READ_ONLY,
    SHORT,
    STRING,
    ConfigKey,
    OneOf,
    Range,
)

TITLE = "SASL: the authentication of clients."

# fmt: off
KEYS = (
    ConfigKey("sasl.enabled.mechanisms", LIST, ("GSSAPI",), None, MEDIUM, PER_BROKER, NOW,
        "The SASL mechanisms that clients can use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. A listener with SASL must "
        "have at least one of them; GSSAPI (Kerberos) is not supported, and is left out."),
    ConfigKey("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", None, MEDIUM, PER_BROKER, NOW,
        "The SASL mechanism with which this broker logs in at other brokers: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or "
        "OAUTHBEARER. It must be one of sasl.enabled.mechanisms of the inter-broker listener. GSSAPI (Kerberos) is not "
        "supported."),
    ConfigKey("sasl.mechanism.controller.protocol", STRING, "GSSAPI", None, HIGH, READ_ONLY, NONE,
        "The SASL mechanism for connections to KRaft controllers."),
    ConfigKey("sasl.jaas.config", PASSWORD, None, None, MEDIUM, PER_BROKER, NOW,
        "The login module of a listener and mechanism, with the users of PLAIN, or the trust store for the https URL of "
        "OAUTHBEARER. For the inter-broker listener, it also has the user name and the password, or for OAUTHBEARER the "
        "client id and the client secret, with which this broker logs in at other brokers. Only the key "
        "listener.name.LISTENER.MECHANISM.sasl.jaas.config is used, with both names in lower case."),
    ConfigKey("sasl.client.callback.handler.class", CLASS, None, None, MEDIUM, READ_ONLY, NONE,
        "A Java class that handles SASL callbacks of the broker as a client."),
    ConfigKey("sasl.login.callback.handler.class", CLASS, None, None, MEDIUM, READ_ONLY, NONE,
        "A Java class that handles login callbacks. For OAUTHBEARER between brokers, it may be unset or name Kafka's "
        "OAuthBearerLoginCallbackHandler, because the broker does what this class does."),
    ConfigKey("sasl.login.class", CLASS, None, None, MEDIUM, READ_ONLY, NONE,
        "A Java class that performs the login."),
    ConfigKey("sasl.server.callback.handler.class", CLASS, None, None, MEDIUM, READ_ONLY, NONE,
        "A Java class that handles SASL callbacks of the broker as a server."),
    ConfigKey("sasl.server.max.receive.size", INT, 524_288, None, MEDIUM, READ_ONLY, NOW,
        "The maximum size in bytes of a message during authentication."),
    ConfigKey("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", None, MEDIUM, PER_BROKER, NONE,
        "The path of the kinit command."),
    ConfigKey("sasl.kerberos.min.time.before.relogin", LONG, 60000, None, MEDIUM, PER_BROKER, NONE,
        "The minimum time in ms between two renewals of a Kerberos ticket."),
    ConfigKey("sasl.kerberos.principal.to.local.rules", LIST, ("DEFAULT",), None, MEDIUM, PER_BROKER, NONE,
        "The rules that map a Kerberos principal to a short name."),
    ConfigKey("sasl.kerberos.service.name", STRING, None, None, MEDIUM, PER_BROKER, NONE,
        "The service name in the broker's Kerberos principal."),
    ConfigKey("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, None, MEDIUM, PER_BROKER, NONE,
        "The random part of the time of a Kerberos ticket's renewal, as a fraction."),
    ConfigKey("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, None, MEDIUM, PER_BROKER, NONE,
        "The fraction of a Kerberos ticket's lifetime after which it is renewed."),
    ConfigKey("sasl.login.connect.timeout.ms", INT, None, None, LOW, READ_ONLY, NOW,
        "The time in ms that the broker waits for a connection to the identity provider from which it gets its tokens for "
        "logins at other brokers. One attempt may take as long as this time and sasl.login.read.timeout.ms together, 10 s if "
        "neither is set."),
    ConfigKey("sasl.login.read.timeout.ms", INT, None, None, LOW, READ_ONLY, NOW,
        "The time in ms that the broker waits for the response of the identity provider from which it gets its tokens for "
        "logins at other brokers; see sasl.login.connect.timeout.ms."),
    ConfigKey("sasl.login.refresh.buffer.seconds", SHORT, 300, None, MEDIUM, PER_BROKER, NOW,
        "The broker gets the next token for logins at other brokers at least this time, in seconds from 0 to 3600, before the "
        "present one expires. It does not apply to tokens whose lifetime is not longer than this time and "
        "sasl.login.refresh.min.period.seconds together."),
    ConfigKey("sasl.login.refresh.min.period.seconds", SHORT, 60, None, MEDIUM, PER_BROKER, NOW,
        "The broker keeps a token for logins at other brokers for at least this time, in seconds from 0 to 900. It does not "
        "apply to tokens whose lifetime is not longer than this time and sasl.login.refresh.buffer.seconds together."),
    ConfigKey("sasl.login.refresh.window.factor", DOUBLE, 0.8, None, MEDIUM, PER_BROKER, NOW,
        "The fraction, from 0.5 to 1, of the lifetime of a token for logins at other brokers after which the broker gets the "
        "next one."),
    ConfigKey("sasl.login.refresh.window.jitter", DOUBLE, 0.05, None, MEDIUM, PER_BROKER, NOW,
        "A random time of up to this fraction, from 0 to 0.25, of the lifetime of a token is added to the time after which the "
        "broker gets the next one, so that brokers do not do so at the same time."),
    ConfigKey("sasl.login.retry.backoff.max.ms", LONG, 10000, None, LOW, READ_ONLY, NOW,
        "The maximum time in ms between two attempts to get a token for logins at other brokers after failures."),
    ConfigKey("sasl.login.retry.backoff.ms", LONG, 100, None, LOW, READ_ONLY, NOW,
        "The time in ms after the first failed attempt to get a token for logins at other brokers. It doubles with each "
        "further failure. Times below 100 count as 100."),
    ConfigKey("sasl.oauthbearer.assertion.algorithm", STRING, "RS256",
        OneOf(("RS256", "ES256"), any_case=True), MEDIUM, READ_ONLY, NONE_YET,
        "The algorithm that signs client assertions."),
    ConfigKey("sasl.oauthbearer.assertion.claim.aud", STRING, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The audience (aud) in client assertions."),
    ConfigKey("sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, Range(0, 86400), LOW, READ_ONLY, NONE_YET,
        "The time in seconds that a client assertion is valid."),
    ConfigKey("sasl.oauthbearer.assertion.claim.iss", STRING, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The issuer (iss) in client assertions."),
    ConfigKey("sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, False, None, MEDIUM, READ_ONLY, NONE_YET,
        "Whether client assertions contain a unique id (jti)."),
    ConfigKey("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, Range(0, 3600), LOW, READ_ONLY, NONE_YET,
        "The time in seconds before the current time from which a client assertion is valid (nbf)."),
    ConfigKey("sasl.oauthbearer.assertion.claim.sub", STRING, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The subject (sub) in client assertions."),
    ConfigKey("sasl.oauthbearer.assertion.file", STRING, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The path of a file that contains a complete client assertion."),
    ConfigKey("sasl.oauthbearer.assertion.private.key.file", STRING, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The path of the private key that signs client assertions."),
    ConfigKey("sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The passphrase of the private key that signs client assertions."),
    ConfigKey("sasl.oauthbearer.assertion.template.file", STRING, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The path of a file with additional claims and headers of client assertions."),
    ConfigKey("sasl.oauthbearer.client.credentials.client.id", STRING, None, None, MEDIUM, READ_ONLY, NOW,
        "The client id with which the broker gets tokens for logins at other brokers. If it is not set, the option clientId of "
        "sasl.jaas.config is used."),
    ConfigKey("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, None, MEDIUM, READ_ONLY, NOW,
        "The client secret with which the broker gets tokens for logins at other brokers. If it is not set, the option "
        "clientSecret of sasl.jaas.config is used."),
    ConfigKey("sasl.oauthbearer.clock.skew.seconds", INT, 30, None, LOW, READ_ONLY, NOW,
        "The time in seconds for which a token is accepted after its end (exp) and before its beginning (nbf), because the "
        "clocks of broker and identity provider differ."),
    ConfigKey("sasl.oauthbearer.expected.audience", LIST, (), None, LOW, READ_ONLY, NOW,
        "The accepted audiences (aud). A token must contain at least one of them. If no audience is set, the broker refuses "
        "tokens that contain one."),
    ConfigKey("sasl.oauthbearer.expected.issuer", STRING, None, None, LOW, READ_ONLY, NOW,
        "The issuer (iss) that a token must contain. If no issuer is set, the broker does not check it."),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, None, LOW, READ_ONLY, NOW,
        "The time in ms between two reads of the identity provider's keys. Times below 1,000 count as 1,000. A token that is "
        "signed with an unknown key also leads to a read, at most every 10 s."),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10000, None, LOW, READ_ONLY, NOW,
        "The maximum time in ms between two attempts to read the identity provider's keys after failures."),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, None, LOW, READ_ONLY, NOW,
        "The time in ms after the first failed attempt to read the identity provider's keys. It doubles with each further "
        "failure. Times below 100 count as 100."),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.url", STRING, None, None, MEDIUM, READ_ONLY, NOW,
        "The URL of the key set (JWKS) of the identity provider: https:, http: or file:. A listener that offers OAUTHBEARER "
        "must have one, and accepts only tokens that are signed with one of these keys. It cannot be changed at run time: "
        "whoever could change it could log in as any user."),
    ConfigKey("sasl.oauthbearer.jwt.retriever.class", CLASS, None, None, MEDIUM, READ_ONLY, NONE,
        "A Java class that obtains tokens. For OAUTHBEARER between brokers, it may be unset or name Kafka's "
        "DefaultJwtRetriever, ClientCredentialsJwtRetriever or FileJwtRetriever."),
    ConfigKey("sasl.oauthbearer.jwt.validator.class", CLASS, None, None, MEDIUM, READ_ONLY, NONE,
        "A Java class that validates tokens."),
    ConfigKey("sasl.oauthbearer.scope", STRING, None, None, MEDIUM, READ_ONLY, NOW,
        "The scope that the broker requests for its tokens for logins at other brokers. If it is not set, the option scope of "
        "sasl.jaas.config is used."),
    ConfigKey("sasl.oauthbearer.scope.claim.name", STRING, "scope", None, LOW, READ_ONLY, NOW,
        "The name of the claim that contains the scope of a token. A token with a malformed scope is refused; the scope has no "
        "other effect."),
    ConfigKey("sasl.oauthbearer.sub.claim.name", STRING, "sub", None, LOW, READ_ONLY, NOW,
        "The name of the claim of a token that contains the name of the user: the principal is User:NAME."),
    ConfigKey("sasl.oauthbearer.token.endpoint.url", STRING, None, None, MEDIUM, READ_ONLY, NOW,
        "The URL (https: or http:) of the identity provider from which the broker gets its tokens for logins at other brokers, "
        "or file:///PATH of a file with a token, which is read for each login. Needed if sasl.mechanism.inter.broker.protocol "
        "is OAUTHBEARER. It cannot be changed at run time: whoever could change it could learn the client secret."),
)
