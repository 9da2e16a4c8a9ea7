"""Opens the log directories before anything is loaded: creates, locks and identifies them. Owned by the supervisor.

Kafka's rules apply: a directory belongs to one cluster and one node (``meta.properties``), and to one process (``.lock``).
"""

import logging
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from odradek.config.broker_config import BrokerConfig
from odradek.config.pid_file import read_pid_file
from odradek.metadata.sqlite import FILE_NAME
from odradek.processes.supervisor.generated_id import NoGeneratedId, generated_broker_id
from odradek.storage.log_directory import (
    DIRECTORY_MODE,
    CorruptMetadataError,
    DirectoryInUseError,
    MetaProperties,
    encode_uuid,
    lock_directory,
    read_meta_properties,
    take_clean_shutdown,
    write_meta_properties,
)

log = logging.getLogger("odradek.supervisor")


class StartError(Exception):
    """The broker cannot start; the message is one line that names the cause."""


class _UnusableDirectory(Exception):
    """A directory cannot be used; the message is one line that names it."""


def _closed_above(path: Path) -> Path | None:
    """The first directory above `path`, from the root, that this user may not enter."""
    return next((above for above in reversed(path.parents) if not os.access(above, os.X_OK)), None)


def _reason(error: OSError, path: Path) -> str:
    return f"log directory {error.filename or path}: {error.strerror}"


def _holder(path: Path) -> str:
    """How to stop the broker that holds the lock, if the directory's pid file names it, as a suffix of an error message."""
    try:
        running = read_pid_file(str(path))
    except (OSError, ValueError):
        return ""
    if running is None or not running.is_alive():
        return ""
    return f"; that broker is process {running.pid}: `odradek stop --pid {running.pid}` stops it"


