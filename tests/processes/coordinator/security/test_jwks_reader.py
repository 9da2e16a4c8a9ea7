"""The coordinator's reader of keys: when it reads, what a failure changes, what is published. The loop is real, time is not."""

import asyncio
import logging
import threading

import pytest

from odradek.http_request import HttpError
from odradek.processes.coordinator.security import jwks_reader
from odradek.processes.coordinator.security.jwks_reader import WANTED_APART_S, JwksReader, download, parse
from odradek.security.sasl.oauth_settings import KeySource
from odradek.shm.published_jwks import PublishedJwks
from tests.identity_provider import default_jwks, jwks, private_key, public_jwk
from tests.waiting import until_async

SOURCE = KeySource("https://idp/jwks", 3_600_000, 100, 10_000)
OTHER = KeySource("https://other/jwks", 3_600_000, 100, 10_000)
EC = jwks(public_jwk(private_key("ES256"), kid="e"))


class TimedLoop:
    """The running loop, whose timers and clock the test moves."""

    def __init__(self):
        self._loop = asyncio.get_running_loop()
        self.now = 1000.0
        self.timers = []

    def __getattr__(self, name):
        return getattr(self._loop, name)

    def time(self):
        return self.now

    def call_later(self, delay, callback, *args):
        timer = Timer(self.now + delay, callback, args)
        self.timers.append(timer)
        return timer

    def waits(self):
        """The delays of the timers, in seconds."""
        return sorted(round(timer.due - self.now, 3) for timer in self.timers if not timer.ended)

    def advance(self, seconds):
        self.now += seconds
        for timer in list(self.timers):
            if timer.due <= self.now and not timer.ended:
                timer.ended = True
                timer.callback(*timer.args)


class Timer:
    def __init__(self, due, callback, args):
        self.due, self.callback, self.args, self.ended = due, callback, args, False

    def cancel(self):
        self.ended = True


class Provider:
    """What `read` gets. Set `held` to an Event to let the reads wait for it."""

    def __init__(self):
        self.document = default_jwks()
        self.error = ""
        self.reads = 0
        self.held = None

    def __call__(self, source):
        self.reads += 1
        if self.held is not None:
            self.held.wait()
        if self.error:
            raise HttpError(self.error)
        return self.document


class Harness:
    def __init__(self, sources=None, published=None):
        self.loop = TimedLoop()
        self.provider = Provider()
        self.published = PublishedJwks() if published is None else published
        self.wakes = 0
        self.reader = JwksReader(
            self.loop, {"OA": SOURCE} if sources is None else sources, self.published, self.wake, self.provider, parse
        )

    def wake(self):
        self.wakes += 1

    def state(self, number=0):
        return self.published.read_providers()[1][number]

    async def wanted(self):
        """A token names a key that the newest published ones do not contain."""
        await self.reader.wanted("OA", self.published.version)

    async def after(self, attempts):
        """Wait until so many attempts have ended."""
        await until_async(lambda: self.attempts() == attempts, lambda: f"{self.attempts()} of {attempts} attempts")

    def attempts(self):
        providers = self.published.read_providers()[1]
        return sum(provider.reads + provider.failures for provider in providers)


def run(test):
    def wrapper(*args, **named):
        asyncio.run(test(*args, **named))

    wrapper.__name__ = test.__name__
    wrapper.__wrapped__ = None
    del wrapper.__wrapped__
    return wrapper


@run
async def test_keys_are_read_at_the_start_and_after_the_interval():
    harness = Harness()
    harness.reader.start()
    await harness.after(1)
    state = harness.state()
    assert (state.listeners, state.url, state.keys_version, state.failures) == (("OA",), SOURCE.url, 1, 0)
    assert [key["kid"] for key in state.keys] == ["k1"] and state.read_ms > 0 and harness.wakes == 1
    assert harness.loop.waits() == [3600]
    harness.loop.advance(3600)
    await harness.after(2)
    assert harness.state().keys_version == 1  # the same keys


@run
async def test_after_failures_the_old_keys_stay_and_the_delay_doubles_up_to_its_maximum(caplog=None):
    harness = Harness()
    harness.reader.start()
    await harness.after(1)
    harness.provider.error = "it is down"
    waits, attempts = [], 1
    harness.loop.advance(3600)
    for _ in range(10):
        attempts += 1
        await harness.after(attempts)
        (wait,) = harness.loop.waits()
        waits.append(wait)
        harness.loop.advance(wait)
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10]
    await harness.after(attempts + 1)
    state = harness.state()
    assert [key["kid"] for key in state.keys] == ["k1"] and state.keys_version == 1 and state.error == "it is down"
    harness.provider.error, harness.provider.document = "", EC
    harness.loop.advance(10)
    await harness.after(attempts + 2)
    state = harness.state()
    assert [key["kid"] for key in state.keys] == ["e"] and (state.keys_version, state.error) == (2, "")
    assert harness.loop.waits() == [3600]


@pytest.mark.parametrize("document", [b"", b"{}", b'{"keys":[]}', b"<html>", jwks({"kty": "oct", "k": "c2VjcmV0"})])
def test_a_document_without_usable_keys_is_a_failure(document):
    @run
    async def test():
        harness = Harness()
        harness.reader.start()
        await harness.after(1)
        harness.provider.document = document
        harness.loop.advance(3600)
        await harness.after(2)
        assert harness.state().failures == 1 and harness.state().keys and "c2VjcmV0" not in str(harness.state())

    test()


