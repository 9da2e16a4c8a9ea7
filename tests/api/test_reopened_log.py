"""A log that was taken out of service and is loaded again while the broker runs: no cached state of the former log is used."""

from odradek._ext.partition import slot_life
from odradek._ext.testing import slot_probe
from odradek.protocol.schemas import fetch
from tests.api.worker_harness import HandWorker
from tests.wire import batch, fetch_request, values


def read(worker: HandWorker, offset: int) -> list[bytes]:
    wire = worker.connect()
    wire.send(fetch_request([("t", 0, offset)]), fetch.API_KEY, 12)
    worker.turn()
    return values(wire.receive().responses[0].partitions[0].records)


def test_a_reader_is_not_sent_to_where_a_batch_lay_before(tmp_path) -> None:
    worker = HandWorker(tmp_path)
    slot = worker.create("t")
    slot_probe.append(slot, [batch(b"a" * 10) for _ in range(6)])
    assert read(worker, 3) == [b"a" * 10] * 3
    slot_life.set_offline(slot)
    path = worker.broker.table.path(slot) / f"{0:020d}.log"
    longer = [bytearray(batch(b"b" * 100)) for _ in range(6)]
    for offset, one in enumerate(longer):
        one[:8] = offset.to_bytes(8, "big")
    path.write_bytes(b"".join(longer))
    worker.broker.table.open(slot, clean=False)
    worker.topics.refresh()
    assert [read(worker, offset) for offset in range(6)] == [[b"b" * 100] * (6 - offset) for offset in range(6)]
    worker.close()
