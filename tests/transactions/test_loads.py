"""What a coordinator finds when it loads its partition again."""

from odradek.protocol.errors import ErrorCode
from odradek.transactions.environment import Marker
from tests.transactions.by_hand import BILLS, ID, NONE, ORDERS, Process

FENCED = ErrorCode.PRODUCER_FENCED
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_load_completes_what_is_decided(ongoing):
    ongoing.held = True
    ongoing.end(ID, 0, commits=False)
    ongoing.held = False
    other = Process()
    other.log.records = ongoing.log.records
    other.load(9)
    assert other.sent == [[Marker("t", ID, 1, 9, False, 2, *ORDERS), Marker("t", ID, 1, 9, False, 2, *BILLS)]]
    assert other.state() == "CompleteAbort"


def test_ids_answer_after_the_load(process):
    process.coordinator.begin(0, process.log, 8)
    assert process.init().code == process.add(ID, 0).code == process.end(ID, 0).code == process.state() == LOADING
    assert process.verify(ID, 0) == {ORDERS: LOADING}
    assert process.coordinator.loading
    assert process.coordinator.error_of("t") == LOADING
    for _ in process.coordinator.loaded(0):
        pass
    assert process.coordinator.error_of("t") == NONE
    assert process.init().code == NONE


def test_the_last_epoch_is_not_in_the_log(process):
    process.init()
    assert process.init(producer_id=ID, epoch=0).answer == (NONE, ID, 1)
    assert process.init(producer_id=ID, epoch=0).answer == (NONE, ID, 1), "a retry"
    process.load()
    assert process.init(producer_id=ID, epoch=0).code == FENCED, "as in Kafka"


def test_records_that_cannot_be_read_are_skipped(process):
    process.init()
    [(key, value)] = process.log.records
    bad = [(b"\x00\x09\x00\x01t", value), (key, b"\x00\x07" + value[2:]), (b"", value), (key, b"\x00")]
    process.coordinator.begin(0, process.log, 8)
    assert process.coordinator.replay(0, [(key, value), *bad]) == 4
    for _ in process.coordinator.loaded(0):
        pass
    assert process.state() == "Empty"


def test_ids_belong_to_partitions_by_javas_hash():
    process = Process(partitions=50)
    names = [f"id-{number}" for number in range(200)]
    served = [name for name in names if process.init(name).code == NONE]
    assert 0 < len(served) < 20
    assert process.init(next(name for name in names if name not in served)).code == ErrorCode.NOT_COORDINATOR
