"""OffsetForLeaderEpoch (23): returns the end offset of a leader epoch in this leader's log. Executed by an off-loop thread of
the worker, because it may read a file.

The slot contains the newest epochs. Older ones are read from the partition's leader-epoch-checkpoint, which contains all
epochs. Epochs whose records are all deleted are unknown as soon as the log start offset has moved.
"""

from pathlib import Path
from typing import Any

from odradek.api.call import Call
from odradek.api.partition_lookup import leader_state
from odradek.api.stepwise import Pace, Steps
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import offset_for_leader_epoch
from odradek.storage import file_names
from odradek.storage.checkpoints import CorruptCheckpointError, epochs_from, read_leader_epochs

UNDEFINED = -1
STEP = 50


def handle(request: Any, call: Call) -> Steps:
    """Handle each partition independently, a few per step."""
    make = offset_for_leader_epoch.Response
    topics = []
    pace = Pace(STEP)
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            if pace.over():
                yield
            partitions.append(_partition(topic.topic, partition, call))
        topics.append(make.OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return make(topics=topics)


def _partition(name: str, requested: Any, call: Call) -> Any:
    number = requested.partition
    answer = offset_for_leader_epoch.Response.EpochEndOffset(partition=number)
    error, _, state = leader_state(call, name, number, requested.current_leader_epoch)
    if error or state is None:
        answer.error_code = error
        return answer
    epochs = state.epochs
    log_start = state.log_start_offset
    if epochs and requested.leader_epoch < epochs[0][0] and epochs[0][1] > log_start:
        path = Path(
            call.view.log_dirs[state.log_dir],
            file_names.partition_directory_name(name, number),
            file_names.LEADER_EPOCH_CHECKPOINT,
        )
        try:
            epochs = read_leader_epochs(path)
        except (OSError, CorruptCheckpointError):
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return answer
    epochs = epochs_from(epochs, log_start)
    if not epochs or epochs[-1][0] < state.leader_epoch:
        epochs = [*epochs, (state.leader_epoch, state.log_end_offset)]  # nothing was written in it yet
    answer.leader_epoch, answer.end_offset = end_offset(epochs, requested.leader_epoch, state.log_end_offset)
    return answer


def end_offset(epochs: list[tuple[int, int]], requested: int, log_end_offset: int) -> tuple[int, int]:
    """(epoch, end offset) of the largest epoch that is not above `requested`; (-1, -1) if it is unknown (KIP-279).

    For an epoch older than all known ones, the end offset is the start offset of the first known epoch.

    :param epochs: (epoch, start offset), ascending.
    """
    if not epochs or requested == UNDEFINED or requested > epochs[-1][0]:
        return UNDEFINED, UNDEFINED
    if requested == epochs[-1][0]:
        return requested, log_end_offset
    next_start = next(start for epoch, start in epochs if epoch > requested)
    return max((epoch for epoch, _ in epochs if epoch <= requested), default=requested), next_start
