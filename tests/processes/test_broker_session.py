"""The file in which a broker notes its session, and the session in the shared memory."""

import json
import stat

import pytest

import odradek._ext.shm.brokers as brokers
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.metadata.store import Session
from odradek.processes import broker_session
from odradek.processes.broker_session import FILE, IDS_OF_NEW_BACKUP, IDS_OF_OLD_BACKUP, BrokerSession, SessionFile
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
    """What `BrokerSession` uses of a connection to ZooKeeper. ``session``: None before the first one."""

    session = None
    last_zxid = 0

    def start_session(self, resume=None, last_zxid=0):
        assert resume is None
        self.session, self.last_zxid = Session(SESSION.id + 1, SESSION.password), 0
        return self.session


def test_the_producer_ids_that_a_restored_store_may_have_forgotten(directory):
    """What the former session has seen stays in the shared memory, also if the process dies before it notes the new one."""
    SharedMemory(64)
    store = Store()
    session = BrokerSession(store, directory)
    session.begin()
    assert session.forgotten_ids() == 0, "there was no session before"
    store.last_zxid = 500
    session.note()
    store.last_zxid = 700
    session.note_zxid()
    assert session.forgotten_ids() == 0
    store.session, store.last_zxid = SESSION, 0
    session.note_zxid()
    assert session.forgotten_ids() == IDS_OF_NEW_BACKUP, "nothing was read yet"
    store.last_zxid = 600
    session.note_zxid()
    assert session.forgotten_ids() == IDS_OF_OLD_BACKUP
    assert BrokerSession(store, directory).forgotten_ids() == IDS_OF_OLD_BACKUP, "a successor"
    store.last_zxid = 800
    assert session.forgotten_ids() == IDS_OF_NEW_BACKUP
    store.last_zxid = 600
    session.note()
    assert session.forgotten_ids() == 0
    assert brokers.session() == (SESSION.id, SESSION.password, 600)
