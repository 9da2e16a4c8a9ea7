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

MECHANISM, JAAS, ENABLED = "sasl.mechanism.inter.broker.protocol", "sasl.jaas.config", "sasl.enabled.mechanisms"
HOST_CHECK = "ssl.endpoint.identification.algorithm"
_NOT_YET = ("GSSAPI", "OAUTHBEARER")
_MODULES = {PLAIN: "PlainLoginModule"}


class PeerSettings(NamedTuple):
    """:param listener: the name of the inter-broker listener. :param verifies_host: whether the certificate of another broker
    must contain the host or address to which this broker connects. :param credentials: None without SASL."""

    listener: str
    protocol: str
    verifies_host: bool
    credentials: Credentials | None


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
    return PeerSettings(listener.name, listener.protocol, verifies_host, credentials)


def error_of(config: BrokerConfig, name: str, value: str | None, reason: str) -> ConfigError:
    return ConfigError(name, value, reason, config.where(name) if config.is_set(name) else "")


def _credentials(config: BrokerConfig, listener: str) -> Credentials:
    mechanism = str(config[MECHANISM])
    if mechanism in _NOT_YET:
        default = "" if config.is_set(MECHANISM) else " (the default)"
        reason = f"is not supported between brokers yet; must be one of {', '.join(MECHANISMS)}"
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
        form = f'{expected} required username="..." password="...";'
        raise error_of(config, name, None, f"must be set: this broker logs in at other brokers with it: ...{form}")
    try:
        module = jaas.parse(str(text))
    except jaas.JaasError as error:
        raise error_of(config, name, "[hidden]", str(error)) from None
    if module.simple_name != expected:
        reason = f"must name the login module {expected}, not {module.simple_name}"
        raise error_of(config, name, "[hidden]", reason)
    missing = [option for option in ("username", "password") if option not in module.options]
    if missing:
        reason = f"must have the option {missing[0]}: this broker logs in at other brokers with username and password"
        raise error_of(config, name, "[hidden]", reason)
    return Credentials(mechanism, module.options["username"], module.options["password"])


def is_protected(config: BrokerConfig) -> bool:
    """Whether this broker has a cluster whose brokers use TLS or SASL among themselves."""
    return config.clustered and config.inter_broker_listener.protocol != "PLAINTEXT"


def check(config: BrokerConfig) -> None:
    """Raise ConfigError if the broker could not connect to others with this configuration."""
    if is_protected(config):
        settings_of(config)
