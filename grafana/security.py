"""Dashboard of security: TLS handshakes and certificates, logins, decisions of the authorizer, and throttled clients."""

from grafana.board import BROKER, RATE, Board, Row, largest, rate
from grafana.panels import ORANGE, RED, YELLOW, Link, Query, bars, number, rows, time_series

UID = "odradek-security"

LOGINS = "kafka_server_socket_server_metrics"
CERTIFICATE_LEFT = f"odradek_tls_certificate_expiry_timestamp_seconds{{{BROKER}}} - time()"
AUTHORITY_LEFT = f"odradek_tls_truststore_expiry_timestamp_seconds{{{BROKER}}} - time()"
QUOTA = f'{BROKER},quota=~"producer_byte_rate|consumer_byte_rate"'
DAY_S = 86400
DENIED_STEPS = [(1, YELLOW), (10, RED)]
TO_CLIENT = Link("Client ${__field.labels.client_id}", "odradek-clients", {"client": "client_id"})


def _used(metric: str, quota: str) -> str:
    """The rate of each client with a byte rate, divided by its limit."""
    limit = f'odradek_quota_limit{{{BROKER},quota="{quota}"}}'
    return f"max by (user, client_id) ({metric}{{{BROKER}}}) / max by (user, client_id) ({limit})"


# fmt: off
NOW = Row("Now", 4, [
    number(4, "Next certificate expires in", "s",
        "Time until the first certificate of a listener expires. A negative time: it has expired, and clients that "
        "verify certificates cannot connect.",
        Query(f"min({CERTIFICATE_LEFT})", "left")),
    number(4, "Failed logins", "none",
        "Logins with SASL that failed in the selected time range, and renewals of logins.",
        Query(
            f"sum(increase({LOGINS}_failed_authentication_total{{{BROKER}}}[$__range])) + "
            f"(sum(increase({LOGINS}_failed_reauthentication_total{{{BROKER}}}[$__range])) or vector(0))",
            "logins",
        ), steps=[(1, YELLOW)], decimals=0),
    number(4, "Failed handshakes", "none",
        "Connections to listeners with TLS or SASL that were closed in the selected time range because the TLS "
        "handshake failed, or the client did not authenticate in time.",
        Query(f"sum(increase(odradek_failed_authentications_total{{{BROKER}}}[$__range]))", "connections"),
        steps=[(1, YELLOW)], decimals=0),
    number(4, "Denied operations", "none",
        "Operations that the authorizer denied in the selected time range. The broker's log names them (logger "
        "odradek.authorizer).",
        Query(f'sum(increase(odradek_authorizations_total{{{BROKER},result="denied"}}[$__range]))', "operations"),
        steps=[(1, YELLOW)], decimals=0),
    number(4, "ACLs", "none",
        "Access control lists that are in force. 0 without an authorizer.",
        Query(f"max(odradek_acls{{{BROKER}}})", "ACLs")),
    number(4, "Throttled clients", "none",
        "Clients that are throttled now, each counted once for each quota.",
        Query(f"sum(odradek_quota_throttled_clients{{{BROKER}}})", "clients"), steps=[(1, ORANGE)]),
])

