"""Files without a name that processes of a broker still have open: their space is not free until they are closed."""

import stat
from pathlib import Path

from odradek.testing import Broker


def unlinked_files(broker: Broker) -> list[str]:
    """The process, path and size of each open regular file of the broker's data directory that was unlinked."""
    kinds = {one["pid"]: one["kind"] for one in broker.processes()}
    found = []
    for pid in broker.process_ids():
        for path, size in unlinked_files_of(pid):
            if path.startswith(str(broker.data_dir)):
                found.append(f"{kinds.get(pid, 'process')} {pid}: {path}, {size} bytes")
    return found


def unlinked_files_of(process: int | str) -> list[tuple[str, int]]:
    """(path, bytes) of each regular file that a process has open and that has no name any more."""
    found = []
    try:
        descriptors = list(Path(f"/proc/{process}/fd").iterdir())
    except FileNotFoundError:
        return []  # the process has ended
    for descriptor in descriptors:
        try:
            status, path = descriptor.stat(), str(descriptor.readlink())
        except FileNotFoundError:
            continue  # closed meanwhile
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 0 and not path.startswith("/memfd:"):
            found.append((path, status.st_size))
    return found
