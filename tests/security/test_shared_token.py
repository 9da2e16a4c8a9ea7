"""The token that all connections of a process share: when it is got, who waits for it, and what a failure does."""

import asyncio
import logging
import os
import queue
import threading

import pytest

from odradek.security.sasl import shared_token
from odradek.security.sasl.client import LoginError, NoTokenError
from odradek.security.sasl.shared_token import SharedToken, attempt
from odradek.security.sasl.token_grant import GrantedToken
from odradek.security.sasl.token_settings import Grant, Renewal, TokenSource
from tests.identity_provider import token as signed
from tests.waiting import until

URL = "https://idp.example.org/token"
SOURCE = TokenSource(Grant(URL, "broker", "a-secret"), (("traceId", "7"),))
LIMIT_S = 30.0
WAITS_S = 0.01
NO_JITTER = Renewal(jitter=0.0)


class Provider:
    """Answers the attempts of a `SharedToken`; an attempt waits until `answer` is called. Time moves only by `pass_s`."""

    def __init__(self, renewal: Renewal = NO_JITTER) -> None:
        self.now = 0.0
        self.asked = 0
        self.counted: list[int] = []
        self._answers: queue.Queue[tuple[str, float] | Exception] = queue.Queue()
        self.shared = SharedToken(SOURCE, renewal, lambda: self.counted.append(1), self._get, lambda: self.now)

    def _get(self, source: TokenSource) -> tuple[str, float]:
        assert source is SOURCE
        self.asked += 1
        answer = self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def answer(self, token: str, lifetime_s: float = 1000.0) -> None:
        self._answers.put((token, lifetime_s))

    def fail(self, error: Exception | str) -> None:
        self._answers.put(error if isinstance(error, Exception) else LoginError(error))

    def pass_s(self, seconds: float) -> None:
        """The time passes, and the thread sees it."""
        with self.shared._changed:
            self.now += seconds
            self.shared._changed.notify_all()

    def until_idle(self) -> None:
        """Wait until the thread sleeps."""
        until(lambda: self.shared._attempt is None, "the attempt has ended")

    def token(self, limit_s: float = LIMIT_S) -> str:
        return self.shared.credentials(limit_s).token()


@pytest.fixture
def provider():
    made = Provider()
    yield made
    made.shared.close()
    made.fail("closed")  # lets an attempt under way end
    if made.shared._thread is not None:
        made.shared._thread.join(LIMIT_S)
        assert not made.shared._thread.is_alive()


def test_one_attempt_serves_all_who_wait(provider):
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(provider.token())) for _ in range(5)]
    for thread in threads:
        thread.start()
    until(lambda: provider.asked == 1, "the attempt")
    provider.answer("one")
    for thread in threads:
        thread.join()
    assert found == ["one"] * 5 and provider.asked == 1
    made = provider.shared.credentials(0)
    assert (made.token(), made.extensions, made.user) == ("one", {"traceId": "7"}, "client broker")


def test_the_token_is_got_before_somebody_asks_for_it(provider):
    provider.shared.start()
    until(lambda: provider.asked == 1, "the attempt")
    provider.answer("one")
    provider.until_idle()
    assert provider.token(0) == "one"


def test_nobody_waits_longer_than_the_limit(provider):
    with pytest.raises(NoTokenError, match=r"no token from https:.* within 0\.01 s"):
        provider.token(WAITS_S)
    with pytest.raises(NoTokenError, match=r"within 0\.01 s"):
        asyncio.run(provider.shared.credentials_in_loop(WAITS_S))
    until(lambda: provider.asked > 0, "the attempt")
    assert provider.asked == 1


def test_a_loop_waits_without_blocking(provider):
    async def both() -> tuple[str, str]:
        waiting = [asyncio.ensure_future(provider.shared.credentials_in_loop(LIMIT_S)) for _ in range(2)]
        await asyncio.sleep(0)
        provider.answer("one")
        first, second = await asyncio.gather(*waiting)
        return first.token(), second.token()

    assert asyncio.run(both()) == ("one", "one") and provider.asked == 1


def test_one_that_leaves_does_not_end_the_attempt_of_the_others(provider):
    async def leave() -> str:
        first = asyncio.ensure_future(provider.shared.credentials_in_loop(LIMIT_S))
        second = asyncio.ensure_future(provider.shared.credentials_in_loop(LIMIT_S))
        await asyncio.sleep(0)
        first.cancel()
        provider.answer("one")
        return (await second).token()

    assert asyncio.run(leave()) == "one"


