"""What a broker does with LeaderAndIsr, StopReplica and UpdateMetadata, on a real partition table."""

import errno
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import odradek._ext.partition.flushing as flushing
import odradek._ext.partition.roles as roles
import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.partition.slot_life as slot_life
import odradek._ext.partition.slots as slots
import odradek._ext.shm.brokers as brokers
import odradek._ext.shm.views as views
from odradek._ext.shm.slot import Role, SlotState
from odradek._ext.testing import replica_probe
from odradek.metadata.store import StoreUnavailable
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import leader_and_isr, stop_replica, update_metadata
from odradek.replication.control_requests import EPOCH_DURING_DELETE, LEADER_DURING_DELETE, NO_EPOCH
from odradek.replication.replica_control import ReplicaControl
from odradek.shm import truncation
from odradek.shm.checkpoints import write_checkpoints
from odradek.shm.partition_table import PartitionTable
from odradek.storage.file_names import partition_directory_name
from tests.shm.one_broker import BROKER_ID, SETTINGS, OneBroker, batch

OTHER = 2
CONTROLLER = 3
OWN_EPOCH = 50
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 7, 4, 8
TOPIC_ID = uuid.uuid4().bytes


class OneDirectory:
    """The logs of a broker with one log directory; see `replica_control.Logs`. ``offline``: the directory cannot be used."""

    def __init__(self, broker: OneBroker) -> None:
        self._broker = broker
        self.offline = False
        self.forgotten: dict[str, Sequence[int]] = {}

    def slot_settings(self, topic: str, settings: Mapping[str, str]) -> dict[str, int]:
        return SETTINGS | {name: int(value) for name, value in settings.items()}

    def directory_of(self, topic: str, partition: int) -> int | None:
        found = (self._broker.path / partition_directory_name(topic, partition)).is_dir()
        return 0 if found and not self.offline else None

    def emptiest(self) -> int | None:
        return None if self.offline else 0

    def all_online(self) -> bool:
        return not self.offline

    def open(self, slot: int) -> None:
        self._broker.table.open(slot)

    def opened(self) -> None:
        pass

    def settle(self, slot: int) -> None:
        truncation.settle(self._broker.shm, [self._broker.path], slot)

    def delete(self, slot: int) -> None:
        self._broker.table.retire(slot)

    def set_aside(self, slot: int) -> Path | None:
        return self._broker.table.set_aside(slot)

    def delete_directory(self, topic: str, partition: int, log_dir: int) -> None:
        (self._broker.path / partition_directory_name(topic, partition)).rmdir()

    def forget(self, deleted: Mapping[str, Sequence[int]]) -> None:
        self.forgotten |= deleted


