"""The log directories before anything is loaded: made, locked, checked to be this broker's. Owned by the supervisor.

Kafka's rules: a directory belongs to one cluster and one node (``meta.properties``), and to one process (``.lock``).
"""

import logging
import os
import uuid
from pathlib import Path
from types import TracebackType

from odradek.config.broker_config import BrokerConfig
from odradek.config.pid_file import read_pid_file
from odradek.storage.log_directory import (
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
    """The broker cannot start; the message is one line that names what is wrong."""


class _Unusable(Exception):
    """A directory that cannot be used; the message is a line that names it."""


def _reason(error: OSError, path: Path) -> str:
    return f"log directory {error.filename or path}: {error.strerror}"


def _holder(path: Path) -> str:
    """Who holds the lock, as far as the directory's pid file tells."""
    try:
        running = read_pid_file(str(path))
    except (OSError, ValueError):
        return ""
    return f" (by process {running.pid})" if running is not None and running.is_alive() else ""


class LogDirectories:
    """The configured log directories, open and locked, as a context.

    One among several that cannot be made, read or written is left offline with a line in the log, as by Kafka; not the first
    one, which holds the metadata store, nor the only one.

    Attributes: `paths`; `fds`, one a directory, -1 where it is offline; `online`; `clean`: closed in order before this start,
    known from `take_clean_marks` on; `cluster_id`.

    :raises StartError: the first directory cannot be used, or one belongs to another cluster or node, or another broker holds
        it.
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
                except _Unusable as reason:
                    self._set_offline(number, str(reason))
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
        """What every child inherits: the directories, and their locks, which thereby last as long as any process."""
        return [fd for fd in (*self.fds, *self._locks) if fd >= 0]

    def _set_offline(self, number: int, reason: str) -> None:
        """Go on without a directory, or not at all. Raises StartError."""
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
        """Learn and forget which directories were closed in order; once nothing else can keep the broker from starting."""
        for number, path in enumerate(self.paths):
            if self.online[number]:
                try:
                    self.clean[number] = take_clean_shutdown(path)[0]
                except OSError as error:
                    self._set_offline(number, _reason(error, path))

    def now_unclean(self) -> None:
        """The processes of this start died: whatever is loaded next is to be recovered."""
        self.clean = [False] * len(self.paths)

    def _open(self, path: Path) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise _Unusable(f"log directory {path} is not a directory") from None
        except OSError as error:
            raise _Unusable(f"log directory {path} cannot be created: {error.strerror}") from error
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise _Unusable(f"log directory {path} is not readable and writable by this user")
        try:
            with os.scandir(path):
                pass
            self._locks.append(lock_directory(path))
            self.fds.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except DirectoryInUseError as error:
            raise StartError(f"{error}{_holder(path)}") from error
        except OSError as error:
            raise _Unusable(_reason(error, path)) from error

    def _identify(self) -> None:
        found: list[MetaProperties | None] = []
        for number, path in enumerate(self.paths):
            try:
                found.append(read_meta_properties(path) if self.online[number] else None)
            except CorruptMetadataError as error:
                raise StartError(str(error)) from error
            except OSError as error:
                found.append(None)
                self._set_offline(number, _reason(error, path))
        known = [one for one in found if one is not None]
        nodes = {one.node_id for one in known if one.node_id is not None}
        if not self._config.node_id_is_configured and len(nodes) == 1:
            node_id = nodes.pop()
            assert node_id is not None
            self._config.node_id = node_id
        for path, one in zip(self.paths, found, strict=True):
            if one is not None and one.node_id is not None and one.node_id != self._config.node_id:
                raise StartError(
                    f"log directory {path} belongs to node {one.node_id}, but node.id is {self._config.node_id}: "
                    "set node.id to that number or log.dirs to another directory"
                )
        clusters = {one.cluster_id for one in known if one.cluster_id}
        if len(clusters) > 1:
            raise StartError(f"the log directories belong to different clusters: {', '.join(sorted(clusters))}")
        self.cluster_id = clusters.pop() if clusters else encode_uuid(uuid.uuid4())
        for number, (path, one) in enumerate(zip(self.paths, found, strict=True)):
            if self.online[number] and (one is None or one.cluster_id is None or one.node_id is None):
                directory_id = one.directory_id if one and one.directory_id else uuid.uuid4()
                try:
                    write_meta_properties(path, MetaProperties(1, self._config.node_id, self.cluster_id, directory_id))
                except OSError as error:
                    self._set_offline(number, _reason(error, path))
