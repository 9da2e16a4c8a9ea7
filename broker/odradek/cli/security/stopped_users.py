"""The SCRAM credentials in a metadata store, without a broker: ``odradek user --data-dir`` and ``--zookeeper``.

Runs in the process of the command. It holds the lock of the log directory of an embedded store, so that no broker can start
meanwhile. The brokers of a cluster may run: they are notified of the change in ZooKeeper, as by Kafka 3.9.
"""

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from odradek.cli.framework.failure import reason_of
from odradek.clients.users import UserCredential
from odradek.controller import scram
from odradek.metadata import sqlite, znodes
from odradek.metadata.sqlite import SqliteStore
from odradek.metadata.store import Store, StoreError, ensure_path, parent_of
from odradek.metadata.zookeeper import ZookeeperStore
from odradek.metadata.zookeeper_connection import ZookeeperOptions
from odradek.security.sasl.scram_credential import SALT_BYTES, ScramMechanism, credential_of, salted_password
from odradek.storage.log_directory import DIRECTORY_MODE, DirectoryInUseError, lock_directory


class StoppedUsersError(Exception):
    """The store cannot be used; one line."""


class StoppedUsers:
    """See the module. :param notifies: whether to notify the brokers of a cluster of changes."""

    def __init__(self, store: Store, notifies: bool = False) -> None:
        self._store = store
        self._notifies = notifies

    def credentials(self, user: str | None) -> list[UserCredential]:
        """The credentials of a user, or of all users. Raises StoreError."""
        steps = scram.described(self._store, None if user is None else [user])
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: dict[str, dict[ScramMechanism, int]] = end.value
                break
        return [
            UserCredential(name, mechanism.name, iterations)
            for name, of_user in sorted(found.items())
            for mechanism, iterations in of_user.items()
        ]

    def set_password(self, user: str, password: str, mechanisms: Sequence[ScramMechanism], iterations: int) -> None:
        """Set the credentials of a user. Raises StoppedUsersError, StoreError."""
        if not user:
            raise StoppedUsersError("the name of a user must not be empty")
        changes = []
        for mechanism in mechanisms:
            salt = secrets.token_bytes(SALT_BYTES)
            salted = salted_password(mechanism, password.encode(), salt, iterations)
            changes.append((mechanism, credential_of(mechanism, salted, salt, iterations)))
        scram.write(self._store, self._write_settings, user, changes)

    def remove(self, user: str, mechanisms: Sequence[ScramMechanism]) -> None:
        """Delete the credentials of a user. Raises StoppedUsersError, StoreError."""
        for mechanism in mechanisms:
            if scram.find(self._store, mechanism, user) is None:
                raise StoppedUsersError(f"user '{user}' has no {mechanism.name} credential")
        scram.write(self._store, self._write_settings, user, [(mechanism, None) for mechanism in mechanisms])

    def _write_settings(self, path: str, settings: Mapping[str, str], keep_empty: bool = True) -> None:
        transaction = self._store.transaction()
        exists = self._store.exists(path) is not None
        if not settings and not keep_empty and not (exists and self._store.children(path)):
            if not exists:
                return
            transaction.delete(path)
        elif exists:
            transaction.set(path, znodes.encode_config(settings))
        else:
            ensure_path(self._store, parent_of(path))
            transaction.create(path, znodes.encode_config(settings))
        if self._notifies:
            ensure_path(self._store, znodes.CONFIG_CHANGE.rpartition("/")[0])
            entity = path.removeprefix(f"{znodes.CONFIG}/")
            transaction.create(znodes.CONFIG_CHANGE, znodes.encode_config_change(entity), sequential=True)
        transaction.commit()


@contextmanager
def users_in_zookeeper(options: ZookeeperOptions, create: bool) -> Iterator[StoppedUsers]:
    """The users of a cluster, whose brokers need not run. Raises StoppedUsersError.

    :param create: whether to create the root of the cluster's nodes if it does not exist.
    """
    try:
        if not create:
            with closing(ZookeeperStore(options._replace(servers=options.hosts))) as store:
                store.start_session()
                exists = not options.chroot or store.exists(options.chroot) is not None
                store.end_session()
            if not exists:
                raise StoppedUsersError(f"ZooKeeper at {options.hosts} has no node {options.chroot}")
        with closing(ZookeeperStore(options)) as store:
            store.start_session()
            store.sync()
            yield StoppedUsers(store, notifies=True)
            store.end_session()
    except StoreError as error:
        raise StoppedUsersError(f"ZooKeeper at {options.servers}: {error}") from None


@contextmanager
def stopped_users(directory: Path, create: bool) -> Iterator[StoppedUsers]:
    """The users in the store of a log directory. Raises StoppedUsersError.

    :param create: whether to create the directory and the store if they do not exist.
    """
    path = directory / sqlite.FILE_NAME
    if create:
        try:
            directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise StoppedUsersError(f"cannot create {directory}: {reason_of(error)}") from None
    elif not path.exists():
        raise StoppedUsersError(f"{directory} has no metadata store ({sqlite.FILE_NAME}): name the first log directory")
    try:
        lock = lock_directory(directory)
    except DirectoryInUseError as error:
        raise StoppedUsersError(
            f"{error}; without --data-dir, the command changes the users of the running broker"
        ) from None
    except OSError as error:
        raise StoppedUsersError(f"cannot lock {directory}: {reason_of(error)}") from None
    try:
        store = SqliteStore(path)
        try:
            yield StoppedUsers(store)
        finally:
            store.close()
    except StoreError as error:
        raise StoppedUsersError(str(error)) from None
    finally:
        os.close(lock)