class Receiver:
    """A broker of a cluster that executes requests.

    ``stored``: settings of topics in the metadata store; ``partitions``: whether the cluster has partitions, or an error.
    """

    def __init__(self, path: Path) -> None:
        self.broker = OneBroker(path)
        brokers.begin_cluster(30_000)
        brokers.set_broker_epoch(OWN_EPOCH)
        self.logs = OneDirectory(self.broker)
        self.stored: dict[str, dict[str, str]] = {}
        self.settings_read: list[str] = []
        self.partitions: bool | StoreUnavailable = False
        self.topic_ids: dict[str, bytes] | StoreUnavailable = {}
        self.control = ReplicaControl(
            self.broker.table,
            self.logs,
            BROKER_ID,
            ("__consumer_offsets",),
            self._read_settings,
            self._has_partitions,
            self._read_topic_ids,
        )

    def _read_settings(self, topics: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        self.settings_read += topics
        return self.stored

    def _has_partitions(self) -> bool:
        if isinstance(self.partitions, StoreUnavailable):
            raise self.partitions
        return self.partitions

    def _read_topic_ids(self, topics: Collection[str]) -> Mapping[str, bytes]:
        if isinstance(self.topic_ids, StoreUnavailable):
            raise self.topic_ids
        return {name: topic_id for name, topic_id in self.topic_ids.items() if name in topics}

    def assign(self, *, controller_epoch: int = 1, broker_epoch: int = OWN_EPOCH, **state: Any) -> tuple[int, int]:
        """Send LeaderAndIsr for one partition; (error code of the request, error code of the partition)."""
        request = leader_and_isr.Request(
            controller_id=CONTROLLER,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=[
                leader_and_isr.Request.LeaderAndIsrTopicState(
                    topic_name="t", topic_id=state.pop("topic_id", TOPIC_ID), partition_states=[assignment(**state)]
                )
            ],
        )
        response = self.control.leader_and_isr(request, LEADER_AND_ISR)
        return response.error_code, response.topics[0].partition_errors[0].error_code

    def stop(
        self, leader_epoch: int, *, delete: bool, controller_epoch: int = 1, broker_epoch: int = OWN_EPOCH
    ) -> tuple[int, int]:
        """Send StopReplica for one partition; the error codes as of `assign`."""
        partition = stop_replica.Request.StopReplicaPartitionState(
            partition_index=0, leader_epoch=leader_epoch, delete_partition=delete
        )
        request = stop_replica.Request(
            controller_id=CONTROLLER,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=[stop_replica.Request.StopReplicaTopicState(topic_name="t", partition_states=[partition])],
        )
        response = self.control.stop_replica(request, STOP_REPLICA)
        return response.error_code, response.partition_errors[0].error_code

    def publish(
        self,
        *topics: str,
        controller_epoch: int = 1,
        broker_epoch: int = OWN_EPOCH,
        leader: int = OTHER,
        topic_id: bytes = TOPIC_ID,
    ) -> int:
        """Send UpdateMetadata with two live brokers and one partition of each topic; the error code."""
        request = update_metadata.Request(
            controller_id=CONTROLLER,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=[
                update_metadata.Request.UpdateMetadataTopicState(
                    topic_name=topic, topic_id=topic_id, partition_states=[published(leader)]
                )
                for topic in topics
            ],
            live_brokers=[live(broker_id) for broker_id in (BROKER_ID, OTHER)],
        )
        return int(self.control.update_metadata(request, UPDATE_METADATA).error_code)

    def succeed(self) -> None:
        """A new coordinator takes over from one that died."""
        self.broker.table = PartitionTable(self.broker.shm, [self.broker.path])
        self.control = ReplicaControl(
            self.broker.table,
            self.logs,
            BROKER_ID,
            ("__consumer_offsets",),
            self._read_settings,
            self._has_partitions,
            self._read_topic_ids,
        )
        self.control.start()

    def slot(self, topic: str = "t") -> int:
        """The slot of the topic's partition; -1 if it has none."""
        return self.broker.table.find(topic, 0)

    def role(self) -> tuple[int, int, int]:
        """(role, leader id, leader epoch) of the partition."""
        facts = slot_facts.describe(self.slot())
        return facts.role, facts.leader_id, facts.leader_epoch


def assignment(leader: int = BROKER_ID, leader_epoch: int = 5, **fields: Any) -> Any:
    values = {
        "partition_index": 0,
        "controller_epoch": 1,
        "leader": leader,
        "leader_epoch": leader_epoch,
        "isr": [BROKER_ID, OTHER],
        "partition_epoch": 1,
        "replicas": [BROKER_ID, OTHER],
        "adding_replicas": [],
        "removing_replicas": [],
        "is_new": True,
        "leader_recovery_state": 0,
    }
    return leader_and_isr.Request.LeaderAndIsrPartitionState(**(values | fields))


def published(leader: int) -> Any:
    return update_metadata.Request.UpdateMetadataPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=5,
        isr=[OTHER],
        zk_version=1,
        replicas=[OTHER],
        offline_replicas=[],
    )


