"""A bit flips in the middle of a log, long after it was synced.

No start looks there: it would have to read everything. The batch's CRC tells whoever reads it: clients that check CRCs,
as they do unless told otherwise, and `odradek log verify`. The other batches are served as before.
"""

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from odradek.storage.batch import CorruptBatchError, read_batch
from odradek.storage.checkpoints import read_offset_checkpoint
from odradek.testing import Broker
from tests.waiting import until
from tests.wire import Wire, batch

TOPIC = "rotting"
RECORDS = 40


@pytest.mark.parametrize("stop", [Broker.stop, Broker.kill_group], ids=["ordered stop", "kill"])
def test_a_flipped_bit_behind_the_recovery_point_is_told_by_the_crc(tmp_path, count_faults, stop):
    config = {"log.flush.offset.checkpoint.interval.ms": 100, "log.flush.interval.ms": 50}
    with Broker(
        config, {TOPIC: {"partitions": 1, "flush.ms": "50", "segment.bytes": "1000"}}, directory=tmp_path
    ) as broker:
        with Wire.to(broker) as wire:
            for number in range(RECORDS):
                assert wire.produce(TOPIC, batch(b"%d" % number * 30)).error_code == 0
        checkpoint = broker.data_dir / "recovery-point-offset-checkpoint"
        until(  # a start after a kill reads the segment that holds the recovery point
            lambda: read_offset_checkpoint(checkpoint).get((TOPIC, 0), 0) == RECORDS,
            "the cleaner has synced all and noted it",
        )
        stop(broker)
        first = broker.data_dir / f"{TOPIC}-0" / f"{0:020d}.log"
        content = bytearray(first.read_bytes())
        _, second_batch = read_batch(content)
        content[second_batch + 80] ^= 1
        first.write_bytes(content)
        broker.start()
        with Wire.to(broker) as wire:
            whole = wire.fetch(TOPIC, 0)
            assert (whole.error_code, whole.high_watermark) == (0, RECORDS)
            _, at = read_batch(whole.records)
            with pytest.raises(CorruptBatchError):
                read_batch(whole.records, at)
            assert read_batch(wire.fetch(TOPIC, 2).records)[0].base_offset == 2
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused", "check.crcs": True,
             "enable.auto.commit": False, "auto.offset.reset": "error"}
        )  # fmt: skip
        try:
            consumer.assign([TopicPartition(TOPIC, 0, 0)])
            messages = consumer.consume(2, 90)
        finally:
            consumer.close()
        assert [message.offset() for message in messages if message.error() is None] == [0]
        assert [m.error().code() for m in messages if m.error()] == [KafkaError._BAD_MSG]
    count_faults({"rounds rot": 1, "flipped bit behind the recovery point": 1})
