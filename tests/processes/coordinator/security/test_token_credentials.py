"""The derived credentials of delegation tokens: how often they are computed, how many are kept, and what a failure leaves."""

import asyncio
import threading

import pytest

from odradek.net.forward_frames import ForwardReply, Status
from odradek.processes.coordinator.security import token_credentials
from odradek.processes.coordinator.security.token_credentials import THREADS, Derivation, TokenCredentials
from odradek.security.sasl.scram_credential import SHA_256, SHA_512, credential_of, salted_password


def derivation(password="password", mechanism=SHA_256, salt=b"salt"):
    return Derivation(
        mechanism, password, salt, lambda credential: ForwardReply(Status.OK, 0, bytes(credential.stored_key))
    )


def run(work, most=10, threads=1):
    async def with_credentials():
        credentials = TokenCredentials(asyncio.get_running_loop(), most, threads)
        try:
            return await work(credentials)
        finally:
            credentials.close()

    return asyncio.run(with_credentials())


@pytest.fixture
def computed(monkeypatch):
    """The passwords for which a credential was computed."""
    passwords = []

    def salted(mechanism, password, salt, iterations):
        passwords.append(password)
        if password == b"fails" and passwords.count(password) == 1:
            raise MemoryError
        return salted_password(mechanism, password, salt, iterations)

    monkeypatch.setattr(token_credentials, "salted_password", salted)
    return passwords


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_the_credential_is_that_of_the_password(mechanism):
    reply = run(lambda credentials: credentials.answer(derivation(mechanism=mechanism)))
    salted = salted_password(mechanism, b"password", b"salt", 4096)
    assert reply.payload == credential_of(mechanism, salted, b"salt", 4096).stored_key


def test_a_credential_is_derived_once_however_many_ask(computed):
    async def work(credentials):
        return await asyncio.gather(
            *(credentials.answer(derivation()) for _ in range(20)), credentials.answer(derivation())
        )

    assert len({reply.payload for reply in run(work)}) == 1
    assert computed == [b"password"]


def test_mechanisms_and_salts_have_credentials_of_their_own(computed):
    async def work(credentials):
        for one in (derivation(), derivation(mechanism=SHA_512), derivation(salt=b"other")) * 2:
            await credentials.answer(one)

    run(work)
    assert len(computed) == 3


def test_the_least_recently_used_credential_gives_way(computed):
    async def work(credentials):
        for password in ("a", "b", "a", "c", "a", "b"):
            await credentials.answer(derivation(password))

    run(work, most=2)
    assert computed == [b"a", b"b", b"c", b"b"]


def test_a_failure_is_not_kept(computed):
    async def work(credentials):
        with pytest.raises(MemoryError):
            await credentials.answer(derivation("fails"))
        return await credentials.answer(derivation("fails"))

    assert run(work).status == Status.OK and len(computed) == 2


def test_a_client_that_leaves_does_not_cancel_the_derivation_of_others(computed):
    async def work(credentials):
        first = asyncio.ensure_future(credentials.answer(derivation()))
        second = asyncio.ensure_future(credentials.answer(derivation()))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert run(work).status == Status.OK and computed == [b"password"]


def test_credentials_are_derived_at_the_same_time_but_no_more_than_there_are_threads(monkeypatch):
    together, lock, running, most = threading.Barrier(2), threading.Lock(), [0], [0]

    def salted(mechanism, password, salt, iterations):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        together.wait(30)  # fails unless another one is under way
        with lock:
            running[0] -= 1
        return salted_password(mechanism, password, salt, iterations)

    monkeypatch.setattr(token_credentials, "salted_password", salted)
    names = [f"p{number}" for number in range(8)]

    async def work(credentials):
        return await asyncio.gather(*(credentials.answer(derivation(name)) for name in names))

    replies = run(work, threads=2)
    for name, reply in zip(names, replies, strict=True):
        salted = salted_password(SHA_256, name.encode(), b"salt", 4096)
        assert reply.payload == credential_of(SHA_256, salted, b"salt", 4096).stored_key
    assert most[0] == 2 and 1 <= THREADS <= 4


def test_nothing_shows_the_password():
    assert "password" not in repr(derivation())