def live(broker_id: int) -> Any:
    endpoint = update_metadata.Request.UpdateMetadataEndpoint(
        port=9092, host=f"host-{broker_id}", listener="PLAINTEXT", security_protocol=0
    )
    return update_metadata.Request.UpdateMetadataBroker(id=broker_id, rack=None, endpoints=[endpoint])


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    made = Receiver(tmp_path)
    yield made
    made.broker.close()


DONE = (ErrorCode.NONE, ErrorCode.NONE)


# -- the whole request -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("send", [Receiver.assign, lambda to, **epochs: to.stop(NO_EPOCH, delete=True, **epochs)])
def test_a_request_for_a_former_registration_changes_nothing(receiver: Receiver, send: Callable[..., Any]) -> None:
    assert send(receiver, broker_epoch=OWN_EPOCH - 1)[0] == ErrorCode.STALE_BROKER_EPOCH
    assert receiver.slot() == -1
    assert brokers.controller() == (-1, 0)


def test_a_request_for_a_later_or_unknown_registration_is_executed(receiver: Receiver) -> None:
    assert receiver.assign(broker_epoch=OWN_EPOCH + 1) == DONE
    assert receiver.assign(broker_epoch=-1, leader_epoch=6) == DONE


def test_a_request_of_a_former_controller_is_refused(receiver: Receiver) -> None:
    assert receiver.publish(controller_epoch=9) == ErrorCode.NONE
    assert brokers.controller() == (CONTROLLER, 9)
    assert receiver.publish("t", controller_epoch=8) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert receiver.assign(controller_epoch=8)[0] == ErrorCode.STALE_CONTROLLER_EPOCH
    assert receiver.stop(NO_EPOCH, delete=True, controller_epoch=8)[0] == ErrorCode.STALE_CONTROLLER_EPOCH
    assert receiver.slot() == -1


# -- LeaderAndIsr ------------------------------------------------------------------------------------------------------


def test_leader_then_follower_then_leader(receiver: Receiver) -> None:
    receiver.stored = {"t": {"min_in_sync_replicas": "2"}}
    assert receiver.assign(leader_epoch=5) == DONE
    assert receiver.role() == (Role.ROLE_LEADER, BROKER_ID, 5)
    assert slot_facts.describe(receiver.slot()).state == SlotState.SLOT_ONLINE
    assert receiver.assign(leader=OTHER, leader_epoch=6) == DONE
    assert receiver.role() == (Role.ROLE_FOLLOWER, OTHER, 6)
    assert receiver.assign(leader_epoch=8) == DONE
    assert receiver.role() == (Role.ROLE_LEADER, BROKER_ID, 8)
    assert receiver.settings_read == ["t"], "the settings are read when the log is created"


def test_a_follower_that_was_just_truncated_leads(receiver: Receiver) -> None:
    """Its recovery point is still beyond its log end: a start would take what it appends now for durable."""
    assert receiver.assign(leader=OTHER, leader_epoch=5) == DONE
    slot = receiver.slot()
    slots.follow(slot, batch(10, partition_leader_epoch=5), 0)
    flushing.flush(slot, whole=True)
    write_checkpoints(receiver.broker.shm, [receiver.broker.path])
    slots.truncate(slot, 0)
    assert slot_facts.describe(slot).recovery_point == 10
    assert receiver.assign(leader_epoch=6) == DONE
    assert receiver.role() == (Role.ROLE_LEADER, BROKER_ID, 6)
    facts = slot_facts.describe(slot)
    assert (facts.log_end_offset, facts.recovery_point) == (0, 0)


