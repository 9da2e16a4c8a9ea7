"""DescribeLogDirs (35): returns the log directories and the sizes of their partitions. Executed in the store thread."""

import os
from pathlib import Path
from typing import Any

import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.partition.slots as slots
from odradek._ext.shm.slot import SlotState
from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.guarding import (
    of_whole,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_log_dirs
from odradek.security.needs import (
    DESCRIBES,
)
from odradek.stepwise import Pace, Steps
from odradek.storage.file_names import partition_directory_name

FIRST_WITH_ERROR = 3
STEP = 500
READ_A_STEP = 1000
Response = describe_log_dirs.Response
API = Api(
    describe_log_dirs.SCHEMA,
    versions=(0, 5),
    place=Place.COORDINATOR,
    rights=DESCRIBES,
    per_partition=2,
)
guard = of_whole(API)


def handle(request: describe_log_dirs.Request, call: CoordinatorCall) -> Steps:
    """Describe every directory with the requested partitions, or with all partitions if none are named; a few per step.

    The lag of a partition that this broker follows is that behind the leader's high watermark; a leader has none.
    """
    requested: dict[str, set[int]] | None = None
    if request.topics is not None:
        requested = {}
        pace = Pace(READ_A_STEP)
        for topic in request.topics:
            if pace.over():
                yield
            of_topic = requested.setdefault(topic.topic, set())
            for partition in topic.partitions:
                of_topic.add(partition)
                if pace.over():
                    yield
    of_dir: dict[int, dict[str, list[Any]]] = {}
    pace = Pace(STEP)
    for name, partition, slot in slots.in_use():
        if pace.over():
            yield
        if requested is not None and partition not in requested.get(name, ()):
            continue
        state = slot_facts.describe(slot)
        if state.state in (SlotState.SLOT_ONLINE, SlotState.SLOT_LOADING):
            directory = call.view.table.log_dirs[state.log_dir] / partition_directory_name(name, partition)
            row = Response.DescribeLogDirsPartition(
                partition_index=partition, partition_size=size_of(directory), offset_lag=max(state.fetch_lag, 0)
            )
            of_dir.setdefault(state.log_dir, {}).setdefault(name, []).append(row)
    return Response(
        results=[_directory(n, path, of_dir.get(n, {}), call) for n, path in enumerate(call.view.table.log_dirs)]
    )


def _directory(number: int, path: Path, topics: dict[str, list[Any]], call: CoordinatorCall) -> Any:
    make = Response.DescribeLogDirsResult
    if call.view.table.shm.log_dir_offline(number):
        return make(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(path))
    try:
        space = os.statvfs(path)
    except OSError:
        return make(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(path))
    return make(
        log_dir=str(path),
        topics=[
            Response.DescribeLogDirsTopic(name=name, partitions=partitions)
            for name, partitions in sorted(topics.items())
        ],
        total_bytes=space.f_blocks * space.f_frsize,
        usable_bytes=space.f_bavail * space.f_frsize,
    )


def size_of(directory: Path) -> int:
    """Bytes of the segments in a partition's directory; a file that is removed meanwhile counts as 0."""
    total = 0
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.endswith(".log"):
                    total += _bytes(entry)
    except FileNotFoundError:
        return 0
    return total


def _bytes(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0
