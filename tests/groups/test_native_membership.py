"""Native JoinGroup, SyncGroup and Heartbeat compared with schema and handler: equal calls of the group, equal responses."""

import asyncio
import random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek._ext.api import group_requests as native
from odradek.api.groups import join_group as join_api
from odradek.api.groups import sync_group as sync_api
from odradek.api.groups.group_call import FAILED, GroupCall, host_of
from odradek.api.permits import unrestricted
from odradek.api.pipeline import frame_response
from odradek.api.table import BY_KEY, function_named
from odradek.groups.classic_member import JoinResult, SyncResult
from odradek.net.forward_frames import ForwardContext, Status
from odradek.protocol import LARGE_BYTES, ProtocolError, decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.registry import by_key
from odradek.protocol.schemas import heartbeat, join_group, sync_group
from odradek.protocol.schemas.header import RequestHeader, decode_request_header, request_header_version
from tests.groups.handling import handled
from tests.protocol.lies import CORRELATION_END, with_lies
from tests.protocol.messages import RANGES

JOIN, BEAT, SYNC = 11, 12, 14
READERS = {JOIN: native.read_join, BEAT: native.read_heartbeat, SYNC: native.read_sync}
ALL = [(key, version) for key in READERS for version in range(BY_KEY[key].max_version + 1)]
ASKER = ForwardContext(7, 0, "[::1]:4711", "caf\u00e9")


class Recorder:
    """Groups that record requests and return `outcome`."""

    def __init__(self, outcome):
        self.outcome = outcome
        self.calls = []

    def join(self, group_id, join, then):
        self.calls.append((group_id, join))
        then(self.outcome)

    sync = join

    def reads_subscriptions(self, group_id):
        return False

    def join_disconnected(self, group_id, then):
        """Nothing: all requests are answered at once."""

    def heartbeat(self, *call):
        self.calls.append(call)
        return self.outcome


class Waiting(Recorder):
    """A group in which members wait for others."""

    def join(self, group_id, join, then):
        self.calls.append((group_id, then))

    def join_disconnected(self, group_id, then):
        self.calls.append((group_id, then))


def frame_of(request, key, version):
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=-7, client_id=ASKER.client_id
    )
    return encode(header, request_header_version(key, version)) + encode(request, version)


def reference(frame, outcome):
    """The calls of the group, and the response, by schema and handler."""
    header, body = decode_request_header(frame)
    row, version = BY_KEY[header.request_api_key], header.request_api_version
    message, _ = decode(by_key(row.key).request, version, frame, body)
    groups = Recorder(outcome)
    view = SimpleNamespace(groups=SimpleNamespace(members=groups), permits_of=unrestricted)
    call = GroupCall(version, ASKER.client_id, host_of(ASKER.peer), ASKER.principal, view, lambda: None)
    response = asyncio.run(handled(function_named(row.handler), message, call))
    return groups.calls, frame_response(row, version, header.correlation_id, response)


def request_of(frame, answers):
    return SimpleNamespace(
        payload=frame,
        context=ASKER,
        answer=lambda *answer: answers.append(answer),
        park=lambda: None,
        when_gone=lambda callback: None,
    )


def natively(frame, key, outcome):
    """The calls and the response of the native code; None if it leaves the request to the handler."""
    groups, answers = Recorder(outcome), []
    serve = function_named(BY_KEY[key].at_once)
    if not serve(
        request_of(frame, answers), SimpleNamespace(groups=SimpleNamespace(members=groups), permits_of=unrestricted)
    ):
        assert not groups.calls and not answers
        return None
    ((answer,),) = answers
    return groups.calls, answer


def number(kind):
    return st.integers(*RANGES[kind])


