"""The SCRAM credentials of delegation tokens, which the coordinator derives when a client logs in with a token.

A credential takes some milliseconds (4,096 rounds of PBKDF2). Up to `THREADS` threads compute them, each one at a time and
without the global interpreter lock, so that many clients that log in after a restart do not wait for one core. Each token has
one credential for each mechanism, which is kept, so the number of tokens bounds the work that clients can cause. Used in the
coordinator's event loop.

The order of the derivations decides nothing: a credential depends only on the token's id and the secrets of the broker. What a
login is compared with, the expiry and the version of all tokens, was read before in the store thread, and is in `finish`.
"""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from odradek.net.forward_frames import ForwardReply
from odradek.security.sasl.scram_credential import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    credential_of,
    salted_password,
)

THREADS = max(1, min(4, len(os.sched_getaffinity(0)) // 2))
"""At most half of the CPUs, so that the workers, which serve the other clients, have the rest."""


class Derivation(NamedTuple):
    """An answer that needs the credential of a token.

    ``password``: see `delegation_token.password_of`. ``finish``: makes the answer.
    """

    mechanism: ScramMechanism
    password: str
    salt: bytes
    finish: Callable[[ScramCredential], ForwardReply]

    def __repr__(self) -> str:
        return f"<Derivation of a {self.mechanism.name} credential>"


Key = tuple[str, str, bytes]


class TokenCredentials:
    """See the module. :param most: the number of credentials that are kept."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int, threads: int = THREADS) -> None:
        self._loop = loop
        self._most = most
        self._count = threads
        self._threads: ThreadPoolExecutor | None = None  # each begins when it is needed
        self._kept: OrderedDict[Key, asyncio.Future[ScramCredential]] = OrderedDict()

    async def answer(self, derivation: Derivation) -> ForwardReply:
        """The answer, when the credential is there. Cancelling it does not cancel the derivation, for which others may wait."""
        key = derivation.mechanism.name, derivation.password, derivation.salt
        derived = self._kept.get(key)
        if derived is None:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._count, "tokens")
            derived = self._kept[key] = self._loop.run_in_executor(self._threads, _derived, derivation)
            derived.add_done_callback(lambda done: self._forget_failed(key, done))
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return derivation.finish(await asyncio.shield(derived))

    def _forget_failed(self, key: Key, done: "asyncio.Future[ScramCredential]") -> None:
        """The next question derives the credential again; those that wait now fail."""
        if (done.cancelled() or done.exception() is not None) and self._kept.get(key) is done:
            del self._kept[key]

    def close(self) -> None:
        """Drop the derivations that have not begun."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _derived(derivation: Derivation) -> ScramCredential:
    mechanism, salt = derivation.mechanism, derivation.salt
    salted = salted_password(mechanism, derivation.password.encode(), salt, MIN_ITERATIONS)
    return credential_of(mechanism, salted, salt, MIN_ITERATIONS)
