"""The file in which a broker notes its session, and the session in the shared memory."""

import json
import stat

import pytest

import odradek._ext.shm.brokers as brokers
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.metadata.store import Session, SessionExpired, StoreUnavailable
from odradek.processes.coordinator.cluster import broker_session
from odradek.processes.coordinator.cluster.broker_session import FILE, BrokerSession, SessionFile
from odradek.storage.log_directory import LOCK

SESSION = Session(0x1234_5678_9ABC_DEF0, bytes(range(16)))


@pytest.fixture
def directory(tmp_path):
    (tmp_path / LOCK).touch()
    return tmp_path


def test_only_the_owner_may_read_the_session(directory):
    SessionFile(directory).note(SESSION)
    assert stat.S_IMODE((directory / FILE).stat().st_mode) == 0o600
    assert SessionFile(directory).read() == SESSION
    SessionFile(directory).note(Session(5, b"other"))
    assert SessionFile(directory).read() == Session(5, b"other")
    SessionFile(directory).delete()
    assert SessionFile(directory).read() is None
    SessionFile(directory).delete()


def test_the_session_of_a_copied_directory_is_not_used(directory, tmp_path, monkeypatch):
    SessionFile(directory).note(SESSION)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / LOCK).touch()
    (copy / FILE).write_bytes((directory / FILE).read_bytes())
    assert SessionFile(copy).read() is None
    machine = tmp_path / "machine-id"
    machine.write_text("another machine\n")
    monkeypatch.setattr(broker_session, "MACHINE_ID", machine)
    assert SessionFile(directory).read() is None
    SessionFile(directory).note(SESSION)
    assert SessionFile(directory).read() == SESSION
    machine.unlink()
    assert SessionFile(directory).read() is None
    SessionFile(directory).note(SESSION)
    assert SessionFile(directory).read() == SESSION, "a container has no machine id"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense",
        b"[]",
        b"{}",
        b'{"version":2}',
        b'{"version":1,"id":1,"password":"x","place":["",1,2]}',
    ],
)
def test_a_file_that_cannot_be_decoded_is_ignored(directory, content):
    (directory / FILE).write_bytes(content)
    assert SessionFile(directory).read() is None


def test_a_file_of_a_later_version_is_ignored(directory):
    SessionFile(directory).note(SESSION)
    value = json.loads((directory / FILE).read_text())
    (directory / FILE).write_text(json.dumps(value | {"version": 2}))
    assert SessionFile(directory).read() is None


def test_the_shared_memory_holds_the_session_for_the_successor():
    SharedMemory(64)
    assert brokers.session() is None
    brokers.note_session(SESSION.id, SESSION.password, 7)
    assert brokers.session() == (SESSION.id, SESSION.password, 7)
    brokers.note_zxid(9)
    assert brokers.session() == (SESSION.id, SESSION.password, 9)
    brokers.note_session(-5, b"", 10)
    assert brokers.session() == (-5, b"", 10)
    brokers.note_session(6, bytes(64), 11)
    assert brokers.session() == (6, bytes(64), 11)
    with pytest.raises(ValueError, match="65 bytes"):
        brokers.note_session(7, bytes(65), 12)
    assert brokers.session() == (6, bytes(64), 11)
    brokers.note_session(0, b"", 0)
    assert brokers.session() is None


class Store:
    """A connection to ZooKeeper. ``answers``: what `start_session` does with a session to be resumed, one after another."""

    options = None
    last_zxid = 7

    def __init__(self, *answers):
        self.answers, self.session = list(answers), None

    def start_session(self, resume=None, last_zxid=0):
        error = self.answers.pop(0) if resume is not None else None
        if error is not None:
            raise error
        self.session = resume or Session(99, b"new")

    def sync(self):
        assert self.session is not None


REFUSED = StoreUnavailable("no answer")


@pytest.mark.parametrize(
    ("answers", "works", "resumed"),
    [
        ((None,), True, True),
        ((SessionExpired("expired"),), True, False),
        ((REFUSED, None), True, True),
        ((REFUSED, REFUSED), True, False),
        ((REFUSED, SessionExpired("expired")), True, False),
        ((REFUSED,), False, None),
    ],
)
def test_a_successor_begins_a_new_session_if_zookeeper_refuses_that_of_its_predecessor(
    directory, monkeypatch, answers, works, resumed
):
    """A restored ZooKeeper refuses it without an answer. If it accepts no other session either, it does not work."""
    SharedMemory(64)
    brokers.note_session(SESSION.id, SESSION.password, 500)
    monkeypatch.setattr(broker_session, "accepts", lambda options: works)
    store = Store(*answers)
    if resumed is None:
        with pytest.raises(StoreUnavailable):
            BrokerSession(store, directory).begin()
        assert brokers.session() == (SESSION.id, SESSION.password, 500)
        return
    BrokerSession(store, directory).begin()
    assert store.answers == []
    assert store.session == (SESSION if resumed else Session(99, b"new"))
    assert brokers.session() == ((SESSION.id, SESSION.password, 500) if resumed else (99, b"new", 7))
