"""Makes log directories of a backup, which a broker can be started on.

Each directory is made under another name beside its target (`.NAME.restoring`), and renamed when all of them are complete and
on the device; the first one, which has the metadata, is renamed last. Every file is compared with its checksum.

The restored directories have no mark of a clean stop. The first start therefore recovers the last segment of each log, and
leads every log in a new leader epoch, from which consumers that had read beyond the end of the backup detect that records are
missing.
"""

import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

from odradek.backup import manifest as manifests
from odradek.backup.copying import FILE_MODE, Copier, make_directory, sync_file_system
from odradek.backup.errors import BackupError
from odradek.backup.manifest import LOG_DIRS, METADATA_FILE, TREE_FILE, Manifest
from odradek.metadata import znodes
from odradek.metadata.cluster import new_uuid
from odradek.metadata.sqlite import FILE_NAME, SqliteStore
from odradek.metadata.store import NoNode, StoreError
from odradek.storage.atomic_file import fsync_directory
from odradek.storage.log_directory import (
    DIRECTORY_MODE,
    CorruptMetadataError,
    decode_uuid,
    encode_uuid,
    read_meta_properties,
    write_meta_properties,
)


def restore(
    backup: Path,
    targets: Sequence[Path],
    *,
    new_cluster_id: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Manifest:
    """Make the log directories `targets`, one for each of the backup, in their order. Each must be new or empty.

    :param new_cluster_id: replaces the cluster id, so that the copy can run beside the original.
    :raises BackupError: the backup is damaged, or a target cannot be used. :raises OSError: a file cannot be written.
    """
    manifest = manifests.read(backup)
    _check_targets(manifest, targets)
    total = manifest.bytes
    _require_space(manifest, targets)
    copier = Copier(progress=lambda done: progress(done, total))
    with ExitStack() as stack:
        stages = [stack.enter_context(_stage(target)) for target in targets]
        for entry in manifest.all_files:
            if entry.path == TREE_FILE:
                continue
            if entry.path == METADATA_FILE:
                target, mode = stages[0] / FILE_NAME, manifests.OWNER_ONLY
            else:
                _, number, *rest = Path(entry.path).parts
                target, mode = stages[int(number)].joinpath(*rest), FILE_MODE
                if len(rest) > 1:
                    make_directory(target.parent, DIRECTORY_MODE)
            copier.copy_checked(backup / entry.path, entry.size, entry.sha256, target, mode)
        _adjust(manifest, stages, new_cluster_id)
        for stage in stages:
            sync_file_system(stage)
        for stage, target in reversed(list(zip(stages, targets, strict=True))):
            stage.rename(target)
            fsync_directory(target.parent)
    return manifest


def _check_targets(manifest: Manifest, targets: Sequence[Path]) -> None:
    count = len(manifest.log_dirs)
    if len(targets) != count:
        raise BackupError(
            f"the backup has {count} log director{'y' if count == 1 else 'ies'} ({', '.join(manifest.log_dirs)}): name a target"
            f" for each with --into, in this order; {len(targets)} named"
        )
    if len({os.path.realpath(target) for target in targets}) != count:
        raise BackupError("the targets of --into must be different directories")
    for target in targets:
        if target.is_symlink():
            raise BackupError(f"{target} is a symbolic link: name the directory itself")
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise BackupError(
                f"{target} is not an empty directory: a restore never replaces anything; name a new directory"
            )
        if target.exists() and os.path.ismount(target):
            raise BackupError(f"{target} is a mount point: name a directory in it, and set log.dirs to that")
        if not target.parent.is_dir():
            raise BackupError(f"{target.parent} does not exist: create it, or mount the disk, first")


def _require_space(manifest: Manifest, targets: Sequence[Path]) -> None:
    """Raise BackupError if the disks of the targets have too little space for all that is restored to them."""
    needed: dict[int, int] = {}
    place: dict[int, Path] = {}
    for entry in manifest.all_files:
        parts = Path(entry.path).parts
        number = int(parts[1]) if parts[0] == LOG_DIRS else 0
        device = targets[number].parent.stat().st_dev
        needed[device] = needed.get(device, 0) + entry.size
        place[device] = targets[number].parent
    for device, size in needed.items():
        stat = os.statvfs(place[device])
        free = stat.f_bavail * stat.f_frsize
        if size > free:
            raise BackupError(f"{place[device]} has {free:,} bytes free, but the restore needs {size:,}")


@contextmanager
def _stage(target: Path) -> Iterator[Path]:
    """A new directory beside the target, which is deleted at the end unless it was renamed. One that an interrupted restore has
    left is deleted first."""
    stage = target.with_name(f".{target.name}.restoring")
    make_directory(stage, DIRECTORY_MODE)
    if stage.is_symlink():
        raise BackupError(f"{stage} is a symbolic link, which no restore has made: delete it")
    descriptor = os.open(stage, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise BackupError(f"{stage} belongs to another user: delete it, or run the restore as this user")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError(f"another restore to {target} is running ({stage} is locked)") from None
        for name in os.listdir(descriptor):  # noqa: PTH208 - by the descriptor, whatever the path of the directory is now
            if stat.S_ISDIR(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=descriptor)
            else:
                os.unlink(name, dir_fd=descriptor)
        try:
            yield stage
        finally:
            if stage.exists():
                shutil.rmtree(stage)
    finally:
        os.close(descriptor)


def _adjust(manifest: Manifest, stages: Sequence[Path], new_cluster_id: str | None) -> None:
    """Change what must differ from the original. Raises BackupError."""
    try:
        if not manifest.clustered:
            with closing(SqliteStore(stages[0] / FILE_NAME)) as store:
                try:
                    store.delete(znodes.MACHINE_BOOT)  # so that an adopted broker begins new leader epochs, too
                except NoNode:
                    pass
                if new_cluster_id is not None:
                    store.set(znodes.CLUSTER_ID, znodes.encode_cluster_id(new_cluster_id))
        if new_cluster_id is None:
            return
        for stage in stages:
            known = read_meta_properties(stage)
            if known is None:
                raise BackupError(f"the backup has no meta.properties for {manifest.log_dirs[stages.index(stage)]}")
            write_meta_properties(stage, replace(known, cluster_id=new_cluster_id))
    except (StoreError, CorruptMetadataError) as error:
        raise BackupError(f"cannot adjust the metadata: {error}") from error


def generate_cluster_id() -> str:
    """A new cluster id."""
    return encode_uuid(new_uuid())


def valid_cluster_id(cluster_id: str) -> str:
    """Return the cluster id if it can be one. Raises BackupError."""
    try:
        decode_uuid(cluster_id)
    except ValueError:
        raise BackupError(
            f"--new-cluster-id: {cluster_id!r} is not an id: write 22 characters of URL-safe base64, or no value for a new id"
        ) from None
    return cluster_id
