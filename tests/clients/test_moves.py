"""What `odradek.clients.moves` asks the controller for."""

import pytest

from odradek.clients import moves
from odradek.clients.errors import UnsupportedError
from odradek.clients.move_plan import Assigned, Move
from odradek.protocol.schemas.alter_partition_reassignments import Response

IDLE = Move(Assigned("t", 0, 1, (1, 2), (1, 2)), (3, 2))
MOVING = Move(Assigned("t", 1, 1, (1, 2, 3), (1, 2)), (4, 2, 3))


class Controller:
    """Notes (numbers of partitions, whether the factor may change, oldest version) of each request; serves up to `newest`."""

    timeout_s = 30.0

    def __init__(self, newest: int) -> None:
        self.asked: list[tuple[list[int], bool, int]] = []
        self._newest = newest

    def ask_controller(self, api, request, errors, oldest=0):
        if oldest > self._newest:
            raise UnsupportedError("too old")
        numbers = [partition.partition_index for topic in request.topics for partition in topic.partitions]
        self.asked.append((numbers, request.allow_replication_factor_change, oldest))
        return Response()


@pytest.mark.parametrize(
    ("newest", "asked"),
    [(1, [([0], False, 1), ([1], True, 0)]), (0, [([0], True, 0), ([1], True, 0)])],
)
def test_the_factor_may_change_only_in_a_reassignment_in_progress(newest, asked):
    controller = Controller(newest)
    begun: list[int] = []
    assert moves.begin(controller, [IDLE, MOVING], begun.append) == {}  # type: ignore[arg-type]
    assert controller.asked == asked
    assert begun == [1, 1]