def test_the_next_token_is_got_after_most_of_the_lifetime_and_the_present_one_is_used_until_then(provider):
    provider.answer("one", 1000)  # less 300 s, the buffer
    assert provider.token() == "one"
    provider.pass_s(699)
    assert provider.token(0) == "one" and provider.asked == 1
    provider.pass_s(1)
    until(lambda: provider.asked == 2, "the thread asks")
    assert provider.token(WAITS_S) == "one", "the provider is slow, and the present token valid"
    provider.answer("two")
    provider.until_idle()
    assert provider.token(0) == "two"


def test_a_login_late_in_the_lifetime_waits_for_the_next_token():
    provider = Provider(Renewal(jitter=0.25, least_s=0, buffer_s=0))
    provider.answer("one", 100)
    assert provider.token() == "one"
    with provider.shared._changed:
        provider.shared._due_at = 100  # as a random part of 0.2 would set it
        provider.now = 80
    provider.answer("two", 100)
    assert provider.token() == "two"
    provider.shared.close()


def test_a_failure_is_reported_once_and_counted_and_repeated_with_a_growing_delay(provider, caplog):
    caplog.set_level(logging.INFO)
    for number, wait_s in enumerate((0.1, 0.2, 0.4, 0.8), 1):
        provider.fail("a reason")
        with pytest.raises(NoTokenError, match="a reason"):
            provider.token()
        until(lambda number=number: len(provider.counted) == number, "it is counted")
        provider.until_idle()
        with pytest.raises(NoTokenError, match="a reason"):
            provider.token(0)
        provider.pass_s(wait_s - 0.001)
        assert provider.asked == number
        provider.pass_s(0.001)
        until(lambda number=number: provider.asked == number + 1, "the next attempt")
    provider.answer("one")
    provider.until_idle()
    assert provider.token(0) == "one"
    levels = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in levels] == ["ERROR", "INFO"]
    assert levels[0][1] == (
        "cannot get a token for logins at other brokers as client broker: a reason; this process cannot log in at other "
        "brokers; retrying in 0.1 s"
    )
    assert "a-secret" not in caplog.text


def test_the_present_token_outlives_a_failure_until_its_end(provider, caplog):
    provider.answer("one", 1000)
    assert provider.token() == "one"
    provider.fail("down")
    provider.pass_s(700)
    until(lambda: len(provider.counted) == 1, "it is counted")
    provider.until_idle()
    assert provider.token(0) == "one"
    provider.fail("down")
    provider.pass_s(300)
    until(lambda: len(provider.counted) == 2, "it is counted")
    provider.until_idle()
    with pytest.raises(NoTokenError, match="down"):
        provider.token(0)
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in lines] == ["WARNING", "ERROR"] and "the present one expires in 300 s" in lines[0][1]


def test_the_same_failure_is_logged_once_a_minute_and_another_one_at_once(provider, caplog):
    for seconds, reason in ((0, "one"), (30, "one"), (29, "one"), (1, "one"), (1, "two")):
        if provider.asked:
            provider.pass_s(seconds)
        provider.fail(reason)
        counted = len(provider.counted)
        provider.shared.start()
        until(lambda counted=counted: len(provider.counted) > counted, "the attempt")
        provider.until_idle()
        provider.shared._due_at = 0  # due now: what is tested here is the log
    reasons = [record.getMessage().split(": ")[1].split(";")[0] for record in caplog.records]
    assert reasons == ["one", "one", "two"]


def test_an_error_of_the_program_is_a_failure_like_others(provider, caplog):
    provider.fail(RuntimeError("a bug"))
    with pytest.raises(NoTokenError, match="internal error: RuntimeError"):
        provider.token()
    until(lambda: provider.counted, "it is counted")
    provider.answer("one")
    provider.pass_s(1)
    until(lambda: provider.shared._token, "the thread lives")
    assert "a bug" in caplog.text


def test_a_refused_token_is_replaced_but_not_at_once(provider):
    provider.answer("one")
    assert provider.token() == "one"
    provider.pass_s(9)
    provider.shared.refused("one")
    assert provider.token(0) == "one" and provider.asked == 1
    provider.pass_s(1)
    for _ in range(3):
        provider.shared.refused("one")
    provider.answer("two")
    assert provider.token() == "two" and provider.asked == 2
    provider.pass_s(100)
    provider.shared.refused("one")
    assert provider.token(0) == "two" and provider.asked == 2