TLS = Row("TLS", 8, [
    time_series(6, "Handshakes by version", "ops",
        "TLS handshakes per second that were completed, by TLS version.",
        Query(rate("odradek_tls_handshakes_total", "version"), "{{version}}"), stacked=True),
    time_series(6, "Failed handshakes", "cps",
        "Connections per second that were closed because the TLS handshake failed, or the client did not authenticate "
        "in time. timeout: the part that did not authenticate in time, or for which there were too many others.",
        Query(rate("odradek_failed_authentications_total"), "all"),
        Query(rate("odradek_unauthenticated_connections_closed_total"), "timeout"), steps=[(1, ORANGE)]),
    time_series(6, "Time of handshakes", "percentunit",
        "Time that each worker spends on TLS handshakes, per second. Resumed sessions cost little.",
        Query(rate("odradek_tls_handshake_seconds_total", "instance, worker"), "{{instance}} worker {{worker}}")),
    time_series(6, "Resumed handshakes", "percentunit",
        "The part of the handshakes that resumed an earlier session.",
        Query(f"{rate('odradek_tls_resumed_handshakes_total')} / {rate('odradek_tls_handshakes_total')}", "resumed"),
        high=1),
    time_series(12, "Certificates", "s",
        "Time until the certificate of each listener, or one of its chain, expires. The alert "
        "OdradekCertificateExpires fires 14 days before.",
        Query(CERTIFICATE_LEFT, "{{instance}} {{listener}}"), low=None),
    time_series(12, "Authorities", "s",
        "Time until the first authority in the trust store of each listener expires. Only listeners that ask for "
        "certificates, and the inter-broker listener. The alert OdradekAuthorityExpires fires 14 days before.",
        Query(AUTHORITY_LEFT, "{{instance}} {{listener}}"), low=None),
    time_series(12, "Replaced certificates", "ops",
        "Replacements of key stores and trust stores while the broker runs, per second. failed: the broker could not "
        "use the new files, and the former certificates stay in use.",
        Query(rate("odradek_tls_reloads_total"), "replaced"),
        Query(rate("odradek_tls_reload_failures_total"), "failed")),
    time_series(12, "Files that cannot be used", "none",
        "Listeners whose changed key store or trust store the broker cannot use, so that the former one stays in use. "
        "The alert OdradekCertificateReloadFailed fires.",
        Query(f"sum by (instance) (odradek_tls_reload_failed{{{BROKER}}})", "{{instance}}"), steps=[(1, RED)]),
])

LOGIN = Row("Logins with SASL", 8, [
    time_series(8, "Logins", "ops",
        "Logins per second that succeeded, by listener and mechanism, without renewals.",
        Query(
            rate(f"{LOGINS}_successful_authentication_total", "listener", "mechanism"),
            "{{listener}} {{mechanism}}",
        ), stacked=True),
    time_series(8, "Failed logins", "ops",
        "Logins per second that failed, by listener and mechanism. Mechanism unknown: the client named none that the "
        "listener has, or no login began.",
        Query(rate(f"{LOGINS}_failed_authentication_total", "listener", "mechanism"), "{{listener}} {{mechanism}}"),
        steps=[(1, ORANGE)]),
    time_series(8, "Renewals", "ops",
        "Renewals of logins per second (KIP-368), and connections that were closed because their login was not "
        "renewed in time.",
        Query(rate(f"{LOGINS}_successful_reauthentication_total"), "renewed"),
        Query(f"{rate(f'{LOGINS}_failed_reauthentication_total')} or vector(0)", "failed"),
        Query(f"{rate(f'{LOGINS}_expired_connections_killed_total')} or vector(0)", "closed")),
    time_series(12, "Delegation tokens", "none",
        "Delegation tokens of the cluster that have not expired. 0 without delegation.token.secret.key.",
        Query(f"max(odradek_delegation_tokens{{{BROKER}}})", "tokens")),
    time_series(12, "Changes of delegation tokens", "ops",
        "Delegation tokens per second that were created, renewed, and removed because somebody asked for it or they "
        "had expired.",
        Query(rate("odradek_delegation_tokens_created_total"), "created"),
        Query(rate("odradek_delegation_tokens_renewed_total"), "renewed"),
        Query(rate("odradek_delegation_tokens_expired_total"), "removed")),
])

PARTNERS = Row("Other brokers and identity providers", 8, [
    time_series(8, "Failing logins at other brokers", "none",
        "Addresses of other brokers at which the brokers could not authenticate their last connection. 0 without a "
        "cluster. The alert OdradekBrokerLoginsFail fires.",
        Query(f"sum(odradek_failing_broker_logins{{{BROKER}}}) or vector(0)", "addresses"), steps=[(1, RED)]),
    time_series(8, "Failed logins at other brokers", "cps",
        "Connections to other brokers per second that could not be authenticated: the TLS handshake or the login "
        "failed, or there was no token.",
        Query(rate("odradek_failed_broker_logins_total", "instance"), "{{instance}}")),
    time_series(8, "Keys of identity providers", "s",
        "Age of the keys with which tokens are checked, since the last successful read. 0 without OAUTHBEARER. The "
        "alert OdradekIdentityProviderUnreadable fires if reads fail and the keys are older than 15 minutes.",
        Query(f"time() - min(odradek_jwks_read_timestamp_seconds{{{BROKER}}} > 0) or vector(0)", "age"),
        steps=[(900, ORANGE)]),
])

