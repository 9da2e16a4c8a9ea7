"""Gets a token for a login with OAUTHBEARER: from an identity provider (KIP-768), or from a file. Blocks for a bounded time."""

import base64
import json
import os
import re
import stat
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlencode

from odradek.config.errors import ConfigError
from odradek.http_request import HttpError, request
from odradek.security.provider_trust import tls_context
from odradek.security.sasl.client import LoginError
from odradek.security.sasl.token_settings import Grant

LARGEST = 1 << 20
UNKNOWN_LIFETIME_S = 60.0
"""For how long a token is used whose end nobody states."""
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*\Z")


class GrantedToken(NamedTuple):
    """A token, and its lifetime in seconds as the identity provider states it; 0: unknown."""

    text: str
    lifetime_s: float

    def __repr__(self) -> str:
        return f"<GrantedToken for {self.lifetime_s:g} s>"


def token_of_file(path: str, may_wait: bool = True) -> str:
    """The token in a file, which is read for each login, because another program may renew it. Raises LoginError.

    :param may_wait: False: only of a regular file, for a process that must not wait for the writer of a pipe.
    """
    try:
        with open(path, "rb", opener=None if may_wait else _open_at_once) as file:
            if not may_wait and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise LoginError(f"the file {path} with the token is no regular file")
            data = file.read(LARGEST)
    except OSError as error:
        raise LoginError(f"the file {path} with the token cannot be read: {error.strerror}") from None
    token = data.decode("utf-8", "replace").strip()
    if not _TOKEN.match(token):
        raise LoginError(f"the file {path} contains no token")
    return token


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def new_token(grant: Grant) -> GrantedToken:
    """A token of the identity provider. Raises LoginError."""
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
    return GrantedToken(token.strip(), float(lifetime) if known and lifetime is not None else 0.0)


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


def check_trust(grant: Grant) -> None:
    """Read the trust store for an https URL now, rather than at the first login. Raises ConfigError."""
    if grant.url.startswith("https:"):
        tls_context(grant.trust)


def stated_end(token: str) -> float | None:
    """The Unix time in seconds at which a token says that it ends; the signature is not checked. None if it does not say it."""
    payload = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        claims = None
    ends = claims.get("exp") if isinstance(claims, dict) else None
    known = isinstance(ends, int | float) and not isinstance(ends, bool) and 0 < ends < 1e12
    return float(ends) if known and ends is not None else None


def remaining_s(token: GrantedToken, now_s: float) -> float | None:
    """How long a new token can be used, in seconds: as the identity provider states, which does not depend on the clock of
    this machine; else until the end that the token contains, which may have passed. None if neither is known.

    :param now_s: Unix time.
    """
    if token.lifetime_s > 0:
        return token.lifetime_s
    ends = stated_end(token.text)
    return None if ends is None else ends - now_s
