"""The SASL settings of a listener, from the broker's configuration.

Pure functions. They are called at the start, for each change at run time, and in each worker.
"""

from collections.abc import Mapping
from typing import NamedTuple

from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError, raise_all
from odradek.config.table import LISTENER_PREFIX
from odradek.security import jaas
from odradek.security.sasl import oauthbearer, plain
from odradek.security.sasl.mechanism import NAMES, OAUTHBEARER, Mechanism
from odradek.security.sasl.oauth_settings import URL, KeySource, OAuthSettings, oauth_settings_of
from odradek.security.sasl.scram import Scram
from odradek.security.sasl.scram_credential import BY_NAME

ENABLED, JAAS, LIFETIME = "sasl.enabled.mechanisms", "sasl.jaas.config", "connections.max.reauth.ms"
KAFKAS = ("GSSAPI", *NAMES)
MODULES = {"PLAIN": plain.MODULE, OAUTHBEARER: oauthbearer.MODULE}
SCRAM_MODULE = "ScramLoginModule"
SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")


class SaslSettings(NamedTuple):
    """The settings of a listener.

    :param mechanisms: the enabled mechanisms that the broker supports. :param missing: those that it does not support: GSSAPI.
    :param users: see `plain.users_of`. :param lifetimes: connections.max.reauth.ms by mechanism; 0: unlimited.
    :param oauth: the settings of OAUTHBEARER; None if it is not enabled.
    """

    mechanisms: tuple[str, ...]
    missing: tuple[str, ...]
    users: Mapping[str, bytes]
    lifetimes: Mapping[str, int]
    oauth: OAuthSettings | None = None

    def __repr__(self) -> str:
        return f"<SaslSettings: {', '.join(self.mechanisms)}>"

    def make(self, mechanism: str) -> Mechanism:
        """A new login attempt with one of `mechanisms`, except OAUTHBEARER, which needs the keys of a process."""
        return Scram(BY_NAME[mechanism]) if mechanism in BY_NAME else plain.Plain(self.users)

    def lifetime_ms(self, mechanism: str) -> int:
        """The lifetime of a session; 0: unlimited."""
        return self.lifetimes.get(mechanism, 0)


def settings_of(config: BrokerConfig, listener: str) -> SaslSettings:
    """The settings of a SASL listener. Raises ConfigError."""
    mechanisms = _mechanisms(config, listener)
    errors: list[ConfigError] = []
    users: Mapping[str, bytes] = {}
    oauth: OAuthSettings | None = None
    for mechanism in mechanisms:
        try:
            module = _module(config, listener, mechanism)
            if module is not None and mechanism == "PLAIN":
                users = plain.users_of(module)
            elif mechanism == OAUTHBEARER:
                oauth = oauth_settings_of(config, listener, module)
        except ConfigError as error:
            errors += error.errors
    raise_all(errors)
    missing = tuple(name for name in _enabled(config, listener) if name not in mechanisms)
    lifetimes = {mechanism: _lifetime(config, listener, mechanism) for mechanism in mechanisms}
    return SaslSettings(mechanisms, missing, users, lifetimes, oauth)


def key_sources(config: BrokerConfig) -> dict[str, KeySource]:
    """Where the keys for OAUTHBEARER are, by listener: of all SASL listeners with a URL of keys, also of those that do not
    offer the mechanism now, because `sasl.enabled.mechanisms` can change at run time. Settings with errors are left out."""
    sources: dict[str, KeySource] = {}
    for listener in config.listeners:
        if listener.protocol in SASL_PROTOCOLS and config.listener_value(listener.name, URL, OAUTHBEARER):
            try:
                module = _module(config, listener.name, OAUTHBEARER)
                sources[listener.name] = oauth_settings_of(config, listener.name, module).source
            except ConfigError:
                continue  # `settings_of` reports it if the listener offers the mechanism
    return sources


def all_settings(config: BrokerConfig) -> dict[str, SaslSettings]:
    """The settings of all SASL listeners, by listener name. Raises ConfigError with all errors."""
    settings: dict[str, SaslSettings] = {}
    errors: list[ConfigError] = []
    for listener in config.listeners:
        if listener.protocol in SASL_PROTOCOLS:
            try:
                settings[listener.name] = settings_of(config, listener.name)
            except ConfigError as error:
                errors += error.errors
    raise_all(errors)
    return settings


def _enabled(config: BrokerConfig, listener: str) -> tuple[str, ...]:
    value = config.listener_value(listener, ENABLED)
    return value if isinstance(value, tuple) else ()


def _mechanisms(config: BrokerConfig, listener: str) -> tuple[str, ...]:
    name = config.listener_key(listener, ENABLED)
    enabled = _enabled(config, listener)
    where = config.where(name) if config.is_set(name) else ""
    unknown = [mechanism for mechanism in enabled if mechanism not in KAFKAS]
    if unknown:
        raise ConfigError(name, ",".join(enabled), f"must contain only {', '.join(KAFKAS)}, not {unknown[0]!r}", where)
    supported = tuple(dict.fromkeys(mechanism for mechanism in enabled if mechanism in NAMES))
    if not supported:
        default = "" if config.is_set(name) else " (the default)"
        raise ConfigError(
            name,
            ",".join(enabled) + default,
            f"listener {listener} has the protocol {_protocol(config, listener)}, but none of its mechanisms is supported; "
            f"must contain at least one of {', '.join(NAMES)}",
            where,
        )
    return supported


def _protocol(config: BrokerConfig, listener: str) -> str:
    return next((one.protocol for one in config.listeners if one.name == listener), "SASL_PLAINTEXT")


def _module(config: BrokerConfig, listener: str, mechanism: str) -> jaas.LoginModule | None:
    """The login module of a mechanism; None if it has none: only PLAIN needs one."""
    name = f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{JAAS}"
    text = config.get(name)
    expected = MODULES.get(mechanism, SCRAM_MODULE)
    if text is None:
        if mechanism != "PLAIN":
            return None
        raise ConfigError(
            name,
            None,
            f"must be set, because {ENABLED} of listener {listener} contains PLAIN: "
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME="PASSWORD";',
        )
    try:
        module = jaas.parse(str(text))
    except jaas.JaasError as error:
        raise ConfigError(name, "[hidden]", str(error), config.where(name)) from None
    if module.simple_name != expected:
        raise ConfigError(
            name, "[hidden]", f"must name the login module {expected}, not {module.simple_name}", config.where(name)
        )
    return module


def _lifetime(config: BrokerConfig, listener: str, mechanism: str) -> int:
    value = config.listener_value(listener, LIFETIME, mechanism=mechanism.lower())
    return max(0, value) if isinstance(value, int) else 0
