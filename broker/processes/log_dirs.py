"""The log directories before anything is loaded: made, locked, checked to be this broker's. Owned by the supervisor.

Kafka's rules: a directory belongs to one cluster and one node (``meta.properties``), and to one process (``.lock``).
"""

import os
import uuid
from pathlib import Path
from types import TracebackType

from broker.config.broker_config import BrokerConfig
from broker.config.running import read_pid_file
from broker.storage.log_directory import (
    CorruptMetadataError,
    DirectoryInUseError,
    MetaProperties,
    encode_uuid,
    lock_directory,
    read_meta_properties,
    take_clean_shutdown,
    write_meta_properties,
)


class StartError(Exception):
    """The broker cannot start; the message is one line that names what is wrong."""


def _start_error(error: OSError, path: Path) -> StartError:
    return StartError(f"log directory {error.filename or path}: {error.strerror}")


def _holder(path: Path) -> str:
    """Who holds the lock, as far as the directory's pid file tells."""
    try:
        running = read_pid_file(str(path))
    except (OSError, ValueError):
        return ""
    return f" (by process {running.pid})" if running is not None and running.is_alive() else ""


class LogDirectories:
    """The configured log directories, open and locked, as a context.

    Attributes: `paths`; `fds`, one a directory; `online`; `clean`: closed in order before this start, known from
    `take_clean_marks` on; `cluster_id`.

    :raises StartError: a directory cannot be used, belongs to another cluster or node, or another broker holds it.
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
            for path in self.paths:
                self._open(path)
            self._identify()
        except OSError as error:
            self.close()
            raise _start_error(error, self.first) from error
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for fd in (*self.fds, *self._locks):
            os.close(fd)
        self.fds, self._locks = [], []

    @property
    def descriptors(self) -> list[int]:
        """What every child inherits: the directories, and their locks, which thereby last as long as any process."""
        return [*self.fds, *self._locks]

    def take_clean_marks(self) -> None:
        """Learn and forget which directories were closed in order; once nothing else can keep the broker from starting."""
        try:
            self.clean = [take_clean_shutdown(path)[0] for path in self.paths]
        except OSError as error:
            raise _start_error(error, self.first) from error

    def now_unclean(self) -> None:
        """The processes of this start died: whatever is loaded next is to be recovered."""
        self.clean = [False] * len(self.paths)

    def _open(self, path: Path) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise StartError(f"log directory {path} is not a directory") from None
        except OSError as error:
            raise StartError(f"log directory {path} cannot be made: {error.strerror}") from error
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise StartError(f"log directory {path} cannot be read and written by this user")
        try:
            self._locks.append(lock_directory(path))
        except DirectoryInUseError as error:
            raise StartError(f"{error}{_holder(path)}") from error
        self.fds.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def _identify(self) -> None:
        found: list[MetaProperties | None] = []
        for path in self.paths:
            try:
                found.append(read_meta_properties(path))
            except CorruptMetadataError as error:
                raise StartError(str(error)) from error
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
        for path, one in zip(self.paths, found, strict=True):
            if one is None or one.cluster_id is None or one.node_id is None:
                directory_id = one.directory_id if one and one.directory_id else uuid.uuid4()
                write_meta_properties(path, MetaProperties(1, self._config.node_id, self.cluster_id, directory_id))
