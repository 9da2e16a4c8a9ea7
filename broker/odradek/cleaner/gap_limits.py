"""Sets the gap limits that a start could not know, once the logs are open.

Runs in the cleaner. A log that was compacted by Kafka, or by this broker before it kept gap limits
(`_ext/partition/gap_limit.pxd`), has no limit: a start accepts every gap in it. Here the log gets one, its present end, as soon
as everything before is on the device; gaps that appear later after this limit are damage. A line of `cleaner-offset-checkpoint`
beyond a log's limit is about records that were lost, so it is lowered before the log grows past it.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

import odradek._ext.partition.flushing as flushing
import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.partition.slot_upkeep as slot_upkeep
import odradek._ext.partition.slots as slots
from odradek._ext.partition.slots import SlotChanged
from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.storage.segments import ANY_GAP
from odradek.shm.checkpoints import lower_cleaner_offset
from odradek.shm.partition_names import partition_name
from odradek.storage.checkpoints import CorruptCheckpointError, read_offset_checkpoint
from odradek.storage.file_names import CLEANER_CHECKPOINT

log = logging.getLogger("odradek.cleaner")


class GapLimits:
    """Sets gap limits for a cleaner process. :param log_dirs: paths in the order of the shared table's log directories."""

    def __init__(self, shm: SharedMemory, log_dirs: Sequence[Path]) -> None:
        self._shm = shm
        self._log_dirs = [Path(path) for path in log_dirs]

    def run(self) -> dict[str, str]:
        """Set a limit for every log that has none, and lower the offsets in the cleaner checkpoints. The next pass retries what
        fails. Returns the failures: a log without a limit is not compacted."""
        failures: dict[str, str] = {}
        offline = self._shm.log_dir_offline
        unknown = [slot for slot in slot_upkeep.of_unknown_gap_limit() if not offline(slots.log_dir_of(slot))]
        for slot, error in flushing.flush_many(unknown, whole=True, beat=self._shm.beat):
            name = partition_name(slot)
            log.error("%s: cannot sync the log to set its gap limit: %s; retrying in the next pass", name, error)
            failures[name] = f"cannot sync the log to set its gap limit: {error}"
        for slot in unknown:
            try:
                self._settle(slot)
            except SlotChanged as reason:
                log.info(
                    "%s: the log changed before its gap limit was set: %s; retrying in the next pass",
                    partition_name(slot), reason,
                )  # fmt: skip
            except OSError as error:
                name = partition_name(slot)
                log.error("%s: cannot write the log's gap limit: %s; retrying in the next pass", name, error)
                failures[name] = f"cannot write the log's gap limit: {error}"
            self._shm.beat()
        for number, path in enumerate(self._log_dirs):
            if not self._shm.log_dir_offline(number):
                try:
                    self._lower(number, path)
                except (OSError, CorruptCheckpointError) as error:
                    log.error(
                        "cannot lower offsets in %s: %s; retrying in the next pass", path / CLEANER_CHECKPOINT, error
                    )
                    failures[str(path / CLEANER_CHECKPOINT)] = f"cannot lower offsets: {error}"
        return failures

    def _settle(self, slot: int) -> None:
        facts = slot_facts.of_open_log(slot)
        if facts is None:
            return
        state = slot_facts.describe(slot)
        if state.synced_base >= 0:  # else the sync failed, or another process was syncing: the next pass tries again
            slot_upkeep.raise_gap_limit(
                slot, state.synced_end, incarnation=facts.incarnation, truncations=facts.truncations
            )
            limit = slot_facts.describe(slot).gap_limit
            log.info("%s-%d: offsets may be missing below %d", facts.topic, facts.partition, limit)

    def _lower(self, number: int, path: Path) -> None:
        offsets = read_offset_checkpoint(path / CLEANER_CHECKPOINT)
        if not offsets:
            return
        for topic, partition, slot in slots.in_use():
            offset = offsets.get((topic, partition))
            facts = None if offset is None else slot_facts.of_open_log(slot)
            if offset is None or facts is None or facts.log_dir != number:
                continue
            if facts.gap_limit != ANY_GAP and offset > facts.gap_limit:
                lower_cleaner_offset(path, (topic, partition), facts.gap_limit)
