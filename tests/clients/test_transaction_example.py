"""The example of docs/operate/transactions.md gives each record exactly one result, although some transactions are aborted."""

from collections import Counter
from pathlib import Path

import confluent_kafka
import pytest

from odradek.testing import Broker

DOCUMENT = Path(__file__).parents[2] / "docs" / "operate" / "transactions.md"
RECORDS = 300
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("transaction-example")]


class Finished(Exception):
    """The example has written a result of each record."""


class FailingProducer(confluent_kafka.Producer):
    """A producer whose second and fourth transactions must be aborted after their records are written."""

    rounds = aborted = 0

    def send_offsets_to_transaction(self, *arguments):
        type(self).rounds += 1
        if self.rounds in (2, 4):
            assert self.flush(60) == 0
            error = confluent_kafka.KafkaError(confluent_kafka.KafkaError._TRANSPORT, "injected", False, False, True)
            raise confluent_kafka.KafkaException(error)
        super().send_offsets_to_transaction(*arguments)

    def abort_transaction(self, *arguments):
        type(self).aborted += 1
        super().abort_transaction(*arguments)


class SmallConsumer(confluent_kafka.Consumer):
    """A consumer that returns few records at a time, and ends the example when the group has read everything."""

    def consume(self, _, timeout):
        places = [confluent_kafka.TopicPartition("orders", number) for number in range(3)]
        if sum(max(0, place.offset) for place in self.committed(places, 60)) == RECORDS:
            raise Finished
        return super().consume(40, timeout)


def test_each_record_has_one_result():
    text = DOCUMENT.read_text().split("```python\n")[1].split("```")[0]
    head = "from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer\n"
    assert text.startswith(head)
    names = {"Consumer": SmallConsumer, "Producer": FailingProducer}
    names |= {name: getattr(confluent_kafka, name) for name in ("OFFSET_BEGINNING", "KafkaException")}
    topics = {"orders": 3, "totals": 3}
    with Broker({"group.initial.rebalance.delay.ms": 0}, topics=topics) as broker:
        servers = broker.bootstrap_servers
        producer = confluent_kafka.Producer({"bootstrap.servers": servers})
        for number in range(RECORDS):
            producer.produce("orders", f"v{number}", f"k{number}")
        assert producer.flush(60) == 0
        with pytest.raises(Finished):
            exec(text.removeprefix(head).replace('"localhost:9092"', repr(servers)), names)
        names["consumer"].close()
        reader = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "reader",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
            }
        )
        reader.assign([confluent_kafka.TopicPartition("totals", number, 0) for number in range(3)])
        found, ends = Counter(), 0
        while ends < 3:
            message = reader.poll(60)
            assert message is not None
            if message.error() is None:
                found[message.value()] += 1
            else:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                ends += 1
        reader.close()
    assert found == Counter(f"V{number}".encode() for number in range(RECORDS))
    assert FailingProducer.aborted == 2
