"""The settings with which a broker of a cluster connects to others, from its configuration.

Pure functions, which need no TLS library. They are called at the start, for each change at run time, and in the processes that
connect.
"""

from typing import NamedTuple

from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError
from odradek.config.listeners import ENCRYPTED
from odradek.config.table import LISTENER_PREFIX
from odradek.security import jaas
from odradek.security.sasl.client import MECHANISMS, PLAIN, Credentials
from odradek.security.sasl.mechanism import OAUTHBEARER
from odradek.security.sasl.token_settings import Grant, Renewal, TokenSource, token_source_of

MECHANISM, JAAS, ENABLED = "sasl.mechanism.inter.broker.protocol", "sasl.jaas.config", "sasl.enabled.mechanisms"
HOST_CHECK = "ssl.endpoint.identification.algorithm"
_MODULES = {PLAIN: "PlainLoginModule", OAUTHBEARER: "OAuthBearerLoginModule"}
LOGIN_HANDLER, RETRIEVER = "sasl.login.callback.handler.class", "sasl.oauthbearer.jwt.retriever.class"
_CLASSES = {
    LOGIN_HANDLER: ("OAuthBearerLoginCallbackHandler",),
    RETRIEVER: ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever"),
}
"""Kafka's classes that do what this broker does anyway."""
_RENEWAL = {
    "sasl.login.refresh.window.factor": (0.5, 1.0),
    "sasl.login.refresh.window.jitter": (0.0, 0.25),
    "sasl.login.refresh.min.period.seconds": (0, 900),
    "sasl.login.refresh.buffer.seconds": (0, 3600),
    "sasl.login.retry.backoff.ms": (0, 1 << 62),
    "sasl.login.retry.backoff.max.ms": (0, 1 << 62),
}
"""Keys of `Renewal`, in its order, with their least and greatest values."""


class PeerSettings(NamedTuple):
    """:param listener: the name of the inter-broker listener. :param verifies_host: whether the certificate of another broker
    must contain the host or address to which this broker connects. :param credentials: None without SASL; a `TokenSource` for
    OAUTHBEARER. :param renewal: of tokens."""

    listener: str
    protocol: str
    verifies_host: bool
    credentials: Credentials | TokenSource | None
    renewal: Renewal = Renewal()


def settings_of(config: BrokerConfig) -> PeerSettings:
    """The settings of the inter-broker listener. Raises ConfigError."""
    listener = config.inter_broker_listener
    credentials = _credentials(config, listener.name) if listener.protocol.startswith("SASL_") else None
    verifies_host = True
    if listener.protocol in ENCRYPTED:
        name = config.listener_key(listener.name, HOST_CHECK)
        algorithm = str(config.listener_value(listener.name, HOST_CHECK) or "")
        if algorithm.lower() not in ("https", ""):
            raise error_of(config, name, algorithm, "must be https, or empty for no check of the host name")
        verifies_host = bool(algorithm)
    renewal = _renewal(config, listener.name) if isinstance(credentials, TokenSource) else Renewal()
    return PeerSettings(listener.name, listener.protocol, verifies_host, credentials, renewal)


def error_of(config: BrokerConfig, name: str, value: str | None, reason: str) -> ConfigError:
    return ConfigError(name, value, reason, config.where(name) if config.is_set(name) else "")