TEXT = st.text(max_size=12)
MAYBE = st.none() | TEXT
DATA = st.binary(max_size=40)
JOINS = st.builds(
    join_group.Request,
    group_id=TEXT,
    session_timeout_ms=number("int32"),
    rebalance_timeout_ms=number("int32"),
    member_id=TEXT,
    group_instance_id=MAYBE,
    protocol_type=TEXT,
    protocols=st.lists(st.builds(join_group.Request.JoinGroupRequestProtocol, name=TEXT, metadata=DATA), max_size=4),
    reason=MAYBE,
)
SYNCS = st.builds(
    sync_group.Request,
    group_id=TEXT,
    generation_id=number("int32"),
    member_id=TEXT,
    group_instance_id=MAYBE,
    protocol_type=MAYBE,
    protocol_name=MAYBE,
    assignments=st.lists(
        st.builds(sync_group.Request.SyncGroupRequestAssignment, member_id=TEXT, assignment=DATA), max_size=4
    ),
)
BEATS = st.builds(
    heartbeat.Request, group_id=TEXT, generation_id=number("int32"), member_id=TEXT, group_instance_id=MAYBE
)
ERRORS = st.sampled_from(list(ErrorCode))
JOINED = st.builds(
    JoinResult,
    ERRORS,
    TEXT,
    number("int32"),
    MAYBE,
    MAYBE,
    TEXT,
    st.booleans(),
    st.lists(st.tuples(TEXT, MAYBE, DATA), max_size=130),
)
SYNCED = st.builds(SyncResult, ERRORS, MAYBE, MAYBE, DATA)
REQUESTS = {JOIN: JOINS, BEAT: BEATS, SYNC: SYNCS}
OUTCOMES = {JOIN: JOINED, BEAT: ERRORS, SYNC: SYNCED}


def fit(request, outcome, key, version):
    """The fields that exist in a version."""
    if key == JOIN and version < 1:
        request.rebalance_timeout_ms = -1
    if version < {JOIN: 5, BEAT: 3, SYNC: 3}[key]:
        request.group_instance_id = None
    if key == JOIN and version < 9:
        outcome = outcome._replace(skip_assignment=False)
    return outcome


@pytest.mark.parametrize(("key", "version"), ALL)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_version_is_read_and_answered_as_the_schema_says(key, version, data):
    request = data.draw(REQUESTS[key])
    outcome = fit(request, data.draw(OUTCOMES[key]), key, version)
    frame = frame_of(request, key, version)
    assert natively(frame, key, outcome) == reference(frame, outcome)


@pytest.mark.parametrize(("key", "version"), ALL)
def test_what_is_cut_or_lies_is_left_to_the_schema(key, version):
    """The native code serves only complete requests; after a changed byte it behaves as the schema, or not at all."""
    fields = {"group_id": "g", "member_id": "m"}
    if key == JOIN:
        protocol = join_group.Request.JoinGroupRequestProtocol(name="range", metadata=b"abc")
        request = join_group.Request(session_timeout_ms=7, protocol_type="consumer", protocols=[protocol] * 2, **fields)
        outcome = JoinResult(ErrorCode.NONE, "m", 3, "consumer", "range", "m")
    elif key == SYNC:
        assignment = sync_group.Request.SyncGroupRequestAssignment(member_id="m", assignment=b"abc")
        request = sync_group.Request(protocol_type="c", protocol_name="r", assignments=[assignment] * 2, **fields)
        outcome = SyncResult(ErrorCode.NONE, "c", "r", b"abc")
    else:
        request, outcome = heartbeat.Request(generation_id=1, **fields), ErrorCode.NONE
    frame = frame_of(request, key, version)
    assert READERS[key](frame) is not None
    for end in range(len(frame)):
        assert READERS[key](frame[:end]) is None
    for at in range(8, len(frame)):  # behind the correlation id
        for value in (0, 1, 0x7F, 0x80, 0xFF, frame[at] ^ 1):
            changed = frame[:at] + bytes([value]) + frame[at + 1 :]
            served = natively(changed, key, outcome)
            if served is not None:
                assert served == reference(changed, outcome)


