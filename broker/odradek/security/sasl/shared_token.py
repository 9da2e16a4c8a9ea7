"""The token with which a process logs in at other brokers: one for all its connections.

A thread gets tokens, so nobody else waits for an identity provider longer than for the given limit. It gets the next token
long before the end of the present one (`Renewal`), and repeats failures with a growing delay. A token in a file is read for
each login, because another program renews it. All public methods may be called in any thread.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from random import random
from typing import NamedTuple

from odradek.security.sasl.client import LoginError, NoTokenError, TokenCredentials
from odradek.security.sasl.token_grant import UNKNOWN_LIFETIME_S, new_token, remaining_s, token_of_file
from odradek.security.sasl.token_settings import Grant, Renewal, TokenSource

log = logging.getLogger("odradek.security")

SAME_ERROR_EVERY_S = 60.0
REFUSED_APART_S = 10.0
"""A token that another broker has refused is replaced if it is at least so old."""
LEAST_LIFETIME_S = 0.5
"""A token is kept for at least this time, so that a useless lifetime does not keep the thread busy."""
LONGEST_ERROR = 500
LONGEST_SLEEP_S = 3600.0
CHANGED = "the settings of this broker have changed"


class _Outcome(NamedTuple):
    """Of an attempt. :param lifetime_s: 0: of a file. :param failure: empty if there is a token."""

    token: str = ""
    lifetime_s: float = 0.0
    failure: str = ""

    def __repr__(self) -> str:
        return f"<_Outcome {self.failure or 'a token'}>"


def attempt(source: TokenSource) -> tuple[str, float]:
    """A token and its lifetime in seconds; 0: read the file again at the next login. Raises LoginError."""
    if not isinstance(source.source, Grant):
        return token_of_file(source.source, may_wait=False), 0.0
    granted = new_token(source.source)
    lifetime_s = remaining_s(granted, time.time())
    if lifetime_s is None:
        return granted.text, UNKNOWN_LIFETIME_S
    if lifetime_s <= 0:
        raise LoginError(
            f"no token from {source.source.url}: the token in its response has expired {-lifetime_s:.0f} s ago by the clock of "
            "this broker"
        )
    return granted.text, max(LEAST_LIFETIME_S, lifetime_s)


class SharedToken:
    """See the module.

    :param count: counts a failed attempt. :param get: makes an attempt. :param clock: monotonic seconds.
    """

    def __init__(
        self,
        source: TokenSource,
        renewal: Renewal,
        count: Callable[[], None],
        get: Callable[[TokenSource], tuple[str, float]] = attempt,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.source = source
        self.renewal = renewal
        self._count = count
        self._get = get
        self._clock = clock
        self._renews = isinstance(source.source, Grant)
        self._changed = threading.Condition()  # protects everything below
        self._thread: threading.Thread | None = None
        self._closed = False
        self._attempt: Future[_Outcome] | None = None  # under way, or to be made now
        self._token = ""
        self._got_at = self._ends_at = float("-inf")
        self._wanted_at = float("-inf")  # a login from then on waits for the next token
        self._due_at = float("-inf")  # the thread gets the next token without being asked
        self._failure = ""  # of the last attempt
        self._failed_in_row = 0
        self._said = ("", False, float("-inf"))  # the last line in the log: reason, whether there was a token, and when

    def __repr__(self) -> str:
        return f"<SharedToken of {self.source!r}>"

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def start(self) -> None:
        """Get the first token now, so that the first connection need not wait."""
        if self._renews:
            with self._changed:
                self._begin()

    def close(self) -> None:
        """Make no further attempt. The present token can still be used."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def credentials(self, limit_s: float) -> TokenCredentials:
        """Log in with these. Waits for a token up to a limit in seconds. Raises NoTokenError."""
        with self._changed:
            now = self._now_or_attempt()
        if isinstance(now, str):
            return self._made(now)
        try:
            return self._of(now.result(limit_s))
        except TimeoutError:
            return self._made(self._after(limit_s))

    async def credentials_in_loop(self, limit_s: float) -> TokenCredentials:
        """As `credentials`, for an event loop."""
        with self._changed:
            now = self._now_or_attempt()
        if isinstance(now, str):
            return self._made(now)
        try:
            return self._of(await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(now)), limit_s))
        except TimeoutError:
            return self._made(self._after(limit_s))

    def refused(self, token: str) -> None:
        """Another broker has not accepted a token: get another one soon, because its key may have been withdrawn."""
        with self._changed:
            now = self._clock()
            if self._renews and token == self._token and now - self._got_at >= REFUSED_APART_S:
                self._got_at = now  # once, however many connections are refused
                self._due_at = self._wanted_at = now
                self._begin()

    # -- with the lock ------------------------------------------------------------------------------------------------

    def _now_or_attempt(self) -> "str | Future[_Outcome]":
        """The token for a login now, or the attempt to wait for. Raises NoTokenError."""
        now = self._clock()
        valid = bool(self._token) and now < self._ends_at
        if valid and (now < self._wanted_at or self._failure or self._closed):
            return self._token
        if self._closed:
            raise NoTokenError(CHANGED)
        if self._renews and self._failure and self._lives:  # the thread repeats it: nobody else waits for it
            raise NoTokenError(self._failure)
        if self._attempt is None:
            self._attempt = Future()
        wanted = self._attempt
        self._begin()
        return wanted

    @property
    def _lives(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _begin(self) -> None:
        """Let the thread look what is to be done."""
        if not self._lives and not self._closed:
            thread = threading.Thread(target=self._run, name="token", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the system has no thread left: the next login tries again
                outcome = _Outcome(failure=f"no thread can be started to get a token: {error}")
                self._end(outcome)
                self._take(outcome, self._clock())
                return
            self._thread = thread
        self._changed.notify_all()

    def _end(self, outcome: _Outcome) -> None:
        """The attempt has ended, if there is one."""
        ended, self._attempt = self._attempt, None
        if ended is not None:
            ended.set_result(outcome)

    # -- outcomes -----------------------------------------------------------------------------------------------------

    def _made(self, token: str) -> TokenCredentials:
        return TokenCredentials(lambda: token, dict(self.source.extensions), self.source.user, refused=self.refused)

    def _of(self, outcome: _Outcome) -> TokenCredentials:
        """Raises NoTokenError."""
        token = outcome.token or self._still_valid()
        if not token:
            raise NoTokenError(outcome.failure)
        return self._made(token)

    def _after(self, limit_s: float) -> str:
        """The token to use because the next one has not arrived in time. Raises NoTokenError."""
        token = self._still_valid()
        if not token:
            where = self.source.source.url if isinstance(self.source.source, Grant) else self.source.source
            raise NoTokenError(f"no token from {where} within {limit_s:g} s; waiting for it")
        return token

    def _still_valid(self) -> str:
        with self._changed:
            return self._token if self._clock() < self._ends_at else ""

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and self._attempt is None and (sleep_s := self._sleep_s()) > 0:
                    self._changed.wait(sleep_s)
                if self._closed:
                    self._end(_Outcome(failure=CHANGED))
                    return
                if self._attempt is None:
                    self._attempt = Future()  # for logins that ask in the meantime
            began = self._clock()
            outcome = self._tried()
            with self._changed:
                self._take(outcome, began)
                self._end(outcome)

    def _sleep_s(self) -> float:
        """How long the thread may sleep."""
        if not self._renews:
            return LONGEST_SLEEP_S
        return min(self._due_at - self._clock(), LONGEST_SLEEP_S)

    def _tried(self) -> _Outcome:
        try:
            return _Outcome(*self._get(self.source))
        except LoginError as error:
            return _Outcome(failure=str(error)[:LONGEST_ERROR])
        except Exception as error:  # the thread must live on: the next attempt may succeed
            log.exception("cannot get a token for %s: internal error", self.source.user)
            return _Outcome(failure=f"internal error: {type(error).__name__}")

    def _take(self, outcome: _Outcome, began: float) -> None:
        if outcome.failure:
            self._failure = outcome.failure
            self._failed_in_row += 1
            self._count()
            retry_s = self.renewal.retry_s(self._failed_in_row)
            self._due_at = self._clock() + retry_s
            self._say(outcome.failure, retry_s)
            return
        if self._failed_in_row:
            log.info("got a token for logins at other brokers as %s", self.source.user)
        self._failure, self._failed_in_row, self._said = "", 0, ("", False, float("-inf"))
        if self._renews:
            lifetime_s = outcome.lifetime_s
            self._token, self._got_at, self._ends_at = outcome.token, began, began + lifetime_s
            self._wanted_at = began + self.renewal.after_s(lifetime_s)
            self._due_at = began + self.renewal.after_s(lifetime_s, random())

    def _say(self, reason: str, retry_s: float) -> None:
        """Log a failure: the first one, another one, that of the token's end, and the same one once a minute."""
        now = self._clock()
        left_s = self._ends_at - now if self._token else 0.0
        said, had_token, said_at = self._said
        if (said, had_token) == (reason, left_s > 0) and now - said_at < SAME_ERROR_EVERY_S:
            return
        self._said = reason, left_s > 0, now
        again = f"retrying in {retry_s:g} s" if self._renews else "the next login reads the file again"
        if left_s > 0:
            log.warning(
                "cannot get the next token for logins at other brokers as %s: %s; the present one expires in %.0f s; %s",
                self.source.user, reason, left_s, again,
            )  # fmt: skip
        else:
            log.error(
                "cannot get a token for logins at other brokers as %s: %s; this process cannot log in at other brokers; %s",
                self.source.user, reason, again,
            )  # fmt: skip
