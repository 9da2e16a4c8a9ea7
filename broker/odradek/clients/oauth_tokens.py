"""The tokens with which a client logs in with OAUTHBEARER; see `token_settings`. Used in one thread of a client."""

import time
from collections.abc import Callable, Mapping

from odradek.security.jaas import LoginModule
from odradek.security.sasl.client import TokenCredentials
from odradek.security.sasl.token_grant import UNKNOWN_LIFETIME_S, check_trust, new_token, stated_end, token_of_file
from odradek.security.sasl.token_settings import ENCODES, Grant, token_source_of

EARLY_S = 30.0
"""A token is used again until so long before its end."""


def token_credentials_of(settings: Mapping[str, str], module: LoginModule) -> TokenCredentials:
    """Raises ConfigError, which shows no secret. :param module: the OAuthBearerLoginModule of the JAAS line."""
    encodes = settings.get(ENCODES, "false").strip().lower() == "true"
    found = token_source_of(settings.get, module, encodes=encodes)
    extensions = dict(found.extensions)
    source = found.source
    if isinstance(source, str):
        return TokenCredentials(lambda: token_of_file(source), extensions, found.user)
    check_trust(source)
    return TokenCredentials(Tokens(source), extensions, found.user, warning=source.warning)


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
            granted = new_token(self._grant)
            self._token = granted.text
            self._until = self._clock() + max(0.0, granted.lifetime_s - EARLY_S)
        return self._token

    def __repr__(self) -> str:
        return f"<Tokens of {self._grant!r}>"


def library_callback(credentials: TokenCredentials) -> Callable[[str], tuple[str, float, str, dict[str, str]]]:
    """The `oauth_cb` of confluent-kafka: returns token, Unix time of its end in s, principal, extensions. The library logs
    its LoginError and tries again."""

    def callback(_config: str) -> tuple[str, float, str, dict[str, str]]:
        token = credentials.token()
        return token, end_of(token), "", dict(credentials.extensions)

    return callback


def end_of(token: str) -> float:
    """The Unix time in seconds at which a token says that it ends; the signature is not checked. A minute from now if the
    token does not say it."""
    ends = stated_end(token)
    return time.time() + UNKNOWN_LIFETIME_S if ends is None else ends
