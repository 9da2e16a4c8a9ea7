"""Repeated power cuts under load: all records that the stated durability covers survive, the rest has no holes.

A topic with `flush.messages=1` keeps every record that was acknowledged or read; one with the defaults keeps a beginning
of each log, whole batches in order; topics whose creation or deletion was acknowledged are there or gone. The metadata too.
"""

import os
import random
import threading
import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.protocol.errors import ErrorCode
from odradek.testing import Broker
from tests.api.group_talk import GroupTalk
from tests.faults.checker import decode_id, faults, read_partitions
from tests.faults.load import Load
from tests.faults.lossy_disk import LossyDisk, missing
from tests.waiting import until

ROUNDS = max(4, int(os.environ.get("ODRADEK_FAULT_ROUNDS", "0")) // 50)
SEED = int(os.environ.get("ODRADEK_FAULT_SEED") or random.SystemRandom().randrange(1 << 32))
PARTITIONS = 2
TOPICS = {
    "synced": {"partitions": PARTITIONS, "flush.messages": "1", "segment.bytes": str(1 << 18)},
    "default": {"partitions": PARTITIONS, "segment.bytes": str(1 << 18)},
    "often": {"partitions": PARTITIONS, "flush.ms": "50", "segment.bytes": str(1 << 17)},
}
CONFIG = {
    "num.network.threads": 2,
    "auto.create.topics.enable": "false",
    "log.flush.scheduler.interval.ms": 50,
    "log.flush.offset.checkpoint.interval.ms": 500,
}

pytestmark = [
    pytest.mark.timeout(600 + 40 * ROUNDS),
    pytest.mark.skipif(bool(missing()), reason=f"NO LOSS OF POWER IS TESTED: {missing()}"),
]


class Known:
    """The responses of the clients so far."""

    def __init__(self):
        self.acknowledged = {topic: {} for topic in TOPICS}
        self.idempotent = set()
        self.topics = set(TOPICS)
        self.ends = {topic: dict.fromkeys(range(PARTITIONS), 0) for topic in TOPICS}
        self.late = {topic: set() for topic in TOPICS}  # records that were acknowledged during the last cut
        self.read = {}  # of "synced": (partition, offset) to record


def change_topics(broker, rng, known, number):
    """Create some topics, perhaps delete one: acknowledged changes must survive."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    names = [f"round-{number}-{i}" for i in range(rng.randrange(1, 4))]
    for future in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        future.result(90)
    known.topics |= set(names)
    if rng.random() < 0.5:
        victim = rng.choice(sorted(known.topics - set(TOPICS)))
        for future in admin.delete_topics([victim]).values():
            future.result(90)
        known.topics.discard(victim)
    return len(names)


class Reader:
    """Reads "synced" from its ends on, as quickly as it can, until `stop`; what it read it puts into `known.read`."""

    def __init__(self, broker, known):
        self._known = known
        self._ended = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "unused",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
                "log_level": 0,
                "error_cb": lambda error: None,
            }
        )
        self._consumer.assign([TopicPartition("synced", *place) for place in known.ends["synced"].items()])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._ended.is_set():
            for message in self._consumer.consume(1000, 0.02):
                if message.error() is None:
                    self._known.read[message.partition(), message.offset()] = decode_id(message.key())

    def stop(self):
        self._ended.set()
        self._thread.join()
        self._consumer.close()


def run_until_the_cut(broker, disk, rng, known, number):
    """Load all topics, then cut the power; return whether the broker had stopped before.

    What clients learn during the cut or after it does not count: ext4's shutdown aborts its journal while syncs are under way,
    and a sync that finds its transaction finished in the aborted journal may still return success. A machine without power
    sends no such response.
    """
    reader = Reader(broker, known)
    loads = {
        topic: Load(broker.bootstrap_servers, topic, PARTITIONS, idempotent=1, plain=1, prefix=f"{number}-{topic}-")
        for topic in TOPICS
    }
    try:
        for load in loads.values():
            load.progress(rng.randrange(20, 400))
        if rng.random() < 0.7:
            change_topics(broker, rng, known, number)
        in_order = rng.random() < 0.25
        if in_order:  # then nothing at all may be lost
            for load in loads.values():
                load.finish()
            broker.stop()
    finally:
        acknowledged = {
            topic: {
                record: place for producer in load.producers for record, place in dict(producer.acknowledged).items()
            }
            for topic, load in loads.items()
        }
        read = dict(known.read)
        disk.cut_power()
        if broker.running:
            broker.kill_group()
        for load in loads.values():
            load.abandon()
        reader.stop()
    known.read = read
    for topic, load in loads.items():
        known.acknowledged[topic] |= acknowledged[topic]
        known.idempotent |= {producer.name for producer in load.producers if producer.idempotent}
        known.late[topic] = {record for producer in load.producers for record in producer.acknowledged} - set(
            acknowledged[topic]
        )
    return in_order


def check(broker, known, in_order):
    """Check that all required records survive, and no others; return the number of unsynced records."""
    wrong, lost = [], 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    found_topics = {name for name in admin.list_topics(timeout=90).topics if not name.startswith("__")}
    if not known.topics <= found_topics:
        wrong.append(f"topics created and gone: {known.topics - found_topics}")
    undead = {name for name in found_topics - known.topics if name.startswith("round-")}
    wrong += [f"topic deleted and there: {name}" for name in sorted(undead)]
    for topic in TOPICS:
        acknowledged = known.acknowledged[topic]
        found = read_partitions(broker.bootstrap_servers, topic, PARTITIONS)
        if topic != "synced" and not in_order:  # a beginning of each log is left, as it was written
            kept = {record: place for record, place in acknowledged.items() if 0 <= place[1] < found[place[0]][0]}
            lost += len(acknowledged) - len(kept)
            for partition, (end, _) in found.items():
                if end < known.ends[topic][partition]:
                    wrong.append(f"{topic}-{partition} ends at {end}: {known.ends[topic][partition]} were there before")
            acknowledged = known.acknowledged[topic] = kept
        wrong += [f"{topic}: {fault}" for fault in faults(found, acknowledged, known.idempotent)]
        if topic == "synced":
            there = {(p, offset): record for p, (_, records) in found.items() for offset, record in records}
            lost_late = known.late[topic] - set(there.values())
            print(f"acknowledged during the cut: {len(known.late[topic])} records, {len(lost_late)} of them lost")
            taken_back = [place for place, record in known.read.items() if there.get(place) != record]
            if taken_back:
                wrong.append(f"{len(taken_back)} records were read and are not there, first {min(taken_back)}")
        for partition, (end, _) in found.items():
            known.ends[topic][partition] = end  # read back from the device: it stays there
    assert not wrong, wrong
    return lost


def test_what_the_durability_covers_survives_losses_of_power(tmp_path, count_faults):
    print(f"\nODRADEK_FAULT_SEED={SEED}")
    rng = random.Random(SEED)
    known = Known()
    began = time.monotonic()
    done = Counter()
    with (
        LossyDisk(tmp_path, 508) as disk,  # with room for what the others write while a slow device syncs
        Broker(CONFIG | {"log.dirs": disk.path / "data"}, TOPICS, directory=tmp_path / "broker") as broker,
    ):
        for number in range(ROUNDS):
            in_order = run_until_the_cut(broker, disk, rng, known, number)
            disk.restore_power()
            broker.start()
            lost = check(broker, known, in_order)
            done["rounds losses of power of the machine"] += 1
            done["power of the machine cut " + ("after an ordered stop" if in_order else "under load")] += 1
            done["checks acknowledged records read back"] += sum(map(len, known.acknowledged.values()))
            done["checks records that consumers had read"] += len(known.read)
            print(
                f"{number}: {time.monotonic() - began:.1f} s, {len(known.acknowledged['synced'])} records synced and "
                f"there, {lost} of the others lost, started in {broker.start_seconds:.2f} s"
            )
        broker.stop()
        assert "Traceback" not in broker.log_file.read_text()
    count_faults(done)


GROUPS = {
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "num.network.threads": 1,
    "log.flush.scheduler.interval.ms": 3_600_000,
}


def served(wire):
    until(lambda: wire.fetch_offsets("classic", None).error_code == ErrorCode.NONE, "the groups are served")


@pytest.mark.parametrize("synced", [True, False], ids=["synced", "unsynced"])
def test_members_of_groups_come_back_after_a_loss_of_power(tmp_path, synced):
    config = GROUPS | ({"log.flush.interval.messages": 1} if synced else {})
    with (
        LossyDisk(tmp_path, 128) as disk,
        Broker(config | {"log.dirs": disk.path / "data"}, {"topic": 1}, directory=tmp_path / "broker") as broker,
    ):
        with GroupTalk(broker.host, broker.port) as wire:
            wire.until_coordinated("classic")
            member_id, generation = wire.joined("classic", group_instance_id="static")
            epoch = wire.beat("new", "m", 0).member_epoch
            for group, one, number in (("classic", member_id, generation), ("new", "m", epoch)):
                told = wire.commit(
                    group, {("topic", 0): 7}, generation_id_or_member_epoch=number, member_id=one, version=9
                )
                assert told.topics[0].partitions[0].error_code == ErrorCode.NONE
        disk.cut_power()
        broker.kill_group()
        disk.restore_power()
        broker.start()
        with GroupTalk(broker.host, broker.port) as wire:
            wire.until_coordinated("classic")
            served(wire)
            instance = {"group_instance_id": "static"}
            if synced:
                assert wire.committed("classic") == wire.committed("new") == {("topic", 0): 7}
                assert wire.heartbeat("classic", member_id, generation, **instance).error_code == ErrorCode.NONE
                assert wire.beat("new", "m", epoch).error_code == ErrorCode.NONE
            else:  # nothing of it was on the device: they are sent to join again, by no error that ends a client
                lost = wire.heartbeat("classic", member_id, generation, **instance).error_code
                assert lost == wire.beat("new", "m", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
                wire.joined("classic", **instance)
                assert wire.beat("new", "m", 0).error_code == ErrorCode.NONE
