"""Trims the leader-epoch checkpoints of logs whose log start offset moved: removes epochs that have no records any more.

Runs in the cleaner. Readers of the slot's epochs already ignore epochs before the log start offset, and so does a start; this
module updates the file. The new file is written and synced without the slot's lock and renamed into place under it [R 3.4],
unless the log was truncated or an epoch began meanwhile. After a crash, the file is the old or the new one; a `.trim` file
may be left, which the next trimming overwrites.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

import odradek._ext.partition.log_start as native
import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition.slot_access import AppendResult
from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.storage.log_dirs import note_error
from odradek.storage.checkpoints import CorruptCheckpointError, epochs_from, read_leader_epochs, write_leader_epochs
from odradek.storage.file_names import LEADER_EPOCH_CHECKPOINT, partition_directory_name

log = logging.getLogger("odradek.cleaner")

LOGS_PER_PASS = 500
NEW_FILE = LEADER_EPOCH_CHECKPOINT + ".trim"


class LeaderEpochs:
    """Trims the files for a cleaner process. :param log_dirs: paths in the order of the shared table's log directories."""

    def __init__(self, shm: SharedMemory, log_dirs: Sequence[Path]) -> None:
        self._shm = shm
        self._log_dirs = [Path(path) for path in log_dirs]
        self._seen: list[int] = []
        self._failures: dict[int, tuple[str, str]] = {}  # by slot: the partition and the reason

    def run(self) -> dict[str, str]:
        """Trim the files of logs that changed since the last call, at most `LOGS_PER_PASS` per call. Returns the failures: such
        a file is trimmed when its log changes again."""
        generations = native.generations()
        if generations != self._seen:
            self._trim(generations)
        return dict(self._failures.values())

    def _trim(self, generations: Sequence[int]) -> None:
        self._seen += [-1] * (len(generations) - len(self._seen))
        room = LOGS_PER_PASS
        for slot, generation in enumerate(generations):
            if generation == self._seen[slot]:
                continue
            self._failures.pop(slot, None)
            if generation >= 0:
                if room == 0:
                    return  # the next pass continues
                room -= 1
                self._look(slot)
                self._shm.beat()
            self._seen[slot] = generation

    def _look(self, slot: int) -> None:
        facts = slot_facts.of_open_log(slot)
        if facts is None or facts.epoch_count < 2 or self._shm.log_dir_offline(facts.log_dir):
            return
        directory = self._log_dirs[facts.log_dir] / partition_directory_name(facts.topic, facts.partition)
        new_file = directory / NEW_FILE
        try:
            epochs = _read(directory / LEADER_EPOCH_CHECKPOINT)
            kept = epochs_from(epochs, facts.log_start_offset)
            if len(kept) == len(epochs):
                return
            write_leader_epochs(new_file, kept)
            result = native.put_epochs(
                slot,
                NEW_FILE.encode(),
                incarnation=facts.incarnation,
                generation=facts.generation,
                epoch_count=facts.epoch_count,
            )
            if result == AppendResult.APPEND_OK:
                log.info(
                    "%s: removed %d leader epochs that end before offset %d",
                    directory.name,
                    len(epochs) - len(kept),
                    kept[0][1],
                )
            else:
                new_file.unlink(missing_ok=True)
        except FileNotFoundError:
            return  # the partition was deleted meanwhile
        except (OSError, CorruptCheckpointError) as error:
            log.error(
                "%s: cannot remove obsolete epochs from leader-epoch-checkpoint: %s; retrying when the log changes",
                directory.name, error,
            )  # fmt: skip
            self._failures[slot] = (
                f"{facts.topic}-{facts.partition}", f"cannot remove obsolete epochs from leader-epoch-checkpoint: {error}"
            )  # fmt: skip
            if isinstance(error, OSError):
                note_error(facts.log_dir, error.errno or 0)


def _read(path: Path) -> list[tuple[int, int]]:
    """The entries of the file. Read again if the count does not fit the lines: both may be written at this moment.
    Raises OSError, CorruptCheckpointError."""
    try:
        return read_leader_epochs(path)
    except CorruptCheckpointError:
        return read_leader_epochs(path)