@pytest.mark.parametrize(("key", "version"), ALL)
@settings(max_examples=8, deadline=None)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_lies_in_every_place_are_left_to_the_schema_or_read_as_by_it(key, version, data, seed):
    request = data.draw(REQUESTS[key])
    outcome = fit(request, data.draw(OUTCOMES[key]), key, version)
    for bad in with_lies(random.Random(seed), frame_of(request, key, version), CORRELATION_END):
        served = natively(bad, key, outcome)
        if served is not None:
            assert served == reference(bad, outcome)
        else:
            with pytest.raises(ProtocolError):
                reference(bad, outcome)


@pytest.mark.parametrize("key", READERS)
def test_versions_that_are_not_served_are_left_alone(key):
    request = {JOIN: join_group, BEAT: heartbeat, SYNC: sync_group}[key].Request(group_id="g")
    frame = frame_of(request, key, BY_KEY[key].max_version)
    for version in (-1, BY_KEY[key].max_version + 1, 32767):
        assert READERS[key](frame[:2] + version.to_bytes(2, "big", signed=True) + frame[4:]) is None
    assert READERS[key]((99).to_bytes(2, "big") + frame[2:]) is None


@pytest.mark.parametrize(
    ("key", "outcome"),
    [
        (JOIN, JoinResult(ErrorCode.NONE, "m" * 32768, 1, "consumer", "range", "m")),
        (SYNC, SyncResult(ErrorCode.NONE, "consumer", "r" * 32768)),
    ],
)
def test_a_response_that_cannot_be_encoded_fails_only_its_own_request(key, outcome):
    """The group answers many members together: an error in one response must not block the others."""
    assert FAILED == Status.FAILED
    request = {JOIN: join_group, SYNC: sync_group}[key].Request(group_id="g", protocol_type="c")
    if key == SYNC:
        request.protocol_name = "r"
    answers = []
    serve = function_named(BY_KEY[key].at_once)
    frame = frame_of(request, key, BY_KEY[key].max_version)
    view = SimpleNamespace(groups=SimpleNamespace(members=Recorder(outcome)), permits_of=unrestricted)
    assert serve(request_of(frame, answers), view)
    assert answers == [(b"", 0, Status.FAILED)]


@pytest.mark.parametrize("bytes_of_content", [10, LARGE_BYTES])
@pytest.mark.parametrize("api", [join_api, sync_api])
def test_long_requests_are_decoded_in_steps(api, bytes_of_content):
    content = bytes(bytes_of_content)
    if api is join_api:
        make = join_group.Request
        request = make(group_id="g", protocols=[make.JoinGroupRequestProtocol(name="range", metadata=content)])
    else:
        make = sync_group.Request
        request = make(group_id="g", assignments=[make.SyncGroupRequestAssignment(member_id="m", assignment=content)])
        request.protocol_type, request.protocol_name = "consumer", "range"
    groups, answers = Waiting(None), []
    groups.sync = groups.join
    view = SimpleNamespace(groups=SimpleNamespace(members=groups), permits_of=unrestricted)
    frame = frame_of(request, 11 if api is join_api else 14, 5)
    assert api.at_once(request_of(frame, answers), view) is (bytes_of_content < LARGE_BYTES)
    assert len(groups.calls) == (bytes_of_content < LARGE_BYTES)


def test_a_group_learns_that_the_client_of_a_decoded_join_is_gone():
    groups = Waiting(None)
    call = GroupCall(5, "c", "h", "p", SimpleNamespace(groups=SimpleNamespace(members=groups)), lambda: None)

    async def run():
        joining = asyncio.create_task(handled(join_api.handle, join_group.Request(group_id="g"), call))
        await asyncio.sleep(0)
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining

    asyncio.run(run())
    (joined, then), (left, gone) = groups.calls
    assert (joined, left) == ("g", "g")
    assert gone is then
