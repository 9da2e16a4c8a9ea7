"""The cost of one request: limits of elements and of bytes for every API, and long responses in steps."""

from types import SimpleNamespace

import pytest

from odradek.api.api import Place
from odradek.api.call import Call
from odradek.api.table import APIS, MAX_REQUEST_BYTES, limits_of
from odradek.api.topics import metadata as metadata_api
from odradek.config.broker_config import resolve
from odradek.protocol import LARGE_BYTES, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.registry import by_key
from odradek.protocol.schemas import (
    api_versions,
    create_topics,
    delete_records,
    describe_configs,
    describe_groups,
    find_coordinator,
    list_offsets,
    list_transactions,
    metadata,
    offset_fetch,
    produce,
)
from odradek.protocol.schemas.header import RequestHeader
from odradek.stepwise import Stepwise
from odradek.testing import Broker
from tests.api.worker_harness import HandWorker
from tests.waiting import until
from tests.wire import Wire, batch, produce_request

MAX_PARTITIONS = 64
CONFIG = {"odradek.max.partitions": MAX_PARTITIONS, "num.network.threads": 1, "auto.create.topics.enable": "false"}
LIMITS = limits_of(resolve([(key, str(value), "") for key, value in CONFIG.items()]))

pytestmark = pytest.mark.xdist_group("request-limits")


@pytest.fixture(scope="module")
def small_broker(tmp_path_factory):
    """One that may have few partitions: what may be named for each of them is little then."""
    with Broker(CONFIG, directory=tmp_path_factory.mktemp("limits")) as broker:
        with Wire(broker.host, broker.port) as wire:
            wire.create("t", 3)
        yield broker


@pytest.fixture
def wire(small_broker):
    with Wire(small_broker.host, small_broker.port) as wire:
        yield wire


def arrays():
    """(API, an array of its request) of all that are not native: the first array of each in its newest version."""
    for row in APIS:
        fields = by_key(row.key).request._structure.fields
        found = [field for field in fields if field.is_array and row.max_version in field.versions]
        if found and row.place is not Place.NATIVE and row.served(clustered=False):
            yield pytest.param(row, found[0], id=row.name)


def request_with(row, field, count):
    """A request with an array of `count` elements that are as empty as may be."""
    empty = {"string": "", "uuid": bytes(16)}.get(field.element, 0)
    element = empty if field.structure is None else field.structure.cls()
    request = by_key(row.key).request()
    setattr(request, field.attribute, [element] * count)
    return request


@pytest.mark.parametrize(("row", "field"), list(arrays()))
def test_a_request_with_more_elements_than_its_api_allows_closes_its_connection(small_broker, wire, row, field):
    limit = LIMITS[row.key]
    wire.ask(request_with(row, field, limit), row.key, row.max_version)
    wire.send(request_with(row, field, limit + 1), row.key, row.max_version)
    assert wire.closed_by_broker()
    with Wire(small_broker.host, small_broker.port) as other:
        assert other.ask(api_versions.Request(), api_versions.API_KEY, 0).error_code == 0


