"""Each text that a client sends and the broker keeps has a limit of its length: a table of all texts of all requests.

A new field fails the first test until somebody has decided whether the broker keeps it, and what limits it then.
"""

from collections import Counter

import pytest

from odradek.api.cluster import api_versions as api_versions_handler
from odradek.api.table import APIS
from odradek.config.broker_config import BrokerConfig
from odradek.groups.classic_member import JoinRequest
from odradek.groups.consumer_member import HeartbeatRequest
from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.settings import ConsumerSettings, GroupSettings
from odradek.protocol import registry
from odradek.protocol.errors import ErrorCode
from odradek.quotas.new_names import GROUPS
from tests.groups.by_hand import HandTimers, OffsetsHandLog, Once
from tests.groups.test_consumer_group import FewTopics

ID = "odradek.id.max.length"
METADATA = "offset.metadata.max.bytes, and odradek.group.offset.metadata.max.bytes of a group"
TOKEN = "16 KiB of a token (tests/controller/test_delegation_tokens.py)"
ACL = "64 MiB of all ACLs (tests/controller/test_acls.py)"

KEPT = {
    "JoinGroup.GroupId": ID,
    "JoinGroup.GroupInstanceId": ID,
    "JoinGroup.ProtocolType": ID,
    "JoinGroup.Protocols.Name": "message.max.bytes with the subscriptions of a member",
    "JoinGroup.Reason": "cut in the events of a group (groups/history.py)",
    "LeaveGroup.Members.Reason": "cut in the events of a group (groups/history.py)",
    "OffsetCommit.GroupId": ID,
    "OffsetCommit.Topics.Partitions.CommittedMetadata": METADATA,
    "TxnOffsetCommit.GroupId": ID,
    "TxnOffsetCommit.Topics.Partitions.CommittedMetadata": METADATA,
    "InitProducerId.TransactionalId": ID,
    "ConsumerGroupHeartbeat.GroupId": ID,
    "ConsumerGroupHeartbeat.MemberId": ID,
    "ConsumerGroupHeartbeat.InstanceId": ID,
    "ConsumerGroupHeartbeat.RackId": ID,
    "ConsumerGroupHeartbeat.SubscribedTopicNames": "message.max.bytes of a member",
    "ConsumerGroupHeartbeat.SubscribedTopicRegex": "1,000 characters (groups/patterns.py)",
    "ApiVersions.ClientSoftwareName": "cut at 56 characters",
    "ApiVersions.ClientSoftwareVersion": "cut at 56 characters",
    "Fetch.RackId": "forgotten with the session, whose memory is limited",
    "Fetch.Topics.Topic": "odradek.connections.kept.bytes, and the partitions of all sessions",
    "CreateTopics.Topics.Name": "249 characters (controller/topic_names.py)",
    "CreateDelegationToken.OwnerPrincipalType": TOKEN,
    "CreateDelegationToken.OwnerPrincipalName": TOKEN,
    "CreateDelegationToken.Renewers.PrincipalType": TOKEN,
    "CreateDelegationToken.Renewers.PrincipalName": TOKEN,
    "CreateAcls.Creations.ResourceName": ACL,
    "CreateAcls.Creations.Principal": ACL,
    "CreateAcls.Creations.Host": ACL,
}
"""Texts that the broker keeps after the response, and what limits them."""

OF_ADMINISTRATORS = {
    "CreateTopics.Topics.Configs.Value",
    "AlterConfigs.Resources.Configs.Value",
    "AlterConfigs.Resources.ResourceName",
    "IncrementalAlterConfigs.Resources.Configs.Value",
    "IncrementalAlterConfigs.Resources.ResourceName",
    "AlterClientQuotas.Entries.Entity.EntityName",
    "AlterUserScramCredentials.Upsertions.Name",
}
"""Kept settings, which need a right to alter them. Only the sizes of a request and of Kafka's string, 32,767 bytes, limit
them."""

KNOWN = {
    "AddOffsetsToTxn": 2,
    "AddPartitionsToTxn": 4,
    "AlterPartitionReassignments": 1,
    "AlterReplicaLogDirs": 2,
    "ConsumerGroupDescribe": 1,
    "CreatePartitions": 1,
    "DeleteAcls": 3,
    "DeleteGroups": 1,
    "DeleteRecords": 1,
    "DeleteTopics": 2,
    "DescribeAcls": 3,
    "DescribeClientQuotas": 2,
    "DescribeConfigs": 2,
    "DescribeDelegationToken": 2,
    "DescribeGroups": 1,
    "DescribeLogDirs": 1,
    "DescribeProducers": 1,
    "DescribeTopicPartitions": 2,
    "DescribeTransactions": 1,
    "DescribeUserScramCredentials": 1,
    "ElectLeaders": 1,
    "EndTxn": 1,
    "FindCoordinator": 2,
    "Heartbeat": 3,
    "LeaveGroup": 4,
    "ListGroups": 2,
    "ListOffsets": 1,
    "ListPartitionReassignments": 1,
    "ListTransactions": 2,
    "Metadata": 1,
    "OffsetDelete": 2,
    "OffsetFetch": 5,
    "OffsetForLeaderEpoch": 1,
    "Produce": 2,
    "SaslHandshake": 1,
    "SyncGroup": 6,
    "UpdateFeatures": 1,
    "WriteTxnMarkers": 1,
}
"""APIs whose requests only name what exists, or filter: the number of their texts that are in no other table; the broker keeps
none of them."""

