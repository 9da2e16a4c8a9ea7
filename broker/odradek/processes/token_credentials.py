"""The SCRAM credentials of delegation tokens, which the coordinator derives when a client logs in with a token.

A credential takes some milliseconds (4,096 rounds of PBKDF2). A separate thread computes one credential at a time. Each token
has one for each mechanism, which is kept, so the number of tokens bounds the work that clients can cause. Used in the
coordinator's event loop.
"""

import asyncio
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

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self._loop = loop
        self._most = most
        self._thread: ThreadPoolExecutor | None = None
        self._kept: OrderedDict[Key, asyncio.Future[ScramCredential]] = OrderedDict()

    async def answer(self, derivation: Derivation) -> ForwardReply:
        """The answer, when the credential is there. Cancelling it does not cancel the derivation, for which others may wait."""
        key = derivation.mechanism.name, derivation.password, derivation.salt
        derived = self._kept.get(key)
        if derived is None:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "tokens")
            derived = self._kept[key] = self._loop.run_in_executor(self._thread, _derived, derivation)
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
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


def _derived(derivation: Derivation) -> ScramCredential:
    mechanism, salt = derivation.mechanism, derivation.salt
    salted = salted_password(mechanism, derivation.password.encode(), salt, MIN_ITERATIONS)
    return credential_of(mechanism, salted, salt, MIN_ITERATIONS)