@run
async def test_unknown_keys_lead_to_one_attempt_in_ten_seconds_which_all_wait_for():
    harness = Harness()
    harness.reader.start()
    await harness.after(1)
    harness.provider.held = threading.Event()
    waiting = [asyncio.ensure_future(harness.wanted()) for _ in range(50)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    harness.provider.held.set()
    await asyncio.gather(*waiting)
    assert harness.provider.reads == 2
    harness.loop.advance(WANTED_APART_S - 0.1)
    for _ in range(50):
        await harness.wanted()
    assert harness.provider.reads == 2
    harness.loop.advance(0.2)
    await harness.wanted()
    assert harness.provider.reads == 3
    assert harness.loop.waits() == [3600]  # and one timer, not one for each attempt


@run
async def test_a_question_that_is_cancelled_does_not_cancel_the_attempt_of_others():
    harness = Harness()
    harness.provider.held = threading.Event()
    harness.reader.start()
    first, second = (asyncio.ensure_future(harness.wanted()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    harness.provider.held.set()
    await second
    assert harness.provider.reads == 1 and harness.state().keys


@run
async def test_who_knows_only_older_keys_than_those_published_needs_no_attempt():
    harness = Harness()
    harness.reader.start()
    await harness.after(1)
    await harness.reader.wanted("OA", 0)
    assert harness.provider.reads == 1
    await harness.wanted()
    assert harness.provider.reads == 2


@run
async def test_an_unknown_listener_is_answered_at_once():
    harness = Harness()
    await harness.reader.wanted("XX", 0)
    assert harness.provider.reads == 0


@run
async def test_a_provider_that_hangs_delays_no_other():
    harness = Harness({"OA": SOURCE, "OB": OTHER, "OC": SOURCE})
    held = threading.Event()
    harness.reader._read = lambda source: held.wait() and default_jwks() if source == SOURCE else EC
    harness.reader.start()
    await until_async(lambda: len(harness.published.read_providers()[1]) == 2, "the second provider")
    assert harness.state(1).listeners == ("OB",) and harness.state(1).keys and not harness.state(0).keys
    held.set()
    await harness.after(2)
    assert harness.state(0).listeners == ("OA", "OC")


@run
async def test_the_successor_continues_with_the_keys_of_its_predecessor():
    before = Harness()
    before.reader.start()
    await before.after(1)
    before.reader.close()
    after = Harness(published=before.published)
    after.provider.error = "it is down"
    after.reader.start()
    await after.after(2)
    state = after.state()
    assert state.keys and (state.reads, state.failures, state.keys_version) == (1, 1, 1)


@run
async def test_after_the_close_no_attempt_begins():
    harness = Harness()
    harness.provider.held = threading.Event()
    harness.reader.start()
    waiting = asyncio.ensure_future(harness.wanted())
    await asyncio.sleep(0)
    harness.reader.close()
    await waiting  # although the attempt has not ended: the coordinator stops when all questions are answered
    harness.provider.held.set()
    await harness.after(1)
    assert harness.loop.waits() == []


def test_a_lasting_failure_is_logged_once_a_minute_and_when_it_changes(caplog):
    @run
    async def test():
        harness = Harness()
        harness.provider.error = "it is down"
        harness.reader.start()
        for attempt in range(1, 30):
            await harness.after(attempt)
            harness.loop.advance(10)
        await harness.after(30)
        harness.provider.error = "it redirects"
        harness.loop.advance(10)
        await harness.after(31)

    with caplog.at_level(logging.ERROR, "odradek.security"):
        test()
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if "it is down" in line]) == 5
    assert len([line for line in lines if "it redirects" in line]) == 1
    assert "no client can log in with OAUTHBEARER on OA; retrying in" in lines[0]


def test_an_internal_error_of_an_attempt_is_a_failure(caplog):
    @run
    async def test():
        harness = Harness()
        harness.reader._parse = lambda document: 1 // 0
        harness.reader.start()
        await harness.after(1)
        assert harness.state().error == "internal error: ZeroDivisionError"

    test()


# -- files -----------------------------------------------------------------------------------------------------------


def of_file(path):
    return SOURCE._replace(url=f"file://{path}")


def test_a_file_is_read_each_time(tmp_path):
    path = tmp_path / "the keys.json"
    path.write_bytes(b"one")
    assert download(of_file(str(path).replace(" ", "%20"))) == b"one"
    path.write_bytes(b"two")
    assert download(of_file(str(path).replace(" ", "%20"))) == b"two"


def test_files_that_cannot_be_read_or_never_end_are_failures(tmp_path, monkeypatch):
    import os

    os.mkfifo(tmp_path / "pipe")
    for path, words in (
        (tmp_path / "none", "No such file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "pipe", "it is no regular file"),
        ("/dev/zero", "it is no regular file"),
    ):
        with pytest.raises(HttpError, match=words):
            download(of_file(path))
    monkeypatch.setattr(jwks_reader, "LARGEST_BYTES", 10)
    (tmp_path / "large").write_bytes(b"x" * 11)
    with pytest.raises(HttpError, match="more than 10 bytes"):
        download(of_file(tmp_path / "large"))


def test_a_trust_store_that_cannot_be_read_is_a_failure(tmp_path):
    with pytest.raises(HttpError, match=r"ssl\.truststore\.location"):
        download(SOURCE._replace(trust=(f"{tmp_path}/none", None, None, None)))