ACCESS = Row("Access control", 8, [
    time_series(12, "Decisions", "ops",
        "Operations per second that the authorizer allowed and denied. Decisions that only hide names in lists are "
        "not counted.",
        Query(rate("odradek_authorizations_total", "result"), "{{result}}"), stacked=True),
    time_series(12, "Denied operations by broker", "ops",
        "Operations per second that the authorizer of each broker denied.",
        Query(
            f'sum by (instance) (rate(odradek_authorizations_total{{{BROKER},result="denied"}}[{RATE}]))',
            "{{instance}}",
        ), steps=DENIED_STEPS),
])

QUOTAS = Row("Quotas", 9, [
    time_series(8, "Throttled requests", "reqps",
        "Requests per second whose clients were throttled, by quota; for connection_creation_rate, new connections.",
        Query(rate("odradek_quota_throttled_requests_total", "quota"), "{{quota}}"), stacked=True),
    time_series(8, "Throttle time", "s",
        "Throttle time that each client receives per second. The fifteen clients with the most.",
        Query(
            largest(
                15, rate("odradek_quota_throttled_seconds_total", "user", "client_id"), "user", "client_id"
            ),
            "{{user}} {{client_id}}",
        ), link=TO_CLIENT),
    time_series(8, "Remaining throttle time", "ms",
        "Time for which the client that waits longest is still throttled, by kind of quota.",
        Query(f"max(kafka_server_produce_throttle_time{{{BROKER}}})", "produce"),
        Query(f"max(kafka_server_fetch_throttle_time{{{BROKER}}}) or vector(0)", "fetch"),
        Query(f"max(kafka_server_request_throttle_time{{{BROKER}}}) or vector(0)", "request time")),
    time_series(12, "Measured clients", "percentunit",
        "Clients whose rates the broker measures for quotas, relative to the largest possible number. At 100% new "
        "clients share the quota of other clients of their address; the alert OdradekQuotasShared fires.",
        Query(
            f"max by (instance) (odradek_quota_buckets{{{BROKER}}} / odradek_quota_buckets_limit{{{BROKER}}})",
            "{{instance}}",
        ), steps=[(1, RED)], high=1),
    time_series(12, "Clients that lost their own rate", "ops",
        "Clients per second that share a quota because there was no place to measure them, and clients whose measured "
        "rates were dropped to make room for others.",
        Query(rate("odradek_quota_overflows_total"), "share a quota"),
        Query(rate("odradek_quota_evictions_total"), "dropped")),
    bars(12, "Rates against limits", "percentunit",
        "Bytes per second of the ten clients that use most of their producer_byte_rate, relative to the limit.",
        Query(f"topk(10, {_used('kafka_server_produce_byte_rate', 'producer_byte_rate')})", "{{user}} {{client_id}}"),
        steps=[(0.8, YELLOW), (1, RED)], high=1.5),
    rows(12, "Clients with a byte rate", "short",
        "Limits of clients with a producer_byte_rate or a consumer_byte_rate, and the throttle time that they "
        "received in the selected time range.",
        {"quota": "Quota", "user": "User", "client_id": "Client"},
        Query(f"max by (quota, user, client_id) (odradek_quota_limit{{{QUOTA}}})", "Limit", unit="Bps"),
        Query(
            f"sum by (quota, user, client_id) (increase(odradek_quota_throttled_seconds_total{{{QUOTA}}}[$__range]))",
            "Throttled",
            unit="s",
        ), steps={"Throttled": [(1, ORANGE)]}),
])

BOARD = Board(
    UID,
    "Odradek / Security and quotas",
    "TLS handshakes and certificates, logins, decisions of the authorizer, and throttled clients.",
    [NOW, TLS, LOGIN, PARTNERS, ACCESS, QUOTAS],
)
