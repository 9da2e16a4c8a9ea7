"""Makes a backup: takes a cut, opens the files of all logs, copies them, and writes the manifest last.

The backup of each log directory is itself a log directory: after a restore, a start of the broker recovers only the last
segment of each log. The indexes of that segment are not copied, because the log is cut; recovery rebuilds them.

The metadata are copied after the cut: producer ids, leader epochs and topics in them are then at least as new as those in the
logs. Topics that were created after the cut are empty in the backup, topics that were deleted after it are missing.
"""

import hashlib
import os
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from odradek import __version__
from odradek.backup import manifest as manifests
from odradek.backup.capture import CapturedLog, OpenedFile, capture, many_files
from odradek.backup.copying import (
    Copier,
    create_file,
    end_of_batches,
    make_directory,
    open_file,
    sync_file_system,
    write_file,
)
from odradek.backup.cut import Cut, LogCut, cut_of_running, cut_of_stopped
from odradek.backup.errors import BackupError, LogsMoved
from odradek.backup.manifest import LOG_DIRS, METADATA_FILE, TREE_FILE, FileEntry, LogEntry, Manifest
from odradek.controller.image import ClusterImage, load_image
from odradek.metadata.sqlite import FILE_NAME, SqliteStore
from odradek.metadata.store import StoreError
from odradek.storage.checkpoints import CorruptCheckpointError, read_offset_checkpoint
from odradek.storage.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    GAPS_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    partition_directory_name,
)
from odradek.storage.log_directory import DirectoryInUseError, is_locked, lock_directory
from odradek.topic_partition import TopicPartition

ATTEMPTS = 10
FREE_BYTES = 16 << 20
"""What must stay free on the disk of the backup, for its small files."""

STORE_SUFFIXES = ("", "-journal", "-wal")
"""Of the files of a metadata store. SQLite makes a further one, -shm, from the write-ahead log (-wal)."""

DumpTree = Callable[[], bytes]


@dataclass
class Created:
    """A backup that was made. `linked_bytes`: shared with the base; `skipped`: sentences for the user."""

    manifest: Manifest
    linked_bytes: int = 0
    skipped: list[str] = field(default_factory=list)