def _credentials(config: BrokerConfig, listener: str) -> Credentials | TokenSource:
    mechanism = str(config[MECHANISM])
    if mechanism == "GSSAPI":
        default = "" if config.is_set(MECHANISM) else " (the default)"
        reason = f"is not supported: there is no Kerberos in this broker; must be one of {', '.join(MECHANISMS)}"
        raise error_of(config, MECHANISM, mechanism + default, reason)
    if mechanism not in MECHANISMS:
        raise error_of(config, MECHANISM, mechanism, f"must be one of {', '.join(MECHANISMS)}")
    enabled = config.listener_value(listener, ENABLED)
    if not isinstance(enabled, tuple) or mechanism not in enabled:
        name = config.listener_key(listener, ENABLED)
        shown = ",".join(enabled) if isinstance(enabled, tuple) else None
        reason = (
            f"must contain {mechanism}, because {MECHANISM} names it, and other brokers log in at listener {listener}"
        )
        raise error_of(config, name, shown, reason)
    name = f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{JAAS}"
    expected = _MODULES.get(mechanism, "ScramLoginModule")
    text = config.get(name)
    if text is None:
        options = "" if mechanism == OAUTHBEARER else ' username="..." password="..."'
        form = f"{expected} required{options};"
        raise error_of(config, name, None, f"must be set: this broker logs in at other brokers with it: ...{form}")
    try:
        module = jaas.parse(str(text))
    except jaas.JaasError as error:
        raise error_of(config, name, "[hidden]", str(error)) from None
    if module.simple_name != expected:
        reason = f"must name the login module {expected}, not {module.simple_name}"
        raise error_of(config, name, "[hidden]", reason)
    if mechanism == OAUTHBEARER:
        return _token_source(config, listener, name, module)
    missing = [option for option in ("username", "password") if option not in module.options]
    if missing:
        reason = f"must have the option {missing[0]}: this broker logs in at other brokers with username and password"
        raise error_of(config, name, "[hidden]", reason)
    return Credentials(mechanism, module.options["username"], module.options["password"])


def _token_source(config: BrokerConfig, listener: str, jaas_name: str, module: jaas.LoginModule) -> TokenSource:
    def refuse(key: str, value: str | None, reason: str) -> ConfigError:
        return error_of(config, _name(config, listener, key, jaas_name), value, reason)

    for key, classes in _CLASSES.items():
        value = _text(config, listener, key) or ""
        if value and value.rpartition(".")[2] not in classes:
            reason = f"is not supported between brokers; leave it unset, or name Kafka's {' or '.join(classes)}"
            raise refuse(key, value, reason)
    return token_source_of(lambda key: _text(config, listener, key), module, refuse)


def _name(config: BrokerConfig, listener: str, key: str, jaas_name: str) -> str:
    return jaas_name if key == JAAS else config.listener_key(listener, key, OAUTHBEARER)


def _text(config: BrokerConfig, listener: str, key: str) -> str | None:
    value = config.listener_value(listener, key, OAUTHBEARER)
    return None if value is None else str(value)


def _renewal(config: BrokerConfig, listener: str) -> Renewal:
    values: list[float] = []
    for key, (least, most) in _RENEWAL.items():
        value = config.listener_value(listener, key, OAUTHBEARER)
        if not isinstance(value, int | float) or not least <= value <= most:
            limits = f"at least {least}" if most > 3600 else f"from {least} to {most}"
            raise error_of(config, config.listener_key(listener, key, OAUTHBEARER), str(value), f"must be {limits}")
        values.append(value)
    factor, jitter, least_s, buffer_s, backoff_ms, most_backoff_ms = values
    return Renewal(factor, jitter, least_s, buffer_s, int(backoff_ms), int(most_backoff_ms))


def is_protected(config: BrokerConfig) -> bool:
    """Whether this broker has a cluster whose brokers use TLS or SASL among themselves."""
    return config.clustered and config.inter_broker_listener.protocol != "PLAINTEXT"


def check(config: BrokerConfig) -> list[str]:
    """Raise ConfigError if the broker could not connect to others with this configuration. Returns lines with what an operator
    must know about it."""
    if not is_protected(config):
        return []
    source = settings_of(config).credentials
    if not isinstance(source, TokenSource) or not isinstance(source.source, Grant):
        return []
    grant = source.source
    if grant.url.startswith("https:"):
        from odradek.security.sasl.token_grant import check_trust  # with HTTP, which other brokers do not need

        check_trust(grant)
    return [grant.warning] if grant.warning else []
