"""Metrics of TLS, logins, authorization and quotas. Constants."""

from odradek.metrics.metric import COUNTER, GAUGE, rows

LOGINS = (
    *rows(
        COUNTER,
        "worker version",
        {"odradek_tls_handshakes_total": "TLS handshakes that a worker completed, by version (TLSv1.2 or TLSv1.3)."},
    ),
    *rows(
        COUNTER,
        "worker",
        {
            "odradek_tls_handshake_seconds_total": "Time in seconds that a worker spent on TLS handshakes, also on those that "
            "failed.",
            "odradek_tls_resumed_handshakes_total": "TLS handshakes that a worker completed by resuming an earlier session, "
            "which costs little time.",
            "odradek_failed_authentications_total": "Connections to listeners with TLS or SASL that a worker closed because "
            "the TLS handshake failed, the client did not authenticate in time, or too many connections had not authenticated "
            "yet. Logins that SASL refused are counted by "
            "kafka_server_socket_server_metrics_failed_authentication_total instead.",
            "odradek_unauthenticated_connections_closed_total": "Connections that a worker closed because their clients did "
            "not authenticate in time (odradek.authentication.timeout.ms), or because too many connections had not "
            "authenticated yet.",
        },
    ),
    *rows(
        COUNTER,
        "",
        {
            "odradek_tls_reloads_total": "Number of times that the broker replaced certificates of listeners while it ran.",
            "odradek_tls_reload_failures_total": "Number of times that the broker could not use changed key stores or trust "
            "stores. The former certificates stay in use.",
            "odradek_failed_broker_logins_total": "Number of times that this broker could not authenticate a connection to "
            "another broker: the TLS handshake or the login failed, or a process could not get a token for its logins from the "
            "identity provider (OAUTHBEARER).",
        },
    ),
    *rows(
        GAUGE,
        "",
        {
            "odradek_failing_broker_logins": "Number of addresses of other brokers to which this broker could not authenticate "
            "its last connection: the TLS handshake or the login failed, within the last 10 minutes.",
        },
    ),
    *rows(
        GAUGE,
        "listener",
        {
            "odradek_tls_certificate_expiry_timestamp_seconds": "Unix time in seconds at which the certificate of a listener, "
            "or one of its chain, expires.",
            "odradek_tls_certificate_start_timestamp_seconds": "Unix time in seconds from which the certificate of a listener "
            "and its chain are valid.",
            "odradek_tls_truststore_expiry_timestamp_seconds": "Unix time in seconds at which the first authority in the trust "
            "store of a listener expires, if the listener asks for certificates or is the inter-broker listener.",
            "odradek_tls_reload_failed": "Whether the changed key store or trust store of a listener cannot be used (1), so "
            "that the former one is in use, or not (0).",
            "odradek_jwks_keys": "Number of keys of the identity provider (JWKS) with which the broker checks the tokens of a "
            "listener. With 0, no client can log in with OAUTHBEARER.",
            "odradek_jwks_read_timestamp_seconds": "Unix time in seconds at which the broker last read the keys of the "
            "identity provider (JWKS) of a listener without an error; 0 if it never did.",
        },
    ),
    *rows(
        COUNTER,
        "listener",
        {
            "odradek_jwks_read_failures_total": "Attempts of the broker to read the keys of the identity provider (JWKS) of a "
            "listener that failed. The former keys stay in use.",
        },
    ),
)

ACCESS = (
    *rows(
        COUNTER,
        "result",
        {
            "odradek_authorizations_total": "Operations of clients on resources that the authorizer decided, by result "
            "(allowed or denied). Decisions that only hide resources from lists are not counted."
        },
    ),
    *rows(
        GAUGE,
        "",
        {
            "odradek_acls": "Number of access control lists (ACLs) that are in force; 0 without an authorizer.",
            "odradek_delegation_tokens": "Number of delegation tokens of the cluster that have not expired, as this broker "
            "knows them; 0 without delegation.token.secret.key.",
        },
    ),
    *rows(
        COUNTER,
        "",
        {
            "odradek_delegation_tokens_created_total": "Delegation tokens that this broker has created.",
            "odradek_delegation_tokens_renewed_total": "Number of times that this broker has renewed a delegation token.",
            "odradek_delegation_tokens_expired_total": "Delegation tokens that this broker has removed: at the request of an "
            "owner or a renewer, or, as the controller, because they had expired.",
        },
    ),
)

QUOTAS = (
    *rows(
        GAUGE,
        "user client_id",
        {
            "kafka_server_produce_byte_rate": "Bytes of Produce requests per second of a client with a producer_byte_rate, "
            "over the windows of its quota. A level that does not tell users, or client ids, apart omits the label.",
            "kafka_server_fetch_byte_rate": "Bytes of Fetch responses per second of a client with a consumer_byte_rate, over "
            "the windows of its quota. A level that does not tell users, or client ids, apart omits the label.",
            "kafka_server_request_request_time": "Time of this broker's processes that a client with a request_percentage "
            "uses, in percent of one thread, over the windows of its quota. A level that does not tell users, or client ids, "
            "apart omits the "
            "label.",
        },
    ),
    *rows(
        GAUGE,
        "user client_id",
        {
            "kafka_server_produce_throttle_time": "Remaining time in ms for which a client is throttled because of its "
            "producer_byte_rate; 0 if it is not.",
            "kafka_server_fetch_throttle_time": "Remaining time in ms for which a client is throttled because of its "
            "consumer_byte_rate; 0 if it is not.",
            "kafka_server_request_throttle_time": "Remaining time in ms for which a client is throttled because of its "
            "request_percentage; 0 if it is not.",
        },
    ),
    *rows(
        GAUGE,
        "quota user client_id",
        {
            "odradek_quota_limit": "The limit of a client's quota: bytes per second, or percent of one thread for "
            "request_percentage.",
        },
    ),
    *rows(
        COUNTER,
        "quota user client_id",
        {
            "odradek_quota_throttled_seconds_total": "Sum of the throttle times of a client's requests, in seconds, by quota. "
            "It begins again when the client has sent nothing for an hour.",
        },
    ),
    *rows(
        COUNTER,
        "quota",
        {
            "odradek_quota_throttled_requests_total": "Requests, or new connections for connection_creation_rate, whose "
            "clients were throttled, by quota.",
        },
    ),
    *rows(
        GAUGE,
        "",
        {
            "odradek_quota_buckets": "Number of clients whose rates are measured for quotas, each counted once for each quota.",
            "odradek_quota_buckets_limit": "Largest value of odradek_quota_buckets.",
            "odradek_quota_throttled_clients": "Number of clients that are throttled now, each counted once for each quota.",
        },
    ),
    *rows(
        COUNTER,
        "",
        {
            "odradek_quota_overflows_total": "Number of times that a client had to share its quota with other clients of its "
            "address, because odradek_quota_buckets reached its limit.",
            "odradek_quota_evictions_total": "Number of clients whose measured rates were dropped because another client "
            "needed the memory: clients that had sent nothing within the windows of a rate, or those of an address that used "
            "most of the places.",
        },
    ),
)