def create(
    target: Path,
    directories: Sequence[str],
    *,
    base: Path | None = None,
    rate: int = 0,
    dump_tree: DumpTree | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Created:
    """Make a backup of the broker with these log directories in the directory `target`, which is new or empty.

    :param directories: `log.dirs`; of a running broker, the first is enough.
    :param base: an earlier backup of the same broker on the same file system: unchanged files become hard links.
    :param rate: bytes per second to copy; 0: no limit.
    :param dump_tree: returns the nodes in ZooKeeper; None if the backup is without them.
    :param progress: called with the bytes copied so far, and the bytes to copy.

    Raises BackupError, StoreError, OSError; then `target` is as before.
    """
    known = None if base is None else manifests.read(base)
    new = not target.exists()
    if not new and any(target.iterdir()):
        raise BackupError(f"{target} is not empty: name a new directory (an interrupted backup there can be deleted)")
    make_directory(target)
    target.chmod(manifests.DIRECTORY_MODE)
    try:
        with ExitStack() as stack:
            stack.enter_context(many_files())
            return _create(stack, target, directories, base, known, rate, dump_tree, progress)
    except BaseException:
        _remove_content(target)
        if new:
            target.rmdir()
        raise


def _remove_content(target: Path) -> None:
    for child in list(target.iterdir()):
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink()


def _files_of_base(base: Path | None, known: Manifest | None, cut: Cut) -> dict[tuple[str, int, str, str], FileEntry]:
    """The files of an earlier backup that may be linked, by topic, partition, topic id and name.

    :param known: the manifest of `base`. :raises BackupError: it is a backup of another broker.
    """
    if known is None:
        return {}
    if (known.node_id, known.cluster_id) != (cut.node_id, cut.cluster_id):
        raise BackupError(
            f"--base {base} is a backup of broker {known.node_id} of cluster {known.cluster_id}, but this is broker"
            f" {cut.node_id} of cluster {cut.cluster_id}: name a backup of this broker"
        )
    return {
        (log.topic, log.partition, log.topic_id, Path(entry.path).name): entry
        for log in known.logs
        for entry in log.files
        if entry.inode
    }


# -- which logs ----------------------------------------------------------------------------------------------------------


@contextmanager
def _locked(directories: Sequence[str]) -> Iterator[None]:
    """Keep brokers away from the directories of a stopped broker."""
    descriptors: list[int] = []
    try:
        descriptors.extend(map(lock_directory, directories))  # those before one that is in use are closed below
        yield
    except DirectoryInUseError as error:
        raise BackupError(str(error)) from error
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _create(
    stack: ExitStack,
    target: Path,
    directories: Sequence[str],
    base: Path | None,
    known: Manifest | None,
    rate: int,
    dump_tree: DumpTree | None,
    progress: Callable[[int, int], None],
) -> Created:
    first = directories[0]
    for path in directories:
        if not Path(path, META_PROPERTIES).exists():
            raise BackupError(
                f"{path} is not the log directory of a broker: it has no {META_PROPERTIES}; name the broker with --config FILE"
                " or --data-dir DIR"
            )
    running = is_locked(first)
    if not running:
        stack.enter_context(_locked(directories))
    cut, logs, skipped = _captured(target, directories, running)
    stack.callback(_close_all, logs)
    if cut.clustered and dump_tree is None:
        skipped.append(
            "the nodes in ZooKeeper are not in this backup: back them up too, with --zookeeper at one broker"
            + ("" if running else f" (if the broker is in no cluster, {first} is not the first of its log.dirs)")
        )
    files = _Files(target, base, _files_of_base(base, known, cut), Copier(rate))
    total = files.bytes_to_copy(logs.values())
    _require_space(target, total)
    files.copier = Copier(rate, lambda done: progress(done, total))
    manifest = Manifest(
        cut.time_ms, __version__, cut.node_id, cut.cluster_id, cut.clustered, cut.running, list(cut.log_dirs)
    )
    make_directory(target / LOG_DIRS)
    for number in range(len(cut.log_dirs)):
        make_directory(target / LOG_DIRS / str(number))
    for key in sorted(logs):
        manifest.logs.append(files.copy_log(key, logs[key]))
        logs[key].close()
    manifest.files += _write_checkpoints(target, cut, manifest, logs)
    if not cut.clustered:
        manifest.files.append(_entry_of(target, METADATA_FILE))
    if dump_tree is not None:
        tree = dump_tree()
        manifest.files.append(FileEntry(TREE_FILE, len(tree), write_file(target / TREE_FILE, tree)))
    sync_file_system(target)
    manifests.write(target, manifest)
    return Created(manifest, files.linked_bytes, skipped)


def _close_all(logs: dict[TopicPartition, CapturedLog]) -> None:
    for log in logs.values():
        log.close()


def _captured(
    target: Path, directories: Sequence[str], running: bool
) -> tuple[Cut, dict[TopicPartition, CapturedLog], list[str]]:
    """The cut, the opened logs in it, and what was left out. A cut that the logs have passed is taken again."""
    reason = ""
    for _ in range(ATTEMPTS):
        if running:
            cut = cut_of_running(directories[0])
            _check_directories(cut, directories)
        else:
            cut = cut_of_stopped(directories, _is_clustered(directories))
        logs: dict[TopicPartition, CapturedLog] = {}
        skipped: list[str] = []
        try:
            chosen = dict(cut.logs) if cut.clustered else _of_metadata(target, cut, skipped)
            # Those that are compacted first: a compaction in the meantime would need another cut.
            for key in sorted(chosen, key=lambda key: not (cut.path(key) / GAPS_CHECKPOINT).exists()):
                captured = capture(cut.path(key), chosen[key])
                if captured is None:
                    skipped.append(f"{cut.path(key)} has no segments: the partition is empty in the backup")
                else:
                    logs[key] = captured
            return cut, logs, skipped
        except LogsMoved as error:
            _close_all(logs)
            reason = str(error)
        except BaseException:
            _close_all(logs)
            raise
    raise BackupError(f"the logs changed during each of {ATTEMPTS} attempts to open them: {reason}; repeat the backup")


def _is_clustered(directories: Sequence[str]) -> bool:
    """Whether the stopped broker is one of a cluster: it has no metadata store. Raises BackupError."""
    with_store = [path for path in directories if Path(path, FILE_NAME).exists()]
    if with_store and with_store[0] != directories[0]:
        raise BackupError(
            f"{with_store[0]} has the metadata store, so it is the first of log.dirs: name it first, then the others in their"
            " order"
        )
    return not with_store


def _check_directories(cut: Cut, named: Sequence[str]) -> None:
    actual = {os.path.realpath(path) for path in cut.log_dirs}
    strange = [path for path in named if os.path.realpath(path) not in actual]
    if strange:
        raise BackupError(f"{strange[0]} is not one of the log.dirs of the running broker: {', '.join(cut.log_dirs)}")


def _of_metadata(target: Path, cut: Cut, skipped: list[str]) -> dict[TopicPartition, LogCut]:
    """Copy the metadata store, and return the logs that it knows. Raises LogsMoved if a topic was created again."""
    image = _copy_metadata(Path(cut.log_dirs[0], FILE_NAME), target / METADATA_FILE, cut.running)
    chosen = {}
    for key, log_cut in cut.logs.items():
        topic = image.topics.get(key[0])
        if topic is None or topic.name in image.deleting or key[1] not in topic.assignment.partitions:
            skipped.append(f"{cut.path(key)} belongs to no topic: it is not in the backup")
            continue
        if log_cut.topic_id and topic.topic_id is not None and log_cut.topic_id != topic.topic_id.hex:
            if cut.running:
                raise LogsMoved(f"topic {topic.name} was deleted and created again")
            skipped.append(f"{cut.path(key)} belongs to a former topic of that name: it is not in the backup")
            continue
        chosen[key] = log_cut
    if not cut.running:
        _check_complete(cut, image)
    return chosen


def _check_complete(cut: Cut, image: ClusterImage) -> None:
    """Raise BackupError if a partition has no log in the directories: a directory was not named, or the broker was killed while
    it created the topic."""
    missing = [
        f"{topic.name}-{partition}"
        for topic in image.topics.values()
        if topic.name not in image.deleting
        for partition in sorted(topic.assignment.partitions)
        if (topic.name, partition) not in cut.logs
    ]
    if missing:
        raise BackupError(
            f"partition {missing[0]} has no log in {', '.join(cut.log_dirs)} ({len(missing)} without a log): name all log.dirs,"
            " with --config or --data-dir; if they are all, start and stop the broker, which creates the log"
        )


def _copy_metadata(source: Path, target: Path, running: bool) -> ClusterImage:
    """Copy a metadata store, and return its topics. Raises BackupError, OSError.

    :param running: whether a broker uses the store. If not, its files are copied as they are, because SQLite would leave new
        files beside a store that it reads.
    """
    for suffix in (*STORE_SUFFIXES, "-shm"):
        target.with_name(target.name + suffix).unlink(missing_ok=True)
    try:
        if running:
            os.close(create_file(target, manifests.OWNER_ONLY))
            with (
                closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True, timeout=30)) as original,
                closing(sqlite3.connect(target)) as copy,
            ):
                original.backup(copy)
        else:
            _copy_store_files(source, target)
        with closing(SqliteStore(target)) as store:
            return load_image(store)
    except (sqlite3.Error, StoreError) as error:
        raise BackupError(f"cannot copy the metadata store {source}: {error}") from error