def test_after_the_close_nothing_is_asked_and_the_token_is_still_used(provider):
    provider.answer("one")
    assert provider.token() == "one"
    provider.shared.close()
    provider.pass_s(999)
    assert provider.token(0) == "one"
    provider.pass_s(1)
    with pytest.raises(NoTokenError, match="settings of this broker have changed"):
        provider.token(0)
    assert provider.asked == 1


def test_a_close_ends_the_wait(provider):
    async def closing() -> None:
        waiting = asyncio.ensure_future(provider.shared.credentials_in_loop(LIMIT_S))
        await asyncio.sleep(0)
        provider.shared.close()
        provider.fail("an answer")
        with pytest.raises(NoTokenError):
            await waiting

    asyncio.run(closing())


def test_a_system_without_threads_is_a_failure_and_the_next_login_tries_again(provider, monkeypatch):
    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(shared_token.threading, "Thread", NoThread)
    provider.shared.start()
    for _ in range(2):
        with pytest.raises(NoTokenError, match="no thread can be started"):
            provider.token()
    monkeypatch.undo()
    provider.answer("one")
    assert provider.token() == "one"


@pytest.mark.parametrize(
    "lifetime_s, renewal, after_s",
    [
        (3600, Renewal(), 2880),
        (3600, Renewal(factor=1.0), 3300),  # so long before the end
        (600, Renewal(), 300),
        (300, Renewal(), 240),  # shorter than both limits together
        (1000, Renewal(least_s=900, buffer_s=0), 900),
        (1000, Renewal(least_s=0, buffer_s=0, jitter=0.1), 800),
    ],
)
def test_the_time_of_the_renewal_is_that_of_kafka(lifetime_s, renewal, after_s):
    assert renewal.after_s(lifetime_s) == after_s
    assert Renewal(least_s=0, buffer_s=0, jitter=0.1).after_s(1000, 1.0) == pytest.approx(900)
    assert [Renewal().retry_s(number) for number in (1, 2, 8, 1000)] == [0.1, 0.2, 10.0, 10.0]
    assert Renewal(backoff_ms=0).retry_s(1) == 0.1


# -- attempts ---------------------------------------------------------------------------------------------------------


def granted(monkeypatch, text: str, lifetime_s: float) -> tuple[str, float]:
    monkeypatch.setattr(shared_token, "new_token", lambda _: GrantedToken(text, lifetime_s))
    monkeypatch.setattr(shared_token.time, "time", lambda: 1000.0)
    return attempt(SOURCE)


def test_the_stated_lifetime_precedes_the_end_in_the_token(monkeypatch):
    made = signed(exp=1300)
    assert granted(monkeypatch, made, 60.0) == (made, 60.0), "it does not depend on the clock"
    assert granted(monkeypatch, made, 0.0) == (made, 300.0)
    assert granted(monkeypatch, "opaque", 0.0) == ("opaque", 60.0)
    with pytest.raises(
        LoginError, match=f"no token from {URL}: the token in its response has expired 10 s ago by the clock"
    ):
        granted(monkeypatch, signed(exp=990), 0.0)


def test_a_file_is_read_for_each_login(tmp_path):
    path = tmp_path / "token"
    shared = SharedToken(TokenSource(str(path)), Renewal(), lambda: None)
    shared.start()
    with pytest.raises(NoTokenError, match="cannot be read: No such file"):
        shared.credentials(LIMIT_S)
    for text in ("the.first", "the.second"):
        path.write_text(text)
        assert shared.credentials(LIMIT_S).token() == text
    shared.refused("the.second")
    path.unlink()
    path.mkdir()
    with pytest.raises(NoTokenError, match="Is a directory"):
        shared.credentials(LIMIT_S)
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(NoTokenError, match="is no regular file"):
        shared.credentials(LIMIT_S)
    shared.close()


def test_nothing_shows_the_secret(provider):
    provider.answer("a-token")
    made = provider.shared.credentials(LIMIT_S)
    assert "a-secret" not in f"{provider.shared!r}{made!r}" and "a-token" not in f"{provider.shared!r}{made!r}"
