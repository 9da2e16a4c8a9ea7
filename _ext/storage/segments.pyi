from collections import namedtuple
from typing import Any, Final

from _typeshed import Incomplete

from odradek._ext.storage.log_state import (ERROR_OFFSET_OVERFLOW,
                                            ERROR_TOO_LARGE,
                                            EVENT_COMPLETED_SWAP,
                                            EVENT_CORRUPT_EPOCHS,
                                            EVENT_CORRUPT_GAP_LIMIT,
                                            EVENT_CORRUPT_SNAPSHOT,
                                            EVENT_CUT_EPOCHS, EVENT_CUT_LOG,
                                            EVENT_CUT_TXN_INDEX, EVENT_GAP,
                                            EVENT_NOT_CLEAN,
                                            EVENT_PRUNED_PRODUCERS,
                                            EVENT_REBUILT_EPOCHS,
                                            EVENT_REBUILT_INDEXES,
                                            EVENT_REMOVED_LEFTOVER,
                                            EVENT_REMOVED_ORPHAN,
                                            EVENT_REMOVED_SEGMENT,
                                            EVENT_REMOVED_SNAPSHOT,
                                            EVENT_RESTARTED_LOG,
                                            EVENT_SHORTENED, EVENT_UNREADABLE,
                                            FILE_INDEX, FILE_LOG,
                                            FILE_SNAPSHOT, FILE_TIME_INDEX,
                                            FILE_TXN_INDEX)

ANY_GAP: Incomplete = ...
UNSUPPORTED = {ERROR_OFFSET_OVERFLOW: "it contains an offset more than 2^31-1 beyond its segment's base offset", ERROR_TOO_LARGE: 'it contains a log file larger than 2^31-1 bytes'}
EXTENSIONS = {FILE_LOG: '.log', FILE_INDEX: '.index', FILE_TIME_INDEX: '.timeindex', FILE_TXN_INDEX: '.txnindex', FILE_SNAPSHOT: '.snapshot'}
SENTENCES = {EVENT_REMOVED_LEFTOVER: 'removed {file}, left by a deletion or an interrupted compaction', EVENT_COMPLETED_SWAP: 'renamed {file} to its final name, to complete an interrupted swap', EVENT_REMOVED_ORPHAN: 'removed {file}, an index without a log', EVENT_REBUILT_INDEXES: 'rebuilt the indexes of {file} up to offset {offset}, position {position}', EVENT_CUT_LOG: 'cut {file} at offset {offset}, position {position}: {lost} bytes did not hold a sound batch', EVENT_REMOVED_SEGMENT: 'removed segment {file} of {lost} bytes, because it follows the cut', EVENT_REMOVED_SNAPSHOT: 'removed {file}, a producer snapshot that no start needs', EVENT_CUT_EPOCHS: 'dropped {lost} leader epochs outside the log, which ends at offset {offset}', EVENT_CUT_TXN_INDEX: 'cut {file} at position {position}: the last {lost} bytes were an incomplete entry', EVENT_UNREADABLE: 'no valid batch in {file} at position {position}, offset {offset} or later; its last {lost} bytes are left unchanged', EVENT_RESTARTED_LOG: 'the log ended at offset {offset}, before its start offset: removed all segments ({lost} bytes) and emptied the log', EVENT_NOT_CLEAN: '{file} is not valid although its directory was shut down cleanly: recovering it', EVENT_CORRUPT_EPOCHS: 'leader-epoch-checkpoint is corrupt: the leader epochs were read from the batches', EVENT_GAP: 'offsets {offset} to {position} are missing before a batch of {file}, not because of compaction: the log is cut before them', EVENT_SHORTENED: 'the log ends at offset {offset}, {lost} offsets before its recovery point: records that were on the device are missing', EVENT_CORRUPT_GAP_LIMIT: 'odradek-gaps-checkpoint is corrupt: batches after gaps between offsets are kept', EVENT_REBUILT_EPOCHS: 'leader-epoch-checkpoint did not cover the log: the leader epochs were read from the batches from offset {offset} on', EVENT_CORRUPT_SNAPSHOT: 'removed {file}, an incomplete producer snapshot: producers are restored from an older snapshot and the log', EVENT_PRUNED_PRODUCERS: 'kept the {offset} newest producers and dropped {lost} older ones, because of odradek.producer.state.partition.max.producers'}
SERIOUS = (EVENT_CORRUPT_SNAPSHOT, EVENT_PRUNED_PRODUCERS)
LoadEvent = namedtuple('LoadEvent', 'message file base_offset offset position lost_bytes serious')
Producer = namedtuple('Producer', 'producer_id producer_epoch coordinator_epoch last_timestamp current_txn_first_offset batches')
ProducerBatch = namedtuple('ProducerBatch', 'base_sequence last_sequence base_offset last_offset timestamp')

class UnsupportedLogError(Exception): ...

class LoadedLog:
    path: Final[str]

    def __init__(self) -> None: ...
    ...
    def __getattr__(self, name) -> Any: ...
    def numbers(self) -> dict[str, int | bool]: ...
    @property
    def epochs(self) -> list[tuple[int, int]]: ...
    @property
    def producers(self) -> list[Producer]: ...
    @property
    def events(self) -> list[LoadEvent]: ...

def bytes_to_recover(path, recovery_point: int) -> int: ...
def load_log(path, log_start_offset: int=0, recovery_point: int=0, clean: bool=False, index_interval_bytes: int=4096, changes_allowed: int=-1, cleaner_offset: int=-1, progress_dir: int=-1, producer_limit: int=0) -> LoadedLog: ...