def test_a_truncated_log_whose_checkpoints_cannot_be_written_does_not_lead(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert receiver.assign(leader=OTHER, leader_epoch=5) == DONE
    slot = receiver.slot()
    slots.follow(slot, batch(10, partition_leader_epoch=5), 0)
    flushing.flush(slot, whole=True)
    write_checkpoints(receiver.broker.shm, [receiver.broker.path])
    slots.truncate(slot, 0)

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(receiver.logs, "settle", fail)
        assert receiver.assign(leader_epoch=6) == (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
    assert receiver.role()[0] == Role.ROLE_NONE
    assert receiver.assign(leader_epoch=6) == DONE


@pytest.mark.parametrize("epoch", [4, 5])
def test_an_epoch_that_is_not_newer_is_ignored(receiver: Receiver, epoch: int) -> None:
    assert receiver.assign(leader_epoch=5) == DONE
    assert receiver.assign(leader=OTHER, leader_epoch=epoch) == (ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH)
    assert receiver.role() == (Role.ROLE_LEADER, BROKER_ID, 5)


def test_a_repeated_role_is_no_older_one(receiver: Receiver) -> None:
    assert receiver.assign(leader_epoch=5) == DONE
    assert receiver.assign(leader_epoch=5) == DONE
    assert receiver.role() == (Role.ROLE_LEADER, BROKER_ID, 5)


@pytest.mark.parametrize("leader", [BROKER_ID, OTHER])
def test_a_log_never_gets_an_older_leader_epoch_than_its_own(
    receiver: Receiver, leader: int, caplog: pytest.LogCaptureFixture
) -> None:
    """After a restore of an older ZooKeeper, whose controller begins with older epochs."""
    assert receiver.assign(leader_epoch=5) == DONE
    roles.give_up_leadership(receiver.slot())  # the broker registers again, so no epoch is old
    refused = (ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH)
    assert receiver.assign(leader=leader, leader_epoch=4) == refused
    assert receiver.role()[0] == Role.ROLE_NONE
    assert "refused LeaderAndIsr for 1 of 1 partitions, such as t-0 in leader epoch 4" in caplog.text
    assert receiver.assign(leader=leader, leader_epoch=5) == DONE


def test_the_topic_id_is_judged_before_the_epoch(receiver: Receiver) -> None:
    assert receiver.assign(leader_epoch=5) == DONE
    other_id = uuid.uuid4().bytes
    assert receiver.assign(leader_epoch=4, topic_id=other_id) == (ErrorCode.NONE, ErrorCode.INCONSISTENT_TOPIC_ID)


def test_the_epoch_is_judged_before_the_replicas(receiver: Receiver) -> None:
    assert receiver.assign(leader_epoch=5) == DONE
    assert receiver.assign(leader_epoch=5, replicas=[OTHER])[1] == ErrorCode.FENCED_LEADER_EPOCH
    assert receiver.assign(leader_epoch=6, replicas=[OTHER])[1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_of_other_brokers_is_refused_and_gets_no_log(receiver: Receiver) -> None:
    assert receiver.assign(leader=OTHER, replicas=[OTHER], isr=[OTHER])[1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert receiver.slot() == -1
    assert receiver.settings_read == []


def test_an_old_partition_is_not_created_while_its_log_may_be_in_a_failed_directory(receiver: Receiver) -> None:
    receiver.logs.offline = True
    assert receiver.assign(is_new=False)[1] == ErrorCode.KAFKA_STORAGE_ERROR
    receiver.logs.offline = False
    assert receiver.assign(is_new=False) == DONE


def test_settings_that_cannot_be_read_change_nothing(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: object) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(receiver.control, "_read_settings", away)
    with pytest.raises(StoreUnavailable):
        receiver.assign()
    assert receiver.slot() == -1


def test_a_slot_that_was_only_published_gets_its_log(receiver: Receiver) -> None:
    assert receiver.publish("t") == ErrorCode.NONE
    slot = receiver.slot()
    assert slots.state_of(slot) == SlotState.SLOT_REMOTE
    assert receiver.assign() == DONE
    assert receiver.slot() == slot
    assert slots.state_of(slot) == SlotState.SLOT_ONLINE


def test_a_new_topic_of_the_same_name_does_not_take_the_view_of_the_former(receiver: Receiver) -> None:
    assert receiver.publish("t") == ErrorCode.NONE
    new_id = uuid.uuid4().bytes
    assert receiver.assign(topic_id=new_id) == DONE
    assert slots.log_of(receiver.slot())[2] == new_id


# -- StopReplica -------------------------------------------------------------------------------------------------------


def test_a_replica_that_is_stopped_keeps_its_log(receiver: Receiver) -> None:
    assert receiver.assign(leader_epoch=5) == DONE
    assert receiver.stop(5, delete=False) == DONE
    assert receiver.role()[0] == Role.ROLE_NONE
    assert slots.state_of(receiver.slot()) == SlotState.SLOT_ONLINE
    assert receiver.assign(leader=OTHER, leader_epoch=6) == DONE


def test_a_new_controller_that_repeats_the_role_of_a_stopped_follower_begins_no_epoch(receiver: Receiver) -> None:
    assert receiver.assign(leader=OTHER, leader_epoch=5) == DONE
    assert receiver.stop(5, delete=False) == DONE
    assert receiver.assign(leader=OTHER, leader_epoch=5) == DONE
    assert receiver.role()[0] == Role.ROLE_NONE


def test_an_older_epoch_does_not_stop_a_replica(receiver: Receiver) -> None:
    assert receiver.assign(leader_epoch=5) == DONE
    for delete in (False, True):
        assert receiver.stop(4, delete=delete) == (ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH)
    assert receiver.role() == (Role.ROLE_LEADER, BROKER_ID, 5)


@pytest.mark.parametrize("epoch", [NO_EPOCH, EPOCH_DURING_DELETE, 5])
def test_a_deleted_replica_is_forgotten_in_the_checkpoints(receiver: Receiver, epoch: int) -> None:
    assert receiver.publish("t") == ErrorCode.NONE
    assert receiver.assign(leader_epoch=5) == DONE
    assert receiver.stop(epoch, delete=True) == DONE
    assert receiver.logs.forgotten == {"t": [0]}
    if epoch == EPOCH_DURING_DELETE:
        assert receiver.slot() == -1, "the topic is deleted"
    else:
        assert slots.state_of(receiver.slot()) == SlotState.SLOT_REMOTE, "only the replica here is deleted"


def test_a_deletion_whose_checkpoints_cannot_be_written_has_failed(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise OSError(28, "no space left")

    assert receiver.assign() == DONE
    monkeypatch.setattr(receiver.logs, "forget", full)
    assert receiver.stop(EPOCH_DURING_DELETE, delete=True)[1] == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_directory_without_a_replica_is_deleted(receiver: Receiver) -> None:
    stray = receiver.broker.path / "t-0"
    stray.mkdir()
    assert receiver.stop(NO_EPOCH, delete=False) == DONE
    assert stray.exists()
    assert receiver.stop(NO_EPOCH, delete=True) == DONE
    assert not stray.exists()


# -- logs of former topics ----------------------------------------------------------------------------------------


NEW_ID = uuid.uuid4().bytes


def set_aside(receiver: Receiver, partition: int = 0) -> list[Path]:
    return list(receiver.broker.path.glob(f"t-{partition}.*-stray"))


@pytest.fixture
def left_behind(receiver: Receiver) -> Receiver:
    """A broker with logs of two partitions of a former topic, which it neither leads nor follows; the topic of that name has
    one partition and another id in the metadata store."""
    assert receiver.assign() == DONE
    assert receiver.assign(partition_index=1) == DONE
    for partition in (0, 1):
        slot = receiver.broker.table.find("t", partition)
        roles.leave_role(slot, slot_facts.describe(slot).incarnation, NO_EPOCH)
        (receiver.broker.path / f"t-{partition}" / "precious").write_text("kept")
    receiver.topic_ids = {"t": NEW_ID}
    return receiver


def test_a_log_left_behind_does_not_hide_the_new_topic_and_is_set_aside(
    left_behind: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    assert left_behind.publish("t", topic_id=NEW_ID) == ErrorCode.NONE
    slot = left_behind.slot()
    assert slots.state_of(slot) == SlotState.SLOT_REMOTE
    assert slots.log_of(slot)[2] == NEW_ID
    assert views.view_of(slot).leader_id == OTHER
    for partition in (0, 1):  # the new topic has fewer partitions than the former one
        (aside,) = set_aside(left_behind, partition)
        assert (aside / "precious").read_text() == "kept"
        assert not (left_behind.broker.path / f"t-{partition}").exists()
        assert str(aside) in caplog.text
    assert left_behind.broker.table.find("t", 1) == -1
    assert left_behind.logs.forgotten == {"t": [0, 1]}
    topic = left_behind.broker.table.topics()[b"t"]
    assert (topic.topic_id, topic.count) == (NEW_ID, 1)


def test_a_partition_is_led_where_a_log_of_a_former_topic_was(left_behind: Receiver) -> None:
    assert left_behind.assign(topic_id=NEW_ID, leader_epoch=0) == DONE
    assert left_behind.role() == (Role.ROLE_LEADER, BROKER_ID, 0)
    assert slot_facts.describe(left_behind.slot()).log_end_offset == 0
    assert len(set_aside(left_behind)) == 1
    assert not (left_behind.broker.path / "t-0" / "precious").exists()


def test_a_stale_follower_of_a_former_topic_is_set_aside(left_behind: Receiver) -> None:
    assert left_behind.assign(leader=OTHER, leader_epoch=6) == DONE
    assert left_behind.role() == (Role.ROLE_FOLLOWER, OTHER, 6)
    assert left_behind.publish("t", topic_id=NEW_ID) == ErrorCode.NONE
    assert len(set_aside(left_behind)) == 1
    assert views.view_of(left_behind.slot()).leader_id == OTHER


@pytest.mark.parametrize("stored", [{}, {"t": TOPIC_ID}])
def test_a_late_request_sets_no_log_aside(left_behind: Receiver, stored: dict[str, bytes]) -> None:
    left_behind.topic_ids = stored
    slot = left_behind.slot()
    assert left_behind.publish("t", topic_id=NEW_ID) == ErrorCode.NONE
    assert left_behind.assign(topic_id=NEW_ID)[1] == ErrorCode.INCONSISTENT_TOPIC_ID
    assert left_behind.slot() == slot
    assert slots.state_of(slot) == SlotState.SLOT_ONLINE
    assert not set_aside(left_behind)


def test_ids_that_cannot_be_read_change_nothing(left_behind: Receiver) -> None:
    left_behind.topic_ids = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        left_behind.publish("t", topic_id=NEW_ID)
    with pytest.raises(StoreUnavailable):
        left_behind.assign(topic_id=NEW_ID)
    assert slots.state_of(left_behind.slot()) == SlotState.SLOT_ONLINE


@pytest.mark.parametrize("step", ["set_aside", "forget", "drop_remote"])
def test_a_successor_completes_what_a_dead_coordinator_left(
    left_behind: Receiver, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner: Any = left_behind.broker.table if step == "drop_remote" else left_behind.logs
    complete = getattr(owner, step)

    class Killed(BaseException):
        pass

    def dies_after(*arguments: Any) -> None:
        complete(*arguments)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(owner, step, dies_after)
        with pytest.raises(Killed):
            left_behind.publish("t", topic_id=NEW_ID)
    left_behind.succeed()
    assert left_behind.publish("t", topic_id=NEW_ID) == ErrorCode.NONE
    assert views.view_of(left_behind.slot()).leader_id == OTHER
    assert [len(set_aside(left_behind, partition)) for partition in (0, 1)] == [1, 1]
    assert left_behind.logs.forgotten["t"] in ([0, 1], [1])
    assert left_behind.broker.table.find("t", 1) == -1


def test_a_log_in_a_failed_directory_does_not_hide_the_new_topic(left_behind: Receiver) -> None:
    slot_life.set_offline(left_behind.slot())
    left_behind.broker.shm.set_log_dir_offline(0)
    assert left_behind.publish("t", topic_id=NEW_ID) == ErrorCode.NONE
    assert views.view_of(left_behind.slot()).leader_id == OTHER
    assert (left_behind.broker.path / "t-0" / "precious").read_text() == "kept"


def test_a_log_without_a_published_state_is_no_partition(left_behind: Receiver) -> None:
    directory = left_behind.broker.table
    assert not directory.topics()[b"t"].exists(0)
    assert directory.topics()[b"t"].existing_count() == 0
    assert left_behind.assign(leader_epoch=9) == DONE  # this broker leads it, which UpdateMetadata publishes later
    topic = directory.topics()[b"t"]
    assert [topic.exists(number) for number in (-1, 0, 1, 2)] == [False, True, False, False]
    assert topic.existing_count() == 1
    assert not topic.is_published()


# -- UpdateMetadata ----------------------------------------------------------------------------------------------------


def test_partitions_are_merged_and_deleted_ones_removed(receiver: Receiver) -> None:
    assert receiver.publish("t", "u") == ErrorCode.NONE
    assert receiver.publish("t", leader=LEADER_DURING_DELETE) == ErrorCode.NONE
    assert receiver.slot("t") == -1
    assert views.view_of(receiver.slot("u")).leader_id == OTHER


def test_a_deleted_partition_with_a_log_here_stays_until_it_is_stopped(receiver: Receiver) -> None:
    assert receiver.assign() == DONE
    assert receiver.publish("t", leader=LEADER_DURING_DELETE) == ErrorCode.NONE
    assert slots.state_of(receiver.slot()) == SlotState.SLOT_ONLINE
    assert receiver.stop(5, delete=True) == DONE
    assert receiver.slot() == -1


def test_brokers_without_partitions_are_not_all_while_the_cluster_has_partitions(receiver: Receiver) -> None:
    receiver.partitions = True
    assert receiver.publish() == ErrorCode.NONE
    assert [broker.id for broker in brokers.brokers()] == [BROKER_ID, OTHER]
    assert not brokers.published()
    assert receiver.publish("t") == ErrorCode.NONE
    assert brokers.published()


def test_an_empty_cluster_is_published_by_its_brokers(receiver: Receiver) -> None:
    assert not brokers.published()
    assert receiver.publish() == ErrorCode.NONE
    assert brokers.published()


def test_later_requests_do_not_ask_whether_the_cluster_has_partitions(receiver: Receiver) -> None:
    assert receiver.publish("t") == ErrorCode.NONE
    receiver.partitions = StoreUnavailable("away")
    assert receiver.publish() == ErrorCode.NONE
    assert brokers.published()


def test_a_request_fails_if_it_cannot_be_found_out_whether_there_are_partitions(receiver: Receiver) -> None:
    receiver.partitions = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        receiver.publish()
    assert not brokers.published()
    receiver.partitions = False
    assert receiver.publish() == ErrorCode.NONE
    assert brokers.published()


def test_more_brokers_than_there_is_room_for(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    def publish(ids: Sequence[int], host: str = "host") -> int:
        request = update_metadata.Request(
            controller_id=200, controller_epoch=1, broker_epoch=OWN_EPOCH, live_brokers=[live(number) for number in ids]
        )
        request.live_brokers[0].endpoints[0].host = host
        return int(receiver.control.update_metadata(request, UPDATE_METADATA).error_code)

    ids = [BROKER_ID, *range(100, 201)]
    for _ in range(2):
        assert publish(ids[::-1]) == ErrorCode.NONE
    assert [broker.id for broker in brokers.brokers()] == [BROKER_ID, *range(100, 162), 200]
    assert caplog.text.count("no room for the brokers 162, 163,") == 1
    assert publish([100, BROKER_ID, 200], "h" * 2000) == ErrorCode.NONE
    assert [broker.id for broker in brokers.brokers()] == [BROKER_ID, 200]
    assert "no room for the brokers 100:" in caplog.text


def test_roles_do_not_change_by_what_is_published(receiver: Receiver) -> None:
    assert receiver.assign(leader_epoch=5) == DONE
    assert receiver.publish("t", leader=OTHER) == ErrorCode.NONE
    assert roles.role_epoch(receiver.slot()) == 5
    assert receiver.role() == (Role.ROLE_LEADER, BROKER_ID, 5)
    assert views.view_of(receiver.slot()).leader_id == OTHER


# -- a registration that has ended ---------------------------------------------------------------------------------------


def test_a_leadership_is_given_up_until_the_next_registration(receiver: Receiver) -> None:
    assert receiver.assign(leader_epoch=5) == DONE
    receiver.control.give_up_leaderships()
    assert receiver.role() == (Role.ROLE_NONE, -1, 5) and roles.role_epoch(receiver.slot()) == -1
    stale = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.STALE_BROKER_EPOCH)
    assert receiver.assign(leader_epoch=6) == stale, "it was sent to the former registration"
    receiver.control.give_up_leaderships()  # as after a failure
    assert not brokers.broker_epoch() >= 0 and brokers.was_registered()
    brokers.set_broker_epoch(OWN_EPOCH + 1)
    assert receiver.assign(leader_epoch=6) == stale
    assert receiver.assign(leader_epoch=5, broker_epoch=OWN_EPOCH + 1) == DONE, "the epoch may be the former one"
    assert receiver.role() == (Role.ROLE_LEADER, BROKER_ID, 5)


def test_the_next_registration_may_have_the_next_epoch(receiver: Receiver) -> None:
    receiver.control.give_up_leaderships()
    assert receiver.assign(broker_epoch=OWN_EPOCH + 1) == DONE, (
        "the controller may be faster than this broker's own note"
    )


def test_a_follower_goes_on_when_the_registration_has_ended(receiver: Receiver) -> None:
    assert receiver.assign(leader=OTHER, leader_epoch=5) == DONE
    receiver.control.give_up_leaderships()
    assert receiver.role() == (Role.ROLE_FOLLOWER, OTHER, 5) and roles.role_epoch(receiver.slot()) == 5


def test_a_broker_that_was_never_registered_has_nothing_to_give_up(receiver: Receiver) -> None:
    brokers.set_broker_epoch(-1)
    receiver.control.give_up_leaderships()
    assert not brokers.was_registered() and brokers.least_epoch() == -1
    assert receiver.assign() == DONE


# -- logs that lost their ends -------------------------------------------------------------------------------------------


def test_a_leader_whose_log_lost_its_end_says_so_once(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    assert receiver.assign(leader=OTHER, leader_epoch=5) == DONE
    replica_probe.lose_tail(receiver.slot(), 90, 0)
    assert receiver.assign(leader_epoch=6) == DONE
    (record,) = [record for record in caplog.records if "lost its end" in record.getMessage()]
    assert record.levelname == "ERROR"
    text = record.getMessage()
    assert text.startswith("leading t-0 from offset 0 on") and "90 bytes were cut off" in text and "explain t-0" in text
    caplog.clear()
    assert receiver.assign(leader_epoch=7, partition_epoch=2) == DONE
    assert "lost its end" not in caplog.text


def test_the_only_replica_that_lost_its_end_says_nothing_more(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    assert receiver.assign(leader=OTHER, leader_epoch=5) == DONE
    replica_probe.lose_tail(receiver.slot(), 90, 0)
    assert receiver.assign(leader_epoch=6, replicas=[BROKER_ID], isr=[BROKER_ID]) == DONE
    assert "lost its end" not in caplog.text
