"""The settings of a client that logs in with OAUTHBEARER (KIP-768): how it gets its tokens. Pure functions.

Kafka's keys: `sasl.oauthbearer.token.endpoint.url`, and the client's id, secret and scope in
`sasl.oauthbearer.client.credentials.client.id`, `.client.secret` and `sasl.oauthbearer.scope`. As in Kafka, an option
`clientId`, `clientSecret` or `scope` of the JAAS line is used where the key is not set. The commands of `odradek` and the
connections between brokers have the same settings; the caller reads them from its configuration.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from odradek.backoff import Backoff
from odradek.config.errors import ConfigError
from odradek.security.hosts import LOOPBACK
from odradek.security.jaas import LoginModule
from odradek.security.sasl.client import check_extensions
from odradek.security.sasl.oauth_settings import TRUST, path_of, url_error

URL = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE = "sasl.oauthbearer.scope"
ENCODES = "sasl.oauthbearer.header.urlencode"
CONNECT, READ = "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms"
JAAS = "sasl.jaas.config"
HIDDEN = "[hidden]"
EXTENSION = "extension_"
LIMIT_S = 10.0
LEAST_RETRY_S = 0.1

ReadSetting = Callable[[str], str | None]
"""The text of a key; None if it is not set."""
Refuse = Callable[[str, str | None, str], ConfigError]
"""Makes the error for a key, the shown value and the reason."""


class Grant(NamedTuple):
    """How a client gets tokens of an identity provider: the grant of client credentials (RFC 6749, 4.4).

    :param encodes: whether id and secret are URL-encoded in the header. :param trust: the values of `TRUST`. :param limit_s: of
        one request.
    """

    url: str
    client_id: str
    client_secret: str
    scope: str = ""
    encodes: bool = False
    trust: tuple[str | None, ...] = (None,) * len(TRUST)
    limit_s: float = LIMIT_S

    def __repr__(self) -> str:
        return f"<Grant for {self.client_id} at {self.url}>"

    @property
    def warning(self) -> str:
        """What an operator must know about the URL, for a line that begins with its key; empty if nothing."""
        parts = urlsplit(self.url)
        if parts.scheme != "http" or parts.hostname in LOOPBACK:
            return ""
        return (
            f"{URL}={self.url}: the secret of client {self.client_id} and its tokens are sent to {parts.hostname} without "
            "encryption: whoever reads them on the way can log in as this client; use https"
        )


class TokenSource(NamedTuple):
    """Where tokens come from. :param source: a grant, or the path of a file with a token. :param extensions: sent with the
    token (RFC 7628): names and values."""

    source: Grant | str
    extensions: tuple[tuple[str, str], ...] = ()

    @property
    def user(self) -> str:
        """Who logs in, for messages."""
        if isinstance(self.source, Grant):
            return f"client {self.source.client_id}"
        return f"the principal of the token in {self.source}"


class Renewal(NamedTuple):
    """When a process that keeps a token gets the next one, as Kafka's `sasl.login.refresh.*` and `sasl.login.retry.*`.

    :param factor: the part of the lifetime after which it does so; a random part of `jitter` of the lifetime is added.
    :param least_s: at the earliest; :param buffer_s: at the latest so long before the end. Both are ignored for a lifetime that
        is not longer than both together. :param backoff_ms: after a failure; doubled after each further one, up to
        `most_backoff_ms`.
    """

    factor: float = 0.8
    jitter: float = 0.05
    least_s: float = 60.0
    buffer_s: float = 300.0
    backoff_ms: int = 100
    most_backoff_ms: int = 10_000

    def after_s(self, lifetime_s: float, random: float = 0.0) -> float:
        """The time in seconds after which a new token is replaced. :param random: from 0 to 1."""
        after_s = lifetime_s * (self.factor + self.jitter * random)
        if self.least_s + self.buffer_s < lifetime_s:
            after_s = max(self.least_s, min(after_s, lifetime_s - self.buffer_s))
        return after_s

    def retry_s(self, failed_in_row: int) -> float:
        """The time in seconds until the next attempt after so many failures."""
        return Backoff(self.backoff_ms / 1000, self.most_backoff_ms / 1000, shortest=LEAST_RETRY_S).after(failed_in_row)


def token_source_of(
    read: ReadSetting, module: LoginModule, refuse: Refuse = ConfigError, encodes: bool = False
) -> TokenSource:
    """Raises ConfigError, which shows no secret.

    :param module: the OAuthBearerLoginModule of the JAAS line. :param encodes: see `Grant`.
    """
    url = (read(URL) or "").strip()
    if not url:
        reason = (
            "must be set: the URL of the identity provider's token endpoint, or file:///PATH of a file with a token"
        )
        raise refuse(URL, None, reason)
    if reason := url_error(url):
        raise refuse(URL, HIDDEN if "@" in url else url, reason)  # before an @ may be a password
    extensions = {
        name.removeprefix(EXTENSION): value for name, value in module.options.items() if name.startswith(EXTENSION)
    }
    try:
        check_extensions(extensions)
    except ValueError as error:
        raise refuse(JAAS, HIDDEN, str(error)) from None
    source = path_of(url) if urlsplit(url).scheme == "file" else _grant(url, read, module.options, refuse, encodes)
    return TokenSource(source, tuple(sorted(extensions.items())))


def _grant(url: str, read: ReadSetting, options: Mapping[str, str], refuse: Refuse, encodes: bool) -> Grant:
    def value(option: str, key: str) -> str:
        return (read(key) or options.get(option) or "").strip()

    client_id, secret = value("clientId", CLIENT_ID), value("clientSecret", CLIENT_SECRET)
    for text, key, option in ((client_id, CLIENT_ID, "clientId"), (secret, CLIENT_SECRET, "clientSecret")):
        if not text:
            raise refuse(key, None, f"must be set, or the option {option} of {JAAS}, because {URL} is set")
    limits = []
    for key in (CONNECT, READ):
        if limit := read(key):
            if not (limit.isdecimal() and int(limit)):
                raise refuse(key, limit, "must be a number of ms above 0")
            limits.append(int(limit))
    trust = tuple(options.get(name) for name in TRUST)
    limit_s = sum(limits) / 1000 if limits else LIMIT_S
    return Grant(url, client_id, secret, value("scope", SCOPE), encodes, trust, limit_s)