NOT_KEPT = {
    "JoinGroup.MemberId": "one that the broker made, of client id (cut) or instance id; another one is refused",
    "OffsetCommit.MemberId": "compared",
    "OffsetCommit.GroupInstanceId": "compared",
    "OffsetCommit.Topics.Name": "a topic that exists",
    "TxnOffsetCommit.TransactionalId": "compared",
    "TxnOffsetCommit.MemberId": "compared",
    "TxnOffsetCommit.GroupInstanceId": "compared",
    "TxnOffsetCommit.Topics.Name": "a topic that exists",
    "ConsumerGroupHeartbeat.ServerAssignor": "one of a list",
    "Fetch.ClusterId": "not read",
    "Fetch.ForgottenTopicsData.Topic": "removed",
    "CreateTopics.Topics.Configs.Name": "one of a list",
    "AlterConfigs.Resources.Configs.Name": "one of a list",
    "IncrementalAlterConfigs.Resources.Configs.Name": "one of a list",
    "AlterClientQuotas.Entries.Entity.EntityType": "one of a list",
    "AlterClientQuotas.Entries.Ops.Key": "one of a list",
    "AlterUserScramCredentials.Deletions.Name": "removed",
}


def texts(structure, path):
    for field in structure.fields:
        name = f"{path}.{field.name}"
        if field.structure is not None:
            yield from texts(field.structure, name)
        elif field.type.endswith("string"):
            yield name


def of_clients():
    """All texts of all requests of clients."""
    for row in APIS:
        if not row.of_brokers:
            schema = registry.by_key(row.key)
            yield from texts(schema.request._structure, schema.name)


def test_each_text_of_each_request_is_in_a_table():
    found = set(of_clients())
    tables = [set(KEPT), OF_ADMINISTRATORS, set(NOT_KEPT)]
    assert not set().union(*tables) - found, "fields that do not exist"
    assert sum(map(len, tables)) == len(set().union(*tables)), "a field is in two tables"
    others = Counter(name.partition(".")[0] for name in found - set().union(*tables))
    assert others == KNOWN, "does the broker keep a new field? Then give it a limit, and a row in KEPT"


LONGEST = GROUPS.length


class Groups:
    def __init__(self):
        self.coordinator = GroupCoordinator(
            HandTimers(), GroupSettings(), 1, FewTopics(), ConsumerSettings(), lambda _: None
        )
        self.coordinator.shards.begin(0, OffsetsHandLog())
        self.coordinator.loaded(0)

    def join(self, **names):
        once = Once()
        given = {"member_id": "", "protocol_type": "consumer", "id_required": False} | names
        request = JoinRequest(
            session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocols=[("range", b"")], **given
        )
        self.coordinator.members.join("g", request, once)
        return once

    def beat(self, **names):
        once = Once()
        given = {"member_id": "m"} | names
        request = HeartbeatRequest(
            member_epoch=0, rebalance_timeout_ms=1000, topics=("orders",), owned=frozenset(), **given
        )
        self.coordinator.members.beat("g", request, once)
        return once.answer

    @property
    def members(self):
        group = self.coordinator.shards.find("g")[1]
        return {} if group is None else group.protocol.members


@pytest.mark.parametrize("name", ["instance_id", "protocol_type"])
def test_a_member_with_a_long_name_does_not_join(name):
    groups = Groups()
    assert groups.join(**{name: "n" * (LONGEST + 1)}).answer.error is ErrorCode.INVALID_REQUEST
    assert not groups.members
    groups.join(**{name: "n" * LONGEST})
    assert len(groups.members) == 1


@pytest.mark.parametrize("name", ["member_id", "instance_id", "rack_id"])
def test_a_member_of_a_consumer_group_with_a_long_name_does_not_join(name):
    groups = Groups()
    refused = groups.beat(**{name: "n" * (LONGEST + 1)})
    assert refused.error is ErrorCode.INVALID_REQUEST and "odradek.id.max.length" in refused.message
    assert not groups.members
    assert groups.beat(**{name: "n" * LONGEST}).error is ErrorCode.NONE


def test_a_member_cannot_change_its_rack_to_a_long_one():
    groups = Groups()
    assert groups.beat(rack_id="r").error is ErrorCode.NONE
    assert groups.beat(rack_id="r" * (LONGEST + 1)).error is ErrorCode.INVALID_REQUEST
    assert groups.members["m"].rack_id == "r"


def test_the_client_id_of_a_member_is_cut():
    groups = Groups()
    groups.join(client_id="c" * 32_000)
    (member,) = groups.members.values()
    assert member.client_id == "c" * LONGEST and len(member.member_id) < LONGEST + 50
    groups = Groups()
    groups.beat(client_id="c" * 32_000)
    assert groups.members["m"].client_id == "c" * LONGEST


def test_the_name_of_a_software_is_cut():
    class Connection:
        def runs(self, *software):
            self.software = software

    class Call:
        version, connection = 3, Connection()

        class view:
            config = BrokerConfig({})

    request = registry.by_key(18).request(client_software_name="n" * 30_000, client_software_version="1" * 30_000)
    api_versions_handler.handle(request, Call)
    assert [len(text) for text in Call.connection.software] == [56, 56]
