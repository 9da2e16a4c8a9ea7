"""AlterPartition while the controller loses the metadata store: the leader receives an error after which it asks again."""

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.cluster.alter_partition import handle
from odradek.controller.store_errors import NotController
from odradek.metadata.store import StoreTimeout
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import alter_partition


class Cluster:
    """A controller that fails. :param where: in which call."""

    active = True

    def __init__(self, error: Exception, where: str) -> None:
        self.error = error
        self.where = where

    def _fail(self, where: str) -> None:
        if where == self.where:
            raise self.error

    def find(self, topic: str, partition: int) -> None:
        self._fail("find")

    def alter_partition(self, *_: Any) -> tuple[ErrorCode, list[Any]]:
        self._fail("alter_partition")
        return ErrorCode.NONE, [SimpleNamespace(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partition=None)]

    def after_alter_partition(self, verdicts: Any) -> None:
        self._fail("after_alter_partition")


@pytest.mark.parametrize("where", ["find", "alter_partition", "after_alter_partition"])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreTimeout("ZooKeeper is not connected"), ErrorCode.REQUEST_TIMED_OUT),
        (NotController("broker 2 is the controller"), ErrorCode.NOT_CONTROLLER),
    ],
)
def test_a_failure_of_the_store_is_an_error_in_the_response(error: Exception, code: ErrorCode, where: str) -> None:
    make = alter_partition.Request
    partition = make.PartitionData(partition_index=0, leader_epoch=1, new_isr=[1], partition_epoch=2)
    topic = make.TopicData(topic_name="orders", partitions=[partition])
    call: Any = SimpleNamespace(version=0, view=SimpleNamespace(cluster=Cluster(error, where)))
    response = handle(make(broker_id=1, broker_epoch=5, topics=[topic]), call)
    assert (response.error_code, response.topics) == (code, [])
