"""The broker's session in ZooKeeper over the lives of its processes. Used in the coordinator's store thread.

- The successor of a coordinator resumes its session from the shared memory: the registration stays, so no other broker notices
  anything, and this broker stays the controller's broker of the same epoch.
- The first coordinator after a start ends the session of the previous start, if that start could not: its processes are dead,
  because this start holds the locks of the log directories. So a broker that was killed can register again at once, with a new
  broker epoch, where it would otherwise wait for the session timeout. The session is noted in a file of the first log
  directory, together with the machine and the lock file, so that a copy of the directory does not end the session of a living
  broker.
"""

import json
import logging
from pathlib import Path
from typing import NamedTuple

import odradek._ext.shm.brokers as brokers
from odradek.metadata.store import Session, SessionExpired, StoreUnavailable
from odradek.metadata.zookeeper import ZookeeperStore
from odradek.metadata.zookeeper_connection import accepts
from odradek.storage.atomic_file import replace_file
from odradek.storage.file_names import LOCK

log = logging.getLogger("odradek.metadata")

FILE = "odradek.session"
VERSION = 1
MACHINE_ID = Path("/etc/machine-id")


class BrokerLocation(NamedTuple):
    """Where a broker runs: the machine, and the lock file of its first log directory."""

    machine: str
    device: int
    inode: int


def place_of(directory: Path) -> BrokerLocation:
    """The place of a broker with this first log directory, whose lock it holds. Raises OSError."""
    try:
        machine = MACHINE_ID.read_text().strip()
    except OSError:  # containers may have none; the lock file remains
        machine = ""
    stat = (directory / LOCK).stat()
    return BrokerLocation(machine, stat.st_dev, stat.st_ino)


class SessionFile:
    """The file in which a broker notes its session. Only its owner may read it: the password permits to end the session."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / FILE

    def note(self, session: Session) -> None:
        """Write the file. Raises OSError."""
        value = {
            "version": VERSION,
            "id": session.id,
            "password": session.password.hex(),
            "place": place_of(self._directory),
        }
        replace_file(self._path, json.dumps(value).encode(), mode=0o600)

    def read(self) -> Session | None:
        """The session of the previous start; None if there is none, or if it is not known to be that of a dead broker. Raises
        OSError."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            value = json.loads(data)
            if value["version"] != VERSION:
                return None
            session = Session(int(value["id"]), bytes.fromhex(value["password"]))
            place = BrokerLocation(*value["place"])
        except (ValueError, KeyError, TypeError) as error:
            log.warning("ignoring %s, which cannot be decoded: %r", self._path, error)
            return None
        if place != place_of(self._directory):
            log.info("ignoring %s: it was written on another machine, or its log directory was copied", self._path)
            return None
        return session

    def delete(self) -> None:
        """Delete the file after the session has ended. Raises OSError."""
        self._path.unlink(missing_ok=True)


class BrokerSession:
    """See the module.

    :param first: the first log directory.
    """

    def __init__(self, store: ZookeeperStore, first: Path) -> None:
        self._store = store
        self._file = SessionFile(first)

    def begin(self) -> None:
        """Resume the session of the predecessor of this process, or begin a session. Raises StoreError."""
        noted = brokers.session()
        if noted is None:
            self._end_previous()
        elif self._resume(*noted):
            return
        self._store.start_session()
        self.note()

    def _resume(self, session_id: int, password: bytes, last_zxid: int) -> bool:
        """Resume a session; returns whether that is possible. Raises StoreError.

        ZooKeeper refuses it without an answer if it was restored from a backup since: its transactions are older.
        """
        for refused in (False, True):
            try:
                self._store.start_session(Session(session_id, password), last_zxid)
            except SessionExpired as error:
                log.warning("%s; beginning a new one", error)
                return False
            except StoreUnavailable as error:
                if not accepts(self._store.options):
                    raise
                if refused:
                    log.warning(
                        "%s, but it accepts other sessions: it was restored or replaced; beginning a new one", error
                    )
            else:
                self._store.sync()
                log.info("resumed session %#x in ZooKeeper", session_id)
                return True
        return False

    def note(self) -> None:
        """Note the present session for the successors of this process and of this broker; called before it is used."""
        session, last_zxid = self._store.session, self._store.last_zxid
        assert session is not None
        brokers.note_session(session.id, session.password, last_zxid)
        try:
            self._file.note(session)
        except OSError as error:
            log.warning(
                "cannot note the session in %s: %s; if the broker is killed, its next start waits for the session timeout",
                error.filename, error.strerror,
            )  # fmt: skip

    def note_zxid(self) -> None:
        """Note the last transaction that this process has seen, so that its successor does not read older nodes."""
        brokers.note_zxid(self._store.last_zxid)

    def _end_previous(self) -> None:
        """End the session of the previous start of this broker. Raises StoreError."""
        try:
            session = self._file.read()
        except OSError as error:
            log.warning("cannot read %s: %s", error.filename, error.strerror)
            return
        if session is None:
            return
        store = ZookeeperStore(self._store.options)
        try:
            store.start_session(session)  # without a transaction: ZooKeeper may have been restored from an older backup
            store.end_session()
            log.info("ended session %#x of the previous start of this broker", session.id)
        except SessionExpired:
            log.debug("session %#x of the previous start had ended", session.id)
        finally:
            store.close()

    def end(self) -> None:
        """End the session, and with it the registration. Raises StoreError."""
        self._store.end_session()
        brokers.note_session(0, b"", 0)
        try:
            self._file.delete()
        except OSError as error:
            log.warning("cannot delete %s: %s", error.filename, error.strerror)
