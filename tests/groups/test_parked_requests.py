"""Waiting JoinGroups and SyncGroups do not count towards the coordinator's limit of bytes in progress."""

import asyncio
import gc
import socket
from collections.abc import Generator
from types import SimpleNamespace

import pytest

from odradek.api.groups.group_call import GroupCall, host_of
from odradek.api.permits import unrestricted
from odradek.api.pipeline import frame_response
from odradek.api.table import BY_KEY, function_named
from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.settings import GroupSettings
from odradek.net.forward import ForwardClient
from odradek.net.forward_frames import ForwardContext, ForwardReply, Status
from odradek.net.forward_server import ForwardServer
from odradek.processes.coordinator.groups.service import driven
from odradek.protocol import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.registry import by_key
from odradek.protocol.schemas import heartbeat, join_group, sync_group
from odradek.protocol.schemas.header import (
    RequestHeader,
    decode_request_header,
    request_header_version,
    response_header_version,
)
from tests.groups.by_hand import HandLog, HandTimers
from tests.groups.test_consumer_group import FewTopics

JOIN, BEAT, SYNC = 11, 12, 14
VERSIONS = {JOIN: 3, BEAT: 4, SYNC: 5}
PATIENCE_S = 120
MOST = 1_000_000
LARGE = bytes(300_000)
MEMBERS = 10


class Bench:
    """A worker's and a coordinator's end of the forwarding, with real groups and a stopped clock.

    :param natively: requests are served at once.
    """

    def __init__(self, path, natively):
        self.timers, self.log = HandTimers(), HandLog()
        settings = GroupSettings(min_session_timeout_ms=1)
        self.groups = GroupCoordinator(self.timers, settings, 1, FewTopics(), None, lambda _: None)
        self.groups.shards.begin(0, self.log)
        self.groups.loaded(0)
        self.view = SimpleNamespace(groups=self.groups, permits_of=unrestricted)
        self.natively = natively
        self.loop = asyncio.get_running_loop()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(4)
        self.client = ForwardClient(self.loop, path)
        self.server = ForwardServer(self.handle, self.at_once, max_bytes_in_flight=MOST)
        self.connections = 0

    def at_once(self, request):
        return self.natively and function_named(BY_KEY[request.api_key].at_once)(request, self.view)

    async def handle(self, request):
        header, body = decode_request_header(request.payload)
        row, version, asker = BY_KEY[header.request_api_key], header.request_api_version, request.context
        call = GroupCall(version, asker.client_id, host_of(asker.peer), asker.principal, self.view, park=request.park)
        message = [decode(by_key(row.key).request, version, request.payload, body)[0]]
        steps = function_named(row.handler)(message.pop(), call)
        response = await driven(steps) if isinstance(steps, Generator) else steps
        return ForwardReply(Status.OK, 0, frame_response(row, version, header.correlation_id, response))

    def ask(self, request, key):
        """Send a request on a new connection; return the future of its response."""
        self.connections += 1
        version = VERSIONS[key]
        header = RequestHeader(
            request_api_key=key, request_api_version=version, correlation_id=1, client_id=f"client-{self.connections}"
        )
        frame = encode(header, request_header_version(key, version)) + encode(request, version)
        future = self.loop.create_future()

        def answered(reply):
            assert reply.status is Status.OK
            skipped = 5 if response_header_version(key, version) else 4
            future.set_result(decode(by_key(key).response, version, reply.payload, skipped)[0])

        context = ForwardContext(self.connections, 0, "127.0.0.1:1", header.client_id)
        self.client.send(frame, context, self.loop.time() + PATIENCE_S, answered)
        return future

    def join(self):
        protocol = join_group.Request.JoinGroupRequestProtocol(name="range", metadata=LARGE)
        request = join_group.Request(
            group_id="g",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[protocol],
        )
        return self.ask(request, JOIN)

    def sync(self, member_id, generation_id):
        assignment = sync_group.Request.SyncGroupRequestAssignment(member_id=member_id, assignment=LARGE)
        request = sync_group.Request(
            group_id="g",
            generation_id=generation_id,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[assignment],
        )
        return self.ask(request, SYNC)

    async def is_served(self):
        """Check that another client's request is answered."""
        beat = heartbeat.Request(group_id="other", generation_id=1, member_id="m")
        answer = await asyncio.wait_for(self.ask(beat, BEAT), PATIENCE_S)
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    async def close(self):
        self.client.close()
        await self.server.stop(0)
        self.listener.close()


def run(tmp_path, natively, test):
    async def main():
        bench = Bench(str(tmp_path / "forward"), natively)
        await bench.server.start(bench.listener)
        try:
            await test(bench)
        finally:
            await bench.close()

    asyncio.run(main())


def requests():
    """Those in memory as objects."""
    gc.collect()
    kinds = join_group.Request, sync_group.Request
    return [request for request in gc.get_objects() if type(request) in kinds]


@pytest.mark.parametrize("natively", [True, False], ids=["at once", "by a task"])
def test_members_that_wait_for_a_rebalance_do_not_block_other_requests(tmp_path, natively):
    before = requests()  # of other tests; kept, so that no new object gets the id of one of them

    def held():
        """The number of added objects."""
        known = {id(request) for request in before}
        return sum(id(request) not in known for request in requests())

    async def test(bench):
        joins = [bench.join() for _ in range(MEMBERS)]
        await bench.is_served()
        assert bench.server.bytes_in_flight == 0
        assert bench.server.in_flight == MEMBERS  # a stop waits for them
        assert held() == 0
        bench.timers.advance(60_000)
        joined = await asyncio.wait_for(asyncio.gather(*joins), PATIENCE_S)
        assert {response.error_code for response in joined} == {ErrorCode.NONE}
        leader = next(response for response in joined if response.members)
        assert [bytes(member.metadata) for member in leader.members] == [LARGE] * MEMBERS

        syncs = [bench.sync(member.member_id, member.generation_id) for member in joined if member is not leader]
        await bench.is_served()
        assert (bench.server.bytes_in_flight, bench.server.in_flight) == (0, MEMBERS - 1)
        assert held() == 0
        syncs.append(bench.sync(leader.member_id, leader.generation_id))
        synced = await asyncio.wait_for(asyncio.gather(*syncs), PATIENCE_S)
        assert {response.error_code for response in synced} == {ErrorCode.NONE}
        assert bytes(synced[-1].assignment) == LARGE
        assert bench.server.in_flight == 0

    run(tmp_path, natively, test)


@pytest.mark.parametrize("natively", [True, False])
def test_a_stop_answers_waiting_members_at_once_and_later_ones(tmp_path, natively):
    async def test(bench):
        waiting = [bench.join() for _ in range(2)]  # for the initial rebalance delay, and the clock stands still
        await bench.is_served()
        assert not any(join.done() for join in waiting)
        bench.groups.shards.end()
        for join in (*waiting, bench.join(), bench.sync("m", 1)):
            answer = await asyncio.wait_for(join, PATIENCE_S)
            assert answer.error_code == ErrorCode.NOT_COORDINATOR  # clients look for the coordinator, and join again

    run(tmp_path, natively, test)
