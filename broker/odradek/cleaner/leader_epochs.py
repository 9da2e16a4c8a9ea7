"""Trims the leader-epoch checkpoints of logs whose beginning moved: epochs that have no record any more leave the file.

Runs in the cleaner. Whoever asks the slot for epochs leaves out at once what lies before the log start offset, and so does a
start with what it reads; the file follows here. It is made and synced without the slot's lock and takes the place of the former
one under it, unless the log was cut or an epoch began meanwhile. A crash leaves one of the two, and perhaps a `.trim`, which
the next trimming overwrites.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

import odradek._ext.partition.log_start as native
from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.storage.log_dirs import note_error
from odradek.storage.checkpoints import CorruptCheckpointError, epochs_from, read_leader_epochs, write_leader_epochs
from odradek.storage.file_names import LEADER_EPOCH_CHECKPOINT

log = logging.getLogger("odradek.cleaner")

LOOKED_AT_ONCE = 500
FRESH = LEADER_EPOCH_CHECKPOINT + ".trim"


class LeaderEpochs:
    """One a cleaner. :param log_dirs: paths in the order in which the supervisor announced them."""

    def __init__(self, shm: SharedMemory, log_dirs: Sequence[Path]) -> None:
        self._shm = shm
        self._log_dirs = [Path(path) for path in log_dirs]
        self._seen: list[int] = []

    def run(self) -> None:
        """Look at the logs that changed since they were seen last, some hundreds a call."""
        generations = native.generations()
        if generations == self._seen:
            return
        self._seen += [-1] * (len(generations) - len(self._seen))
        room = LOOKED_AT_ONCE
        for slot, generation in enumerate(generations):
            if generation == self._seen[slot]:
                continue
            if generation >= 0:
                if room == 0:
                    return  # the next pass goes on
                room -= 1
                self._look(slot)
                self._shm.beat()
            self._seen[slot] = generation

    def _look(self, slot: int) -> None:
        facts = native.facts(slot)
        if facts is None or facts["epoch_count"] < 2 or self._shm.log_dir_offline(facts["log_dir"]):
            return
        directory = self._log_dirs[facts["log_dir"]] / f"{facts['topic']}-{facts['partition']}"
        fresh = directory / FRESH
        try:
            epochs = read_leader_epochs(directory / LEADER_EPOCH_CHECKPOINT)
            kept = epochs_from(epochs, facts["log_start_offset"])
            if len(kept) == len(epochs):
                return
            write_leader_epochs(fresh, kept)
            told = native.put_epochs(
                slot,
                FRESH.encode(),
                incarnation=facts["incarnation"],
                generation=facts["generation"],
                epoch_count=facts["epoch_count"],
            )
            if told == "ok":
                log.info(
                    "%s: removed %d leader epochs that end before offset %d",
                    directory.name,
                    len(epochs) - len(kept),
                    kept[0][1],
                )
            else:
                fresh.unlink(missing_ok=True)
        except FileNotFoundError:
            return  # deleted meanwhile
        except (OSError, CorruptCheckpointError) as error:
            log.error("%s: cannot remove obsolete epochs from leader-epoch-checkpoint: %s", directory.name, error)
            if isinstance(error, OSError):
                note_error(facts["log_dir"], error.errno or 0)
