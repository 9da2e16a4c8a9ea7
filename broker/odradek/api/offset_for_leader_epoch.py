"""OffsetForLeaderEpoch (23): where an epoch ends in this leader's log. Executed by an off-loop thread of the worker: it
may read a file.

The slot knows the newest epochs; older ones are read from the partition's leader-epoch-checkpoint, which has all of them.
Epochs whose records are all gone are not known any more, from the moment when the log start offset moves.
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
    """Answer every partition on its own, a few at a step."""
    make = offset_for_leader_epoch.Response
    topics = []
    pace = Pace(STEP)
    for topic in request.topics:
        partitions = []
        for one in topic.partitions:
            if pace.over():
                yield
            partitions.append(_partition(topic.topic, one, call))
        topics.append(make.OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return make(topics=topics)


def _partition(name: str, one: Any, call: Call) -> Any:
    answer = offset_for_leader_epoch.Response.EpochEndOffset(partition=one.partition)
    error, _, state = leader_state(call, name, one.partition, one.current_leader_epoch)
    if error:
        answer.error_code = error
        return answer
    epochs = state["epochs"]
    log_start = state["log_start_offset"]
    if epochs and one.leader_epoch < epochs[0][0] and epochs[0][1] > log_start:
        path = Path(call.view.log_dirs[state["log_dir"]], f"{name}-{one.partition}", file_names.LEADER_EPOCH_CHECKPOINT)
        try:
            epochs = read_leader_epochs(path)
        except (OSError, CorruptCheckpointError):
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return answer
    epochs = epochs_from(epochs, log_start)
    if not epochs or epochs[-1][0] < state["leader_epoch"]:
        epochs = [*epochs, (state["leader_epoch"], state["log_end_offset"])]  # led, and nothing written yet
    answer.leader_epoch, answer.end_offset = end_offset(epochs, one.leader_epoch, state["log_end_offset"])
    return answer


def end_offset(epochs: list[tuple[int, int]], asked: int, log_end_offset: int) -> tuple[int, int]:
    """(epoch, end offset) of the largest epoch that is not above `asked`; (-1, -1) when that is not known (KIP-279).

    An epoch older than all that are known ends, as far as this log tells, where the first of these begins.

    :param epochs: (epoch, start offset), ascending.
    """
    if not epochs or asked == UNDEFINED or asked > epochs[-1][0]:
        return UNDEFINED, UNDEFINED
    if asked == epochs[-1][0]:
        return asked, log_end_offset
    following = next(start for epoch, start in epochs if epoch > asked)
    return max((epoch for epoch, _ in epochs if epoch <= asked), default=asked), following