def _copy_store_files(source: Path, target: Path) -> None:
    """Copy the files of a store that no process uses."""
    for suffix in STORE_SUFFIXES:
        path = source.with_name(source.name + suffix)
        if suffix and not path.exists():
            continue
        with open_file(path) as descriptor:
            Copier().copy(descriptor, os.fstat(descriptor).st_size, target.with_name(target.name + suffix), path)


# -- copying -------------------------------------------------------------------------------------------------------------


class _Files:
    """Copies or links the files of logs into the backup."""

    def __init__(
        self,
        target: Path,
        base: Path | None,
        base_files: dict[tuple[str, int, str, str], FileEntry],
        copier: Copier,
    ) -> None:
        self.copier = copier
        self.linked_bytes = 0
        self._target = target
        self._base = base
        self._base_files = base_files

    def _same_in_base(self, log: CapturedLog, key: TopicPartition, file: OpenedFile) -> FileEntry | None:
        entry = None if file.partial else self._base_files.get((*key, log.cut.topic_id, file.name))
        if entry is None or (entry.size, entry.inode, entry.mtime_ns) != (file.size, file.inode, file.mtime_ns):
            return None
        return entry

    def bytes_to_copy(self, logs: Iterable[CapturedLog]) -> int:
        """The bytes of the files that are not in the base."""
        return sum(
            file.size for log in logs for file in log.opened if self._same_in_base(log, _key_of(log), file) is None
        )

    def copy_log(self, key: TopicPartition, log: CapturedLog) -> LogEntry:
        """Copy a log. Raises BackupError, OSError."""
        directory = Path(LOG_DIRS, str(log.cut.log_dir), partition_directory_name(*key))
        make_directory(self._target / directory)
        end = log.cut.end if log.cut.end is not None else log.last_base
        entry = LogEntry(*key, log.cut.topic_id, log.cut.log_dir, log.log_start, end)
        for file in log.opened:
            entry.files.append(self._copy_file(log, key, directory, file, entry))
        for name, content in log.contents.items():
            digest = write_file(self._target / directory / name, content)
            entry.files.append(FileEntry(str(directory / name), len(content), digest))
        return entry

    def _copy_file(
        self, log: CapturedLog, key: TopicPartition, directory: Path, file: OpenedFile, entry: LogEntry
    ) -> FileEntry:
        path = directory / file.name
        known = self._same_in_base(log, key, file)
        if known is not None and self._link(known, path):
            self.linked_bytes += file.size
            return known._replace(path=str(path))
        size = file.size
        if file.partial:
            size, after = end_of_batches(file.descriptor, size, log.last_base, log.cut.end, log.path / file.name)
            if log.cut.end is None:
                entry.end_offset = after
        digest = self.copier.copy(file.descriptor, size, self._target / path, log.path / file.name)
        if file.partial:
            return FileEntry(str(path), size, digest)
        return FileEntry(str(path), size, digest, file.inode, file.mtime_ns)

    def _link(self, known: FileEntry, path: Path) -> bool:
        """Link a file of the base; False if that is not possible, and the file must be copied."""
        assert self._base is not None
        source = self._base / known.path
        try:
            if source.stat().st_size != known.size:
                return False
            os.link(source, self._target / path)
        except OSError:
            return False  # another file system, or too many links: the copy succeeds, or says what is wrong
        return True


