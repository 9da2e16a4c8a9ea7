"""The coordinator's answers to workers about delegation tokens, and what it announces."""

from contextlib import closing
from types import SimpleNamespace

import pytest

from odradek.config import broker_config
from odradek.controller.delegation_tokens import opened_tokens
from odradek.metadata.sqlite import SqliteStore
from odradek.net.forward_frames import decode_credential, encode_credential_question
from odradek.processes.coordinator.security.token_credentials import Derivation
from odradek.processes.coordinator.store_service import StoreService
from odradek.security.delegation_token import password_of
from odradek.security.sasl.scram_credential import SHA_256, SHA_512, ScramCredential
from odradek.shm.credentials_version import CredentialsVersion, tokens_version

SETTINGS = ["delegation.token.secret.key=key", "delegation.token.expiry.time.ms=60000"]


class Office:
    """A StoreService whose membership has only tokens. It may be opened again, as that of a successor."""

    def __init__(self, store, settings):
        self.store = store
        self.config = broker_config.load(None, settings)
        self.tokens = None
        self.context = SimpleNamespace(
            config=self.config,
            credentials=CredentialsVersion(),
            tokens=tokens_version(),
            shm=SimpleNamespace(wake_all=lambda: None, processes=list),
        )
        self.open()

    def open(self):
        self.tokens = opened_tokens(self.config, self.store, notifies=False)
        view = SimpleNamespace(
            store=self.store, tokens=self.tokens, controller=SimpleNamespace(metadata_version=5), config=self.config
        )
        membership = SimpleNamespace(open=lambda: view, sweep=lambda: None, note_error=lambda error: None)
        self.service = StoreService(self.context, membership)
        self.service.open()

    def ask(self, name, mechanism=SHA_256, by_token=True):
        return self.service._credential(encode_credential_question(mechanism.name, name, by_token))


@pytest.fixture
def make_office(tmp_path):
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        yield lambda settings=SETTINGS: Office(store, settings)


@pytest.fixture
def office(make_office):
    return make_office()


def answered(reply):
    return decode_credential(reply.payload)


def test_a_coordinator_that_starts_announces_tokens_because_its_predecessor_may_have_ended_before_it_did(office):
    version = office.context.tokens.version
    office.open()
    assert office.context.tokens.version == version + 1


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_the_answer_for_a_token_has_its_owner_its_expiry_and_the_version_before_it_was_read(office, mechanism):
    token = office.tokens.create("User:al ice", "User:bob", [], -1)
    version = office.context.tokens.version
    asked = office.ask(token.token_id, mechanism)
    assert isinstance(asked, Derivation) and asked.mechanism == mechanism
    assert asked.password == password_of(office.tokens.hmac(token))
    office.tokens.expire("User:al ice", office.tokens.hmac(token), -1)
    assert office.context.tokens.version == version + 1
    reply = answered(asked.finish(ScramCredential(asked.salt, b"s", b"k", 4096)))
    assert reply.version == version and reply.credential.known
    assert (reply.credential.owner, reply.credential.expires_ms) == ("al ice", token.expires_ms)


def test_the_salt_of_a_token_is_equal_after_a_restart_and_as_that_of_a_token_that_does_not_exist(office):
    token = office.tokens.create("User:alice", "User:alice", [], -1)
    salt = office.ask(token.token_id).salt
    office.open()
    assert office.ask(token.token_id).salt == salt
    office.tokens.expire("User:alice", office.tokens.hmac(token), -1)
    assert answered(office.ask(token.token_id)).credential.salt == salt


@pytest.mark.parametrize("name", ["unknown", "../x", "a b", "ü"])
def test_an_unknown_id_gets_a_made_up_credential(office, name):
    credential = answered(office.ask(name)).credential
    assert not credential.known and not credential.owner and not credential.expires_ms
    assert credential.iterations == 4096 and len(credential.salt) == 32
    assert answered(office.ask(name)).credential == credential
    assert answered(office.ask(name, by_token=False)).credential.salt != credential.salt


def test_a_token_that_has_expired_or_whose_key_is_gone_is_unknown(office, make_office):
    token = office.tokens.create("User:alice", "User:alice", [], -1)
    assert isinstance(office.ask(token.token_id), Derivation)
    without = make_office([])
    assert without.tokens is None and not answered(without.ask(token.token_id)).credential.known
    office.tokens._now_ms = lambda: token.expires_ms + 1
    assert not answered(office.ask(token.token_id)).credential.known
