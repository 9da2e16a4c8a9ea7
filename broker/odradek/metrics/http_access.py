"""Who may read the reporter's HTTP pages: TLS, and a password or token. Used in the threads of the HTTP server.

The pages /healthz and /readyz need no credentials: what probes a broker seldom has any, and they tell nothing but the
broker's state.
"""

import base64
import binascii
import hmac
import logging
import ssl
import threading
import time
from collections.abc import Callable

from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError
from odradek.config.listeners import Listener
from odradek.config.regular_file import read_regular
from odradek.security.store_files import facts

log = logging.getLogger("odradek.reporter")

NAME = "METRICS"
"""Keys `listener.name.metrics.ssl.*` are those of the metrics listener alone."""
PASSWORD_FILE, TOKEN_FILE, TLS = "metrics.listener.password.file", "metrics.listener.token.file", "metrics.listener.tls"
OPEN_PAGES = ("/healthz", "/readyz")
_LARGEST_FILE = 1 << 16


class Credentials:
    """The passwords and tokens in the files of `metrics.listener.password.file` (lines `user:password`) and
    `metrics.listener.token.file` (a token in each line). A changed file is read again.

    :raises ConfigError: a file cannot be read, or is malformed.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._files = [(key, str(path)) for key in (PASSWORD_FILE, TOKEN_FILE) if (path := config[key])]
        self._lock = threading.Lock()
        self._facts = self._look()
        self._known = self._read()

    @property
    def required(self) -> bool:
        """Whether requests need credentials at all."""
        return bool(self._files)

    def permit(self, header: str | None) -> bool:
        """Whether a request with this Authorization header may read the pages. The time does not depend on the credentials."""
        if not self._files:
            return True
        presented = _presented(header)
        found = False
        for known in self._current():
            found |= hmac.compare_digest(known, presented)
        return found and presented != b""

    def _current(self) -> list[bytes]:
        with self._lock:
            present = self._look()
            if present != self._facts:
                self._facts = present
                try:
                    self._known = self._read()
                    log.info("read the changed credentials of metrics.listener")
                except ConfigError as error:
                    log.error("cannot use the changed credentials, so the former ones stay in use: %s", error)
            return self._known

    def _look(self) -> list[tuple[int, ...] | None]:
        return [facts(path) for _, path in self._files]

    def _read(self) -> list[bytes]:
        return [credential for key, path in self._files for credential in _credentials(key, path)]


def _credentials(key: str, path: str) -> list[bytes]:
    """The credentials in a file, as `_presented` returns them. Raises ConfigError."""
    try:
        lines = [line.strip() for line in read_regular(path, _LARGEST_FILE).splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise ConfigError(key, path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not lines:
        raise ConfigError(
            key, path, "is empty; it must contain " + ("user:password" if key == PASSWORD_FILE else "a token")
        )
    if key == PASSWORD_FILE and any(b":" not in line or line.endswith(b":") for line in lines):
        raise ConfigError(key, path, "must contain user:password in each line")
    return [(b"basic " if key == PASSWORD_FILE else b"bearer ") + line for line in lines]


def _presented(header: str | None) -> bytes:
    """The credential of an Authorization header: `basic user:password` or `bearer token`; empty if there is none."""
    scheme, _, value = (header or "").strip().partition(" ")
    if scheme.lower() == "bearer":
        return b"bearer " + value.strip().encode("utf-8", "replace")
    if scheme.lower() == "basic":
        try:
            return b"basic " + base64.b64decode(value.strip(), validate=True)
        except (binascii.Error, ValueError):
            return b""
    return b""


def presented_login(header: str) -> tuple[str, str]:
    """The scheme of an Authorization header and the user that it names, for the log; "" if it names none. A text without a
    password is no user's name: it may be a token that was sent as a login."""
    scheme, _, value = _presented(header).partition(b" ")
    user, _, password = value.partition(b":")
    user = user if scheme == b"basic" and password else b""
    return scheme.decode() or "an unknown scheme", user.decode("utf-8", "replace")


class HttpTls:
    """The TLS context of the metrics listener, from `ssl.*` and `listener.name.metrics.ssl.*`.

    A client certificate is asked for only by `listener.name.metrics.ssl.client.auth`. Every `odradek.ssl.reload.ms`,
    changed files are read again; if that fails, the former certificate stays in use.

    :param clock: monotonic seconds. :raises ConfigError: the listener cannot work.
    """

    def __init__(self, config: BrokerConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._interval_s = config.integer("odradek.ssl.reload.ms") / 1000
        self._next_look = clock() + self._interval_s
        self._seen = self._used = self._look()
        self.reload_failed = False
        self.context = self._load()

    def refresh(self) -> None:
        """Called twice a second: look at the files if it is time."""
        if not self._interval_s or self._clock() < self._next_look:
            return
        self._next_look = self._clock() + self._interval_s
        present, before = self._look(), self._seen
        self._seen = present
        if present != before or present == self._used:
            return
        self._used = present
        try:
            self.context = self._load()
            self.reload_failed = False
            log.info("metrics.listener uses a new certificate")
        except ConfigError as error:
            self.reload_failed = True
            log.error("cannot use the changed key store of metrics.listener, so the former one stays in use: %s", error)

    def _look(self) -> object:
        from odradek.security.store_files import signature

        return signature(self._config, [NAME])

    def _load(self) -> ssl.SSLContext:
        from odradek.security.contexts import load_listener, server_context
        from odradek.security.validity import validities

        listener = self._config.metrics_listener
        assert listener is not None
        # As on SASL_SSL: the unprefixed ssl.client.auth belongs to Kafka's clients.
        material = load_listener(self._config, Listener(NAME, listener.host, listener.port, "SASL_SSL"))
        self.validity = validities({NAME: material}, None)[NAME]
        return server_context(material)