def _key_of(log: CapturedLog) -> TopicPartition:
    topic, _, partition = log.path.name.rpartition("-")
    return topic, int(partition)


def _require_space(target: Path, needed: int) -> None:
    """Raise BackupError if the disk of the backup has too little space: a full disk would also stop a broker on it."""
    stat = os.statvfs(target)
    free = stat.f_bavail * stat.f_frsize
    if needed + FREE_BYTES > free:
        raise BackupError(
            f"{target} has {free:,} bytes free, but the backup needs {needed + FREE_BYTES:,}: name a directory on another disk,"
            " or an earlier backup on this disk with --base"
        )


def _write_checkpoints(
    target: Path, cut: Cut, manifest: Manifest, logs: dict[TopicPartition, CapturedLog]
) -> list[FileEntry]:
    """Write meta.properties and the offset checkpoints of each log directory. Raises BackupError, OSError."""
    entries = []
    for number, source in enumerate(cut.log_dirs):
        directory = target / LOG_DIRS / str(number)
        lines: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
        try:
            cleaned = read_offset_checkpoint(Path(source, CLEANER_CHECKPOINT))
        except CorruptCheckpointError as error:
            raise BackupError(str(error)) from error
        for log in manifest.logs:
            key = (log.topic, log.partition)
            if log.log_dir != number:
                continue
            captured = logs[key]
            point = captured.last_base
            if captured.cut.recovery_point is not None and not Path(source, CLEAN_SHUTDOWN).exists():
                point = min(point, captured.cut.recovery_point)
            lines[RECOVERY_POINT_CHECKPOINT][key] = max(point, log.log_start_offset)
            lines[REPLICATION_CHECKPOINT][key] = log.end_offset
            if log.log_start_offset > 0:
                lines[LOG_START_OFFSET_CHECKPOINT][key] = log.log_start_offset
            if key in cleaned:
                lines[CLEANER_CHECKPOINT][key] = min(cleaned[key], log.end_offset)
        contents = {META_PROPERTIES: Path(source, META_PROPERTIES).read_bytes()}
        for name, offsets in lines.items():
            text = "".join(f"{topic} {partition} {offset}\n" for (topic, partition), offset in offsets.items())
            contents[name] = f"0\n{len(offsets)}\n{text}".encode()
        for name, content in contents.items():
            digest = write_file(directory / name, content)
            entries.append(FileEntry(f"{LOG_DIRS}/{number}/{name}", len(content), digest))
    return entries


def _entry_of(target: Path, name: str) -> FileEntry:
    """The entry of a file that is already in the backup."""
    size = (target / name).stat().st_size
    with open(target / name, "rb") as file:
        return FileEntry(name, size, hashlib.file_digest(file, "sha256").hexdigest())
