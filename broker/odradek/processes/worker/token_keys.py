"""The tokens of OAUTHBEARER in a worker: a verifier for each listener, with the newest published keys.

A worker owns one `TokenKeys` and uses it only in its loop. It compares the version of the published keys before each check, so
no login that begins after a change uses older keys.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from odradek.net.forward import ConnectionLost, ForwardClient, ForwardError
from odradek.net.forward_frames import ForwardContext, ForwardReply, Kind, encode_keys_question
from odradek.security.sasl.mechanism import Refused
from odradek.security.sasl.oauth_settings import OAuthSettings
from odradek.security.sasl.oauthbearer import Identity
from odradek.shm.published_jwks import Provider, PublishedJwks

if TYPE_CHECKING:
    from odradek.security.sasl.token_verifier import TokenVerifier

log = logging.getLogger("odradek.security")

PATIENCE_S = 8.0
"""The time in seconds that a login waits for newer keys: less than odradek.authentication.timeout.ms by default."""
ASKED_APART_S = 1.0
"""For so long after an answer of the coordinator, logins on the listener do not ask again for newer keys than the same ones."""


class _OfListener:
    """The verifier of a listener. :ivar seen: the version of the keys that it uses, and of the published pages; -1: none."""

    def __init__(self, settings: OAuthSettings, verifier: "TokenVerifier") -> None:
        self.settings = settings
        self.verifier = verifier
        self.pages_version = -1
        self.keys_version = -1
        self.answered = (-1, float("-inf"))  # version of the last answered question, and loop time of the answer


class TokenKeys:
    """See the module. :param settle: sends responses that were completed outside of an answer of the coordinator."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        forward: ForwardClient,
        published: PublishedJwks,
        settle: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._loop = loop
        self._forward = forward
        self._published = published
        self._settle = settle
        self._clock = clock
        self._listeners: dict[str, _OfListener] = {}
        self._providers: tuple[int, Mapping[str, Provider]] = (0, {})  # version 0: nothing is published

    def configure(self, settings: Mapping[str, OAuthSettings]) -> None:
        """Check tokens by these settings, by listener. What is remembered of a listener with the same settings is kept."""
        if not settings:
            self._listeners = {}
            return
        from odradek.security.sasl.token_verifier import TokenVerifier  # here: most brokers need no library for tokens

        self._listeners = {
            name: known
            if (known := self._listeners.get(name)) is not None and known.settings == of_listener
            else _OfListener(of_listener, TokenVerifier(of_listener, self._clock))
            for name, of_listener in settings.items()
        }

    def verify(self, listener: str, token: bytes) -> Identity:
        """Check a token. Raises Refused, UnknownKey."""
        of_listener = self._listeners.get(listener)
        if of_listener is None:  # disabled while the login was under way
            raise Refused("the listener does not offer OAUTHBEARER any more")
        self._take_over(listener, of_listener)
        return of_listener.verifier.verify(token)

    def _take_over(self, name: str, of_listener: _OfListener) -> None:
        if of_listener.pages_version == self._published.version:
            return
        if self._providers[0] != self._published.version:
            version, providers = self._published.read_providers()
            self._providers = version, {one: provider for provider in providers for one in provider.listeners}
        of_listener.pages_version, providers_of = self._providers
        provider = providers_of.get(name)
        if provider is None:
            return
        if provider.keys_version != of_listener.keys_version or not provider.keys:
            from odradek.security.sasl.jwks import public_keys

            reason = f"the keys of the identity provider at {provider.url} were never read: {provider.error}"
            of_listener.verifier.use(public_keys(provider.keys), reason)
            of_listener.keys_version = provider.keys_version

    def refresh(self, listener: str, context: ForwardContext, then: Callable[[], None]) -> None:
        """Let the coordinator look for newer keys; `then` is called once in the loop, never inside this call, whether there are
        any or not, unless the connection of the context is closed before."""
        of_listener = self._listeners.get(listener)
        deadline = self._loop.time() + PATIENCE_S
        version = self._providers[0]

        def at_once() -> None:
            then()
            self._settle()

        def send() -> None:
            try:
                question = encode_keys_question(listener, version)
                self._forward.send(question, context, deadline, on_reply, Kind.KEYS)
            except ForwardError:  # the queue is full: the keys that are known must do
                self._loop.call_soon(at_once)

        def on_reply(reply: ForwardReply | ForwardError) -> None:
            if isinstance(reply, ConnectionLost):  # the successor of the coordinator reads the keys when it starts
                send()
                return
            if of_listener is not None:
                of_listener.answered = version, self._loop.time()
            then()

        if of_listener is not None:
            answered_version, answered_at = of_listener.answered
            if answered_version != version or self._loop.time() - answered_at >= ASKED_APART_S:
                send()
                return
        self._loop.call_soon(at_once)
