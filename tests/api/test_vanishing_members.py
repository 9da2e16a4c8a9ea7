"""Members whose connection ends at any point of a rebalance: no other member waits longer than the group's time-outs.

A client waits for the responses of JoinGroup and SyncGroup for minutes, so a lost response stops a consumer. Therefore every
request of the remaining members must be answered, and the group must become stable with them.
"""

import itertools
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.testing import Broker
from tests.api.group_talk import GroupTalk, assignment
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("groups-wire")

CONFIG = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 100, "offsets.topic.num.partitions": 3}
TIMES = {"session_timeout_ms": 300, "rebalance_timeout_ms": 600}
POINTS = ("asked", "told an id", "asked with it", "joined", "asked for its part", "synced", "left")
OLD, NEW = 3, 9  # without and with MEMBER_ID_REQUIRED
AGAIN = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(CONFIG, directory=tmp_path_factory.mktemp("vanishing")) as one:
        with GroupTalk(one.host, one.port) as wire:
            wire.create("topic", 3)
            wire.until_coordinated("first")
        yield one


class Busy:
    """Keeps the coordinator at work: groups of one member that commit and beat."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.rounds = 0

    def _run(self) -> None:
        try:
            with GroupTalk(self._broker.host, self._broker.port) as wire:
                while not self._stop.is_set():
                    group = f"busy-{self.rounds}"
                    member_id, generation = wire.joined(group)
                    wire.commit(group, {("topic", 0): 1}, generation_id_or_member_epoch=generation, member_id=member_id)
                    wire.heartbeat(group, member_id, generation)
                    wire.leave(group, (member_id, None))
                    self.rounds += 1
        except BaseException as error:  # given to the test at the end
            self._failure = error

    def __enter__(self) -> "Busy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure


def vanish(broker: Broker, group: str, point: str, version: int, reset: bool) -> None:
    """Go as far as `point`, then be gone without a word."""
    with GroupTalk(broker.host, broker.port) as wire:
        go_as_far_as(wire, group, point, version)
        if reset:
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def go_as_far_as(wire: GroupTalk, group: str, point: str, version: int) -> None:
    wire.send_join(group, "", version, **TIMES)
    if point == "asked":
        return
    answer = wire.receive()
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        if point == "told an id":
            return
        wire.send_join(group, answer.member_id, version, **TIMES)
        if point == "asked with it":
            return
        answer = wire.receive()
    if answer.error_code or point in ("told an id", "asked with it", "joined"):
        return
    told = {one.member_id: b"" for one in answer.members}
    wire.send_sync(group, answer.member_id, answer.generation_id, 0 if version == OLD else 5, assignments=told)
    if point == "asked for its part":
        return
    wire.receive()
    if point == "left":
        wire.leave(group, (answer.member_id, None))


class Staying:
    """A member that does as clients do, until it has the group for itself."""

    def __init__(self, broker: Broker, group: str, version: int) -> None:
        self._wire = GroupTalk(broker.host, broker.port)
        self._group, self._version = group, version
        self._member_id, self._generation = "", -1

    def close(self) -> None:
        self._wire.socket.close()

    def step(self) -> bool:
        """Join, or show that it lives; whether it is the only member of a stable group."""
        if self._generation < 0:
            self._join()
            return False
        version = 0 if self._version == OLD else 4
        code = self._wire.heartbeat(self._group, self._member_id, self._generation, version).error_code
        if code in AGAIN:
            self._again(code)
            return False
        assert code == ErrorCode.NONE
        (told,) = self._wire.describe(self._group).groups
        return told.group_state == "Stable" and [one.member_id for one in told.members] == [self._member_id]

    def _again(self, code: int) -> None:
        assert code in AGAIN, ErrorCode(code)
        self._generation = -1
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""

    def _join(self) -> None:
        joined = self._wire.join(self._group, self._member_id, self._version, **TIMES)
        if joined.error_code:
            self._again(joined.error_code)
            return
        told = {one.member_id: assignment("topic", 0) for one in joined.members}
        version = 0 if self._version == OLD else 5
        synced = self._wire.sync(self._group, joined.member_id, joined.generation_id, version, assignments=told)
        self._member_id = joined.member_id
        if synced.error_code:
            self._again(synced.error_code)
            return
        self._generation = joined.generation_id


def one_vanishes(broker: Broker, group: str, point: str, version: int, order: str, reset: bool) -> None:
    staying = Staying(broker, group, version)
    try:
        if order == "first":
            vanish(broker, group, point, version, reset)
        elif order == "second":
            until(staying.step, f"{group} with one member")
            gone = threading.Thread(target=vanish, args=(broker, group, point, version, reset))
            gone.start()
            while gone.is_alive():  # it is answered once this one joins again
                staying.step()
            gone.join()
        else:
            gone = threading.Thread(target=vanish, args=(broker, group, point, version, reset))
            gone.start()
            staying.step()
            while gone.is_alive():
                staying.step()
            gone.join()
        until(staying.step, f"{group} with one member")
    finally:
        staying.close()


def test_who_vanishes_at_any_point_of_a_rebalance_keeps_nobody_waiting(broker: Broker) -> None:
    cases = itertools.product(POINTS, (OLD, NEW), ("first", "second", "together"), (False, True))
    with Busy(broker) as busy, ThreadPoolExecutor(8) as pool:
        running = [pool.submit(one_vanishes, broker, f"vanish-{number}", *case) for number, case in enumerate(cases)]
        for one in running:
            one.result()
    assert len(running) == 84
    assert busy.rounds > 0


def test_one_that_vanishes_while_it_joins_is_a_member_for_no_longer_than_its_session(broker: Broker) -> None:
    """Also if the rebalance takes longer: its partitions would be read by nobody for another session."""
    group = "vanished"
    with GroupTalk(broker.host, broker.port) as staying:
        member_id, _ = staying.joined(group)

        def members() -> list[str]:
            (told,) = staying.describe(group).groups
            return [one.member_id for one in told.members]

        with GroupTalk(broker.host, broker.port) as vanishing:
            vanishing.send_join(group, version=OLD, **TIMES)
            until(lambda: len(members()) == 2, "the second one joins")
        until(lambda: members() == [member_id], "the second one is no member any more", 20.0)
        (told,) = staying.describe(group).groups
        assert told.group_state == "PreparingRebalance"