def test_the_elements_of_all_arrays_of_a_request_count_together(small_broker, wire):
    row = next(row for row in APIS if row.key == list_offsets.API_KEY)
    make = list_offsets.Request
    limit = LIMITS[row.key]
    topics = [
        make.ListOffsetsTopic(name="t", partitions=[make.ListOffsetsPartition(timestamp=-1)] * (limit // 10 - 1))
    ] * 10
    assert wire.ask(make(replica_id=-1, topics=topics), row.key, row.max_version).topics
    topics += [make.ListOffsetsTopic(name="t")] * (limit % 10 + 1)
    wire.send(make(replica_id=-1, topics=topics), row.key, row.max_version)
    assert wire.closed_by_broker()
    until(lambda: f"its arrays have more than {limit} elements" in small_broker.log_tail(), "the reason is in the log")


@pytest.mark.parametrize("key", [metadata.API_KEY, offset_fetch.API_KEY, delete_records.API_KEY])
def test_a_request_that_is_decoded_in_steps_has_the_same_limits(tmp_path, key):
    """Of a worker, of the coordinator's loop and of its store thread: above LARGE_BYTES, and refused in its last step.

    It has a broker of its own: the log has few lines about one client in a minute, and other tests cause many.
    """
    with Broker(CONFIG, directory=tmp_path) as broker, Wire(broker.host, broker.port) as wire:
        check_a_large_request_that_is_cut(broker, wire, key)


def check_a_large_request_that_is_cut(broker, wire, key):
    row = next(row for row in APIS if row.key == key)
    schema = by_key(key)
    fields = schema.request._structure.fields
    field = next(field for field in fields if field.is_array and row.max_version in field.versions)
    name = next(one.attribute for one in field.structure.fields if one.element == "string")
    elements = [field.structure.cls(**{name: f"{number:020}"}) for number in range(LIMITS[key])]
    request = schema.request(**{field.attribute: elements})
    assert len(encode(request, row.max_version)) > LARGE_BYTES
    assert wire.ask(request, key, row.max_version) is not None
    elements[-1] = field.structure.cls(**{name: "n" * 10})
    data = encode(request, row.max_version)
    head = encode(RequestHeader(request_api_key=key, request_api_version=row.max_version, correlation_id=1), 2)
    frame = head + data[:-12]
    wire.socket.sendall(len(frame).to_bytes(4, "big") + frame)
    assert wire.closed_by_broker()
    until(lambda: f"{schema.request.__name__} v{row.max_version}" in broker.log_tail(), "the reason is in the log")


@pytest.mark.parametrize("key", [3, 9, 1])
def test_a_request_with_more_bytes_than_others_than_produce_may_have_closes_its_connection(small_broker, wire, key):
    frame = key.to_bytes(2, "big") + bytes(6) + b"\xff\xff" + bytes(MAX_REQUEST_BYTES)
    wire.socket.sendall(len(frame).to_bytes(4, "big") + frame)
    assert wire.closed_by_broker()
    until(
        lambda: (
            f"API key {key} has {len(frame)} bytes, allowed are at most {MAX_REQUEST_BYTES}" in small_broker.log_tail()
        ),
        "the reason is in the log",
    )


def test_a_produce_may_have_more_bytes(wire):
    records = batch(bytes(500_000))
    request = produce_request([("t", [(0, records)] * (MAX_REQUEST_BYTES // len(records) + 1))])
    answer = wire.ask(request, produce.API_KEY, 9).responses[0].partition_responses
    assert {one.error_code for one in answer} == {0}


@pytest.mark.parametrize("partitions", [2**31 - 1, 65, MAX_PARTITIONS])
def test_a_topic_with_more_partitions_than_a_broker_can_hold_is_refused(wire, partitions):
    """And nothing is made for each of them before: the first of these took all memory."""
    make = create_topics.Request
    topic = make.CreatableTopic(name="large", num_partitions=partitions, replication_factor=1)
    (result,) = wire.ask(make(topics=[topic], timeout_ms=60_000), create_topics.API_KEY, 7).topics
    assert result.error_code == ErrorCode.INVALID_PARTITIONS


def test_a_resource_that_is_named_often_is_described_once(wire):
    make = describe_configs.Request
    topic = make.DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=["retention.ms"])
    other = make.DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=["segment.ms"])
    results = wire.ask(make(resources=[topic, other] * 1000), describe_configs.API_KEY, 4).results
    assert [one.configs[0].name for one in results] == ["retention.ms", "segment.ms"]


def test_a_group_that_is_named_often_is_described_once(wire):
    until(lambda: wire.ask(find("g"), find_coordinator.API_KEY, 6).coordinators[0].error_code == 0, "there are groups")
    groups = wire.ask(describe_groups.Request(groups=["g", "h"] * 1000), describe_groups.API_KEY, 6).groups
    assert [one.group_id for one in groups] == ["g", "h"]
    make = offset_fetch.Request
    asked = [make.OffsetFetchRequestGroup(group_id=group, topics=None) for group in ("g", "h", "g")]
    assert [one.group_id for one in wire.ask(make(groups=asked), offset_fetch.API_KEY, 9).groups] == ["g", "h"]


def find(group):
    return find_coordinator.Request(coordinator_keys=[group])


def test_a_pattern_of_transactional_ids_is_bounded(wire):
    for length, code in ((1000, 0), (1001, ErrorCode.INVALID_REGULAR_EXPRESSION)):
        request = list_transactions.Request(transactional_id_pattern="a" * length)
        assert wire.ask(request, list_transactions.API_KEY, 2).error_code == code


# -- long answers ---------------------------------------------------------------------------------------------------


@pytest.fixture
def worker(tmp_path):
    worker = HandWorker(tmp_path, max_slots=1300)
    yield worker
    worker.close()


class Asked:
    """A Metadata request as the handler gets it."""

    def __init__(self, worker):
        self.created = []
        settings = {"auto.create.topics.enable": "true", "node.id": "1"}
        view = SimpleNamespace(
            config=resolve([(key, value, "") for key, value in settings.items()]),
            shm=SimpleNamespace(cluster_id="cluster"),
            topics=worker.topics,
            advertised=[SimpleNamespace(host="here", port=9092)],
            brokers=None,
            addresses=None,
        )
        self.call = Call(12, None, 0, None, view, self.create)

    def create(self, names, then):
        self.created.append(names)
        then([(name, 0, None) for name in names])

    def ask(self, *names, **options):
        """The steps of the handler."""
        topics = [metadata.Request.MetadataRequestTopic(name=name) for name in names]
        return metadata_api.handle(metadata.Request(topics=topics if names else None, **options), self.call)


def steps_of(generator):
    """(how many steps there were, what they came to)."""
    job, count = Stepwise(generator), 1
    while job.step():
        count += 1
    return count, job.result


def test_metadata_of_many_partitions_is_put_together_in_steps(worker):
    worker.create_many("many", 1200)
    worker.create("few")
    steps, response = steps_of(Asked(worker).ask())
    assert steps >= 3
    few, many = response.topics
    assert [one.partition_index for one in few.partitions] == [0]
    assert [one.partition_index for one in many.partitions] == list(range(1200))
    assert {one.leader_id for one in many.partitions} == {1}


def test_metadata_of_many_names_is_put_together_in_steps_and_creates_none(worker):
    worker.create("few")
    asked = Asked(worker)
    names = [f"unknown-{number}" for number in range(2000)]
    steps, response = steps_of(asked.ask(*names, "few", allow_auto_topic_creation=True))
    assert steps >= 4
    codes = [one.error_code for one in response.topics]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2000 + [0]
    assert asked.created == []


def test_metadata_of_some_names_creates_those_that_are_not_there(worker):
    worker.create_many("many", 1200)
    asked = Asked(worker)
    steps, response = steps_of(asked.ask("new", "many", allow_auto_topic_creation=True))
    assert asked.created == [["new"]]
    assert steps >= 3
    assert [one.name for one in response.topics] == ["new", "many"]


def test_a_topic_that_changes_between_two_steps_is_answered_as_it_was_or_is(worker):
    slots = worker.create_many("many", 1200)
    job = Stepwise(Asked(worker).ask())
    assert job.step()
    for slot in slots:
        worker.broker.table.delete(slot)
    worker.broker.table.announce(slots)
    worker.topics.refresh()
    assert len(job.finish().topics[0].partitions) <= 1200
