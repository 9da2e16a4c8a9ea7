"""Reads the keys of identity providers (JWKS) and publishes them to all processes. Runs in the coordinator.

The loop decides when to read; a thread of each provider reads, so that a provider that does not respond delays nothing else.
Keys are read at the start, every `sasl.oauthbearer.jwks.endpoint.refresh.ms`, after a failure with a growing delay, and when a
client's token names an unknown key, for which at most one attempt begins in `WANTED_APART_S`. A failure changes no keys.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

from odradek import clock
from odradek.backoff import Backoff
from odradek.config.errors import ConfigError
from odradek.config.regular_file import read_regular
from odradek.http_request import HttpError, request
from odradek.net.forward_frames import ForwardReply, Status, decode_keys_question
from odradek.security.provider_trust import tls_context
from odradek.security.sasl.oauth_settings import KeySource, path_of
from odradek.shm.published_jwks import Provider, PublishedJwks

log = logging.getLogger("odradek.security")

LIMIT_S = 10.0
"""The time in seconds that one attempt may take."""
LARGEST_BYTES = 1 << 20
WANTED_APART_S = 10.0
LEAST_REFRESH_S = 1.0
LEAST_BACKOFF_S = 0.1
SAME_ERROR_EVERY_S = 60.0
LONGEST_ERROR = 500

Read = Callable[[KeySource], bytes]
Parse = Callable[[bytes], tuple[list[dict[str, str]], list[str]]]


def download(source: KeySource) -> bytes:
    """The document of a source. Blocks for at most `LIMIT_S`. Raises HttpError."""
    if urlsplit(source.url).scheme == "file":
        path = path_of(source.url)
        try:
            data = read_regular(path, LARGEST_BYTES + 1)
        except OSError as error:
            raise HttpError(f"{path} cannot be read: {error.strerror}") from None
        if len(data) > LARGEST_BYTES:
            raise HttpError(f"{path} has more than {LARGEST_BYTES} bytes")
        return data
    try:
        response = request(
            source.url, limit_s=LIMIT_S, largest=LARGEST_BYTES, context=lambda: tls_context(source.trust)
        )
    except ConfigError as error:
        raise HttpError(str(error)) from None
    if response.status != 200:
        raise HttpError(f"it responded with the status {response.status}")
    return response.body


def parse(document: bytes) -> tuple[list[dict[str, str]], list[str]]:
    """The usable keys of a document, and why others were left out. Raises ValueError."""
    from odradek.security.sasl.jwks import parse_document  # here: only some brokers need the cryptographic library

    return tuple(parse_document(document))  # type: ignore[return-value]


class _Reading:
    """The provider of some listeners. :ivar ended: of the attempt under way; None if there is none."""

    def __init__(self, source: KeySource, provider: Provider) -> None:
        self.source = source
        self.provider = provider
        self.ended: asyncio.Future[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.failed_in_row = 0
        self.wanted_at = float("-inf")  # loop time at which the last attempt for an unknown key began
        self.said: tuple[str, float] = ("", float("-inf"))  # the last line in the log about a failure
        self.left_out: list[str] = []


class JwksReader:
    """See the module. Used in the coordinator's loop. :param wake: wakes all processes."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sources: dict[str, KeySource],
        published: PublishedJwks,
        wake: Callable[[], None],
        read: Read = download,
        parse: Parse = parse,
    ) -> None:
        self._loop = loop
        self._published = published
        self._wake = wake
        self._read = read
        self._parse = parse
        self._closed = False
        before = {provider.listeners: provider for provider in published.read_providers()[1]}
        by_source: dict[KeySource, list[str]] = {}
        for listener, source in sources.items():
            by_source.setdefault(source, []).append(listener)
        self._readings = [
            _Reading(source, before.get(tuple(listeners)) or Provider(tuple(listeners), source.url))
            for source, listeners in by_source.items()
        ]

    def start(self) -> None:
        """Read the keys of all providers."""
        for reading in self._readings:
            self._begin(reading)

    def close(self) -> None:
        """Begin no further attempt, and let nobody wait for those under way: their threads end with the process."""
        self._closed = True
        for reading in self._readings:
            if reading.timer is not None:
                reading.timer.cancel()
            if reading.ended is not None and not reading.ended.done():
                reading.ended.set_result(None)

    async def wanted(self, listener: str, version: int) -> None:
        """A token for this listener names a key that version `version` of the published keys does not contain: return after the
        attempt under way, or after a new one, if none was made for such a token in the last `WANTED_APART_S` seconds. Return at
        once if there is a newer version."""
        reading = next((one for one in self._readings if listener in one.provider.listeners), None)
        if reading is None or version < self._published.version:
            return
        if reading.ended is None and self._loop.time() - reading.wanted_at >= WANTED_APART_S:
            reading.wanted_at = self._loop.time()
            self._begin(reading)
        if reading.ended is not None:
            await asyncio.shield(reading.ended)

    async def answer(self, payload: bytes) -> ForwardReply:
        """The reply to a worker's request for newer keys of a listener."""
        await self.wanted(*decode_keys_question(payload))
        return ForwardReply(Status.OK, 0)

    def _begin(self, reading: _Reading) -> None:
        if reading.ended is not None or self._closed:
            return
        if reading.timer is not None:
            reading.timer.cancel()
            reading.timer = None
        reading.ended = self._loop.create_future()

        def attempt() -> None:
            try:
                outcome: tuple[list[dict[str, str]], list[str]] | str = self._parse(self._read(reading.source))
            except HttpError as error:
                outcome = str(error)
            except ValueError as error:  # JwksError
                outcome = f"the response {error}"
            except Exception as error:
                log.exception("cannot read the keys at %s: internal error", reading.source.url)
                outcome = f"internal error: {type(error).__name__}"
            try:
                self._loop.call_soon_threadsafe(self._ended, reading, outcome)
            except RuntimeError:
                return  # the loop is closed: this process ends

        try:
            threading.Thread(target=attempt, name="jwks", daemon=True).start()
        except RuntimeError as error:  # the system has no thread left
            self._loop.call_soon(self._ended, reading, f"no thread can be started: {error}")

    def _ended(self, reading: _Reading, outcome: tuple[list[dict[str, str]], list[str]] | str) -> None:
        source, provider = reading.source, reading.provider
        if isinstance(outcome, str):
            error = outcome[:LONGEST_ERROR]
            reading.failed_in_row += 1
            backoff = Backoff(source.backoff_ms / 1000, source.most_backoff_ms / 1000, shortest=LEAST_BACKOFF_S)
            wait_s = backoff.after(reading.failed_in_row)
            reading.provider = provider._replace(failures=provider.failures + 1, error=error)
            self._say(reading, error, wait_s)
        else:
            keys, left_out = outcome
            wait_s = max(LEAST_REFRESH_S, source.refresh_ms / 1000)
            self._note_keys(reading, tuple(keys), left_out)
        try:
            self._published.publish_providers([one.provider for one in self._readings])
        except (ValueError, OSError) as error:  # too large for the memory: the processes keep what they have
            log.error("cannot publish the keys at %s to the workers: %s", source.url, error)
        self._wake()
        ended, reading.ended = reading.ended, None
        if ended is not None and not ended.done():
            ended.set_result(None)
        if not self._closed:
            reading.timer = self._loop.call_later(wait_s, self._begin, reading)

    def _note_keys(self, reading: _Reading, keys: tuple[dict[str, str], ...], left_out: list[str]) -> None:
        provider = reading.provider
        changed = keys != provider.keys
        if changed or reading.failed_in_row:
            log.info(
                "read %d keys of the identity provider at %s for the listeners %s",
                len(keys), provider.url, ", ".join(provider.listeners),
            )  # fmt: skip
        if left_out and left_out != reading.left_out:
            log.warning("left out keys of the identity provider at %s: %s", provider.url, "; ".join(left_out[:5]))
        reading.left_out = left_out
        reading.failed_in_row = 0
        reading.said = ("", float("-inf"))
        reading.provider = provider._replace(
            keys=keys,
            keys_version=provider.keys_version + changed,
            read_ms=clock.now_ms(),
            reads=provider.reads + 1,
            error="",
        )

    def _say(self, reading: _Reading, error: str, wait_s: float) -> None:
        """Log a failure: the first one, another one, and the same one once a minute."""
        now, (said, said_at) = self._loop.time(), reading.said
        if said == error and now - said_at < SAME_ERROR_EVERY_S:
            return
        reading.said = error, now
        provider = reading.provider
        effect = (
            "the former keys stay in use"
            if provider.keys
            else f"no client can log in with OAUTHBEARER on {', '.join(provider.listeners)}"
        )
        log.error(
            "cannot read the keys of the identity provider at %s: %s; %s; retrying in %g s",
            provider.url, error, effect, wait_s,
        )  # fmt: skip