class LogDirectories:
    """The configured log directories, open and locked, as a context manager.

    If a directory cannot be created, read or written, it is left offline and logged, as in Kafka. This does not apply to the
    first directory, which holds the metadata store: without it the broker does not start.

    Attributes: `paths`; `fds`, one for each directory, -1 if it is offline; `online`; `clean`: whether it was shut down cleanly
    before this start, set by `take_clean_marks`; `cluster_id`.

    :raises StartError: the first directory cannot be used, a directory belongs to another cluster or node, another broker
        holds a directory, or a broker that is to use ZooKeeper finds an embedded metadata store.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self.paths = [Path(path) for path in config.log_dirs]
        self.first = self.paths[0]
        self.fds: list[int] = []
        self.online = [True] * len(self.paths)
        self.clean = [False] * len(self.paths)
        self.cluster_id = ""
        self._locks: list[int] = []
        self._config = config

    def __enter__(self) -> "LogDirectories":
        try:
            for number, path in enumerate(self.paths):
                try:
                    self._open(path)
                except _UnusableDirectory as reason:
                    self._set_offline(number, str(reason))
            self._refuse_unused_metadata()
            self._identify()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for fd in self.descriptors:
            os.close(fd)
        self.fds, self._locks = [], []

    @property
    def descriptors(self) -> list[int]:
        """The descriptors of the directories and of their locks. Every child inherits them, so the locks last as long as any
        process of the broker."""
        return [fd for fd in (*self.fds, *self._locks) if fd >= 0]

    def _set_offline(self, number: int, reason: str) -> None:
        """Continue without a directory. Raises StartError for the first one, without which the broker cannot start."""
        if number == 0:
            consequence = (
                "; it holds the metadata, so the broker cannot start without it" if len(self.paths) > 1 else ""
            )
            raise StartError(f"{reason}{consequence}")
        self.online[number] = False
        if len(self.fds) <= number:
            self.fds.append(-1)
        log.error("%s; it is offline with its partitions until it is repaired and the broker is restarted", reason)

    def take_clean_marks(self) -> None:
        """Read and delete the clean-shutdown markers. Called when nothing else can prevent the start: a start that failed after
        this would leave directories without the marker."""
        for number, path in enumerate(self.paths):
            if self.online[number]:
                try:
                    self.clean[number] = take_clean_shutdown(path)[0]
                except OSError as error:
                    self._set_offline(number, _reason(error, path))

    def now_unclean(self) -> None:
        """Mark all directories as unclean: the processes of this start died, so the logs must be recovered."""
        self.clean = [False] * len(self.paths)

    def _open(self, path: Path) -> None:
        try:
            path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        except FileExistsError:
            raise _UnusableDirectory(f"log directory {path} is not a directory") from None
        except OSError as error:
            closed = _closed_above(path) if isinstance(error, PermissionError) else None
            if closed is not None:
                raise _UnusableDirectory(
                    f"log directory {path} cannot be reached: this user may not enter {closed}; allow it, or set log.dirs to a"
                    " directory that this user may write"
                ) from error
            raise _UnusableDirectory(
                f"log directory {path} cannot be created: {error.strerror}; create it for this user, or set log.dirs to a"
                " directory that this user may write"
            ) from error
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise _UnusableDirectory(f"log directory {path} is not readable and writable by this user")
        try:
            with os.scandir(path):
                pass
            self._locks.append(lock_directory(path))
            self.fds.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except DirectoryInUseError as error:
            raise StartError(f"{error}{_holder(path)}") from error
        except OSError as error:
            raise _UnusableDirectory(_reason(error, path)) from error

    def _refuse_unused_metadata(self) -> None:
        """Raise StartError if the configuration names ZooKeeper, but a log directory contains an embedded metadata store.

        This happens after `odradek adopt` with the configuration of a Kafka broker in ZooKeeper mode, and if somebody
        forgets the option ``metadata.store=embedded``. The broker would serve the topics of ZooKeeper from unrelated logs.
        """
        if not self._config.clustered:
            return
        for path in self.paths:
            if (path / FILE_NAME).exists():
                raise StartError(
                    f"{path / FILE_NAME} contains this broker's own metadata, but zookeeper.connect is set: set"
                    " metadata.store=embedded to use them; to join the cluster of zookeeper.connect, set log.dirs to new, empty"
                    " directories"
                )

    def _identify(self) -> None:
        identities: list[MetaProperties | None] = []
        for number, path in enumerate(self.paths):
            try:
                identities.append(read_meta_properties(path) if self.online[number] else None)
            except CorruptMetadataError as error:
                raise StartError(str(error)) from error
            except OSError as error:
                identities.append(None)
                self._set_offline(number, _reason(error, path))
        present = [identity for identity in identities if identity is not None]
        nodes = {identity.node_id for identity in present if identity.node_id is not None}
        if not self._config.node_id_is_configured and len(nodes) == 1:
            node_id = nodes.pop()
            assert node_id is not None
            self._config.use_node_id(node_id)
        elif self._config.clustered and not self._config.node_id_is_configured and not nodes:
            self._config.use_node_id(self._generated_id())
        for path, identity in zip(self.paths, identities, strict=True):
            if identity is not None and identity.node_id is not None and identity.node_id != self._config.node_id:
                raise StartError(
                    f"log directory {path} belongs to node {identity.node_id}, but node.id is {self._config.node_id}: "
                    f"set node.id to {identity.node_id} or log.dirs to another directory"
                )
        self._identify_cluster(identities)

    def _generated_id(self) -> int:
        try:
            node_id = generated_broker_id(self._config)
        except NoGeneratedId as error:
            raise StartError(
                f"broker.id is not set, and ZooKeeper did not generate one: {error}. Set broker.id, or start ZooKeeper"
            ) from error
        log.info("ZooKeeper generated the broker id %d", node_id)
        return node_id

    def _identify_cluster(self, identities: Sequence[MetaProperties | None]) -> None:
        present = [identity for identity in identities if identity is not None]
        clusters = {identity.cluster_id for identity in present if identity.cluster_id}
        if len(clusters) > 1:
            raise StartError(f"the log directories belong to different clusters: {', '.join(sorted(clusters))}")
        if clusters:
            self.cluster_id = clusters.pop()
        elif self._config.clustered:
            return  # the coordinator writes the files when it has read the id of the cluster
        else:
            self.cluster_id = encode_uuid(uuid.uuid4())
        for number, (path, identity) in enumerate(zip(self.paths, identities, strict=True)):
            if self.online[number] and (identity is None or identity.cluster_id is None or identity.node_id is None):
                directory_id = identity.directory_id if identity and identity.directory_id else uuid.uuid4()
                try:
                    write_meta_properties(path, MetaProperties(1, self._config.node_id, self.cluster_id, directory_id))
                except OSError as error:
                    self._set_offline(number, _reason(error, path))
