"""The token with which a client logs in with OAUTHBEARER: from a file, or from an identity provider (KIP-768).

Kafka's client keys: `sasl.oauthbearer.token.endpoint.url`, and the client's id, secret and scope in
`sasl.oauthbearer.client.credentials.client.id`, `.client.secret` and `sasl.oauthbearer.scope`. As in Kafka, an option
`clientId`, `clientSecret` or `scope` of the JAAS line is used where the key is not set. Used in one thread of a client.
"""

import base64
import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlencode, urlsplit

from odradek.config.errors import ConfigError
from odradek.security.http_request import HttpError, request, tls_context
from odradek.security.jaas import LoginModule
from odradek.security.sasl.client import LoginError, TokenCredentials, check_extensions
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
LARGEST = 1 << 20
LIMIT_S = 10.0
EARLY_S = 30.0
"""A token is used again until so long before its end."""
UNKNOWN_LIFETIME_S = 60.0
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*\Z")


class Grant(NamedTuple):
    """How a client gets tokens of an identity provider: the grant of client credentials (RFC 6749, 4.4)."""

    url: str
    client_id: str
    client_secret: str
    scope: str = ""
    encodes: bool = False
    trust: tuple[str | None, ...] = (None,) * len(TRUST)
    limit_s: float = LIMIT_S

    def __repr__(self) -> str:
        return f"<Grant for {self.client_id} at {self.url}>"


def token_credentials_of(settings: Mapping[str, str], module: LoginModule) -> TokenCredentials:
    """Raises ConfigError, which shows no secret. :param module: the OAuthBearerLoginModule of the JAAS line."""
    url = settings.get(URL, "").strip()
    if not url:
        raise ConfigError(
            URL,
            None,
            "must be set: the URL of the identity provider's token endpoint, or file:///PATH of a file with a token",
        )
    if reason := url_error(url):
        raise ConfigError(URL, url, reason)
    extensions = {
        name.removeprefix(EXTENSION): value for name, value in module.options.items() if name.startswith(EXTENSION)
    }
    try:
        check_extensions(extensions)
    except ValueError as error:
        raise ConfigError(JAAS, HIDDEN, str(error)) from None
    if urlsplit(url).scheme == "file":
        path = path_of(url)
        return TokenCredentials(lambda: token_of_file(path), extensions, f"the principal of the token in {path}")
    grant = _grant(url, settings, module)
    return TokenCredentials(Tokens(grant), extensions, f"client {grant.client_id}")


def _grant(url: str, settings: Mapping[str, str], module: LoginModule) -> Grant:
    def value(option: str, key: str) -> str:
        return (settings.get(key) or module.options.get(option) or "").strip()

    client_id, secret = value("clientId", CLIENT_ID), value("clientSecret", CLIENT_SECRET)
    for text, key, option in ((client_id, CLIENT_ID, "clientId"), (secret, CLIENT_SECRET, "clientSecret")):
        if not text:
            raise ConfigError(key, None, f"must be set, or the option {option} of {JAAS}, because {URL} is set")
    trust = tuple(module.options.get(name) for name in TRUST)
    if urlsplit(url).scheme == "https":
        tls_context(trust)  # raises ConfigError now rather than at the first login
    limits = [settings[key] for key in (CONNECT, READ) if settings.get(key)]
    if not all(limit.isdecimal() and int(limit) for limit in limits):
        raise ConfigError(CONNECT, limits[0], f"and {READ} must be numbers of ms above 0")
    return Grant(
        url,
        client_id,
        secret,
        value("scope", SCOPE),
        settings.get(ENCODES, "false").strip().lower() == "true",
        trust,
        sum(map(int, limits)) / 1000 if limits else LIMIT_S,
    )


class Tokens:
    """Gets tokens by a grant, and returns one again until shortly before its end. :param clock: Unix time in seconds."""

    def __init__(self, grant: Grant, clock: Callable[[], float] = time.time) -> None:
        self._grant = grant
        self._clock = clock
        self._token = ""
        self._until = 0.0

    def __call__(self) -> str:
        """A token. Raises LoginError."""
        if not self._token or self._clock() >= self._until:
            self._token, lifetime_s = new_token(self._grant)
            self._until = self._clock() + max(0.0, lifetime_s - EARLY_S)
        return self._token

    def __repr__(self) -> str:
        return f"<Tokens of {self._grant!r}>"


def token_of_file(path: str) -> str:
    """The token in a file, which is read for each login, because another program may renew it. Raises LoginError."""
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST)
    except OSError as error:
        raise LoginError(f"the file {path} with the token cannot be read: {error.strerror}") from None
    token = data.decode("utf-8", "replace").strip()
    if not _TOKEN.match(token):
        raise LoginError(f"the file {path} contains no token")
    return token


def new_token(grant: Grant) -> tuple[str, float]:
    """A token of the identity provider, and its lifetime in seconds (0: unknown). Raises LoginError."""
    names = [quote_plus(text) if grant.encodes else text for text in (grant.client_id, grant.client_secret)]
    basic = base64.b64encode(":".join(names).encode()).decode()
    form = {"grant_type": "client_credentials"} | ({"scope": grant.scope} if grant.scope else {})
    headers = {"Authorization": f"Basic {basic}", "Content-Type": "application/x-www-form-urlencoded"}
    where = f"no token from {grant.url}"
    try:
        response = request(
            grant.url,
            limit_s=grant.limit_s,
            largest=LARGEST,
            context=lambda: tls_context(grant.trust),
            body=urlencode(form).encode(),
            headers=headers,
        )
    except (HttpError, ConfigError) as error:
        raise LoginError(f"{where}: {error}") from None
    content = _json(response.body)
    if response.status not in (200, 201):
        raise LoginError(f"{where}: it responded with the status {response.status}{_error_of(content)}")
    token = content.get("access_token")
    if not isinstance(token, str) or not _TOKEN.match(token.strip()):
        raise LoginError(f"{where}: its response contains no access_token")
    lifetime = content.get("expires_in")
    known = isinstance(lifetime, int | float) and not isinstance(lifetime, bool) and 0 < lifetime < 1e9
    return token.strip(), float(lifetime) if known and lifetime is not None else 0.0


def _json(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _error_of(content: Mapping[str, Any]) -> str:
    """The error of a response (RFC 6749, 5.2), which contains no secret."""
    parts = [content[name] for name in ("error", "error_description") if isinstance(content.get(name), str)]
    return f": {' - '.join(part[:200] for part in parts)!a}" if parts else ""


def library_callback(credentials: TokenCredentials) -> Callable[[str], tuple[str, float, str, dict[str, str]]]:
    """The `oauth_cb` of confluent-kafka: returns token, Unix time of its end in s, principal, extensions. The library logs
    its LoginError and tries again."""

    def callback(_config: str) -> tuple[str, float, str, dict[str, str]]:
        token = credentials.token()
        return token, end_of(token), "", dict(credentials.extensions)

    return callback


def end_of(token: str) -> float:
    """The Unix time in seconds at which a token ends, as it says, unchecked; in a minute if that cannot be read."""
    payload = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        claims = None
    ends = claims.get("exp") if isinstance(claims, dict) else None
    known = isinstance(ends, int | float) and not isinstance(ends, bool) and ends < 1e12
    return float(ends) if known and ends is not None else time.time() + UNKNOWN_LIFETIME_S
