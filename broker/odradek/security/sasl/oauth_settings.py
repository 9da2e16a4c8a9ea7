"""The settings of OAUTHBEARER for a listener, from the broker's configuration. Pure functions, used by `settings`."""

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError, raise_all
from odradek.security.jaas import LoginModule
from odradek.security.sasl.mechanism import OAUTHBEARER

URL = "sasl.oauthbearer.jwks.endpoint.url"
REFRESH = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
BACKOFF, MOST_BACKOFF = (
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
)
AUDIENCE, ISSUER = "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer"
SKEW = "sasl.oauthbearer.clock.skew.seconds"
SCOPE_CLAIM, SUB_CLAIM = "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name"
HANDLER = "sasl.server.callback.handler.class"
VALIDATOR = "OAuthBearerValidatorCallbackHandler"
SCHEMES = ("https", "http", "file")
TRUST = ("ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.password", "ssl.truststore.certificates")
"""Options of the login module that name the certificates that an https endpoint must be signed with, as in Kafka."""


class KeySource(NamedTuple):
    """Where the keys of an identity provider are, and when they are read. Times in ms. ``trust``: the values of `TRUST`."""

    url: str
    refresh_ms: int
    backoff_ms: int
    most_backoff_ms: int
    trust: tuple[str | None, ...] = (None,) * len(TRUST)

    def __repr__(self) -> str:
        return f"<KeySource {self.url}>"


class OAuthSettings(NamedTuple):
    """The settings of a listener. ``audience``: empty if no token may have one; ``issuer``: None if any is accepted."""

    source: KeySource
    audience: tuple[str, ...] = ()
    issuer: str | None = None
    skew_s: int = 30
    scope_claim: str = "scope"
    sub_claim: str = "sub"


def oauth_settings_of(config: BrokerConfig, listener: str, module: LoginModule | None) -> OAuthSettings:
    """The settings of a listener that offers OAUTHBEARER. Raises ConfigError with all errors.

    :param module: of its sasl.jaas.config, if it has one.
    """
    errors: list[ConfigError] = []

    def refuse(key: str, reason: str, shown: bool = True) -> None:
        name = config.listener_key(listener, key, OAUTHBEARER)
        value = config.listener_value(listener, key, OAUTHBEARER)
        text = None if value is None or not shown else str(value)
        errors.append(ConfigError(name, text, reason, config.where(name) if config.is_set(name) else ""))

    def number(key: str, least: int) -> int:
        value = config.listener_value(listener, key, OAUTHBEARER)
        if not isinstance(value, int) or value < least:
            refuse(key, f"must be at least {least}")
            return least
        return value

    def text(key: str) -> str:
        return str(config.listener_value(listener, key, OAUTHBEARER) or "").strip()

    handler = text(HANDLER)
    if handler and handler.rpartition(".")[2] != VALIDATOR:
        refuse(HANDLER, f"is not supported with OAUTHBEARER; leave it unset, or name Kafka's {VALIDATOR}")
    url = text(URL)
    reason = url_error(url)
    if not url:
        refuse(
            URL,
            f"must be set, because listener {listener} offers OAUTHBEARER: the broker accepts only tokens that are signed with "
            "a key that the identity provider publishes at this URL",
            shown=False,
        )
    elif reason:
        refuse(URL, reason)
    backoff, most_backoff = number(BACKOFF, 0), number(MOST_BACKOFF, 0)
    if most_backoff < backoff:
        refuse(MOST_BACKOFF, f"must be at least {BACKOFF}={backoff}")
    audience = config.listener_value(listener, AUDIENCE, OAUTHBEARER)
    for key in (SCOPE_CLAIM, SUB_CLAIM):
        if not text(key):
            refuse(key, "must be the name of a claim")
    settings = OAuthSettings(
        KeySource(url, number(REFRESH, 1), backoff, most_backoff, tuple(_options(module).get(name) for name in TRUST)),
        audience if isinstance(audience, tuple) else (),
        text(ISSUER) or None,
        number(SKEW, 0),
        text(SCOPE_CLAIM),
        text(SUB_CLAIM),
    )
    raise_all(errors)
    return settings


def _options(module: LoginModule | None) -> dict[str, str]:
    return {} if module is None else dict(module.options)


def url_error(url: str) -> str:
    """What is wrong with a URL of keys or tokens; empty if nothing is."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme not in SCHEMES:
        return f"must begin with {', '.join(f'{scheme}:' for scheme in SCHEMES)}"
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            return "must name a file by its absolute path, such as file:///etc/odradek/jwks.json"
        return ""
    if not parts.hostname or port == 0 or any(not "!" <= char <= "~" for char in url):
        return "must contain the host name of the identity provider, and only printable ASCII characters"
    if parts.username is not None or parts.password is not None:
        return "must not contain a user or a password"
    return ""


def path_of(url: str) -> str:
    """The path that a file URL names."""
    return unquote(urlsplit(url).path)
