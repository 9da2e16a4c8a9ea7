"""AlterReplicaLogDirs (34): moves replicas to another log directory of this broker. In the coordinator's store thread.

A request to move a replica to its present directory succeeds, as in Kafka. The broker does not move replicas between
directories while it runs. The response has no field for a message, so the reason is logged.
"""

import logging
from pathlib import Path
from typing import Any

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.shm.slot import SlotState
from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.elements import Elements
from odradek.api.guarding import (
    of_whole,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import alter_replica_log_dirs
from odradek.security.needs import (
    ALTERS,
)
from odradek.stepwise import Pace, Steps

log = logging.getLogger("odradek.requests")

STEP = 100

Response = alter_replica_log_dirs.Response
API = Api(
    alter_replica_log_dirs.SCHEMA,
    versions=(0, 2),
    place=Place.COORDINATOR,
    rights=ALTERS,
    per_partition=2,
    refused=Elements(
        alter_replica_log_dirs.SCHEMA, "dirs.topics.partitions", "results.partitions", {"topic_name": "name"}
    ),
)
guard = of_whole(API)


def handle(request: alter_replica_log_dirs.Request, call: CoordinatorCall) -> Steps:
    """Handle each partition independently, a few per step; the results are grouped by topic, as in the response."""
    of_topic: dict[str, list[Any]] = {}
    pace = Pace(STEP)
    for directory in request.dirs:
        if pace.over():
            yield
        for topic in directory.topics:
            results = of_topic.setdefault(topic.name, [])
            if pace.over():
                yield
            for partition in topic.partitions:
                if pace.over():
                    yield
                code = _outcome(directory.path, topic.name, partition, call)
                results.append(Response.AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=code))
    response = Response()
    for name, partitions in of_topic.items():
        response.results.append(Response.AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions))
        if pace.over():
            yield
    return response


def _outcome(path: str, topic: str, partition: int, call: CoordinatorCall) -> ErrorCode:
    table = call.view.table
    target = next((number for number, own in enumerate(table.log_dirs) if Path(own) == Path(path)), None)
    if target is None or not Path(path).is_absolute():
        return ErrorCode.LOG_DIR_NOT_FOUND
    if table.shm.log_dir_offline(target):
        return ErrorCode.KAFKA_STORAGE_ERROR
    slot = table.find(topic, partition)
    if slot < 0:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    place = slot_facts.describe(slot)
    if place.log_dir == target:
        return ErrorCode.NONE
    if place.state == SlotState.SLOT_OFFLINE:
        return ErrorCode.KAFKA_STORAGE_ERROR
    log.warning("refused to move %s-%d from %s to %s: the broker does not move replicas between directories while it runs",
                topic, partition, table.log_dirs[place.log_dir], path)  # fmt: skip
    return ErrorCode.OPERATION_NOT_ATTEMPTED
