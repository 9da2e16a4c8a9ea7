"""Which requests change something, by the names of their APIs: an interrupted command names those without a response."""

from odradek.api.table import BY_KEY, declared
from odradek.clients.cluster import READS
from odradek.security.acl import Operation

CHANGING = {
    Operation.ALTER,
    Operation.ALTER_CONFIGS,
    Operation.CLUSTER_ACTION,
    Operation.CREATE,
    Operation.CREATE_TOKENS,
    Operation.DELETE,
    Operation.IDEMPOTENT_WRITE,
    Operation.WRITE,
}
CHANGES_WITHOUT_SUCH_A_RIGHT = {
    "ConsumerGroupHeartbeat",
    "ExpireDelegationToken",
    "Heartbeat",
    "JoinGroup",
    "LeaveGroup",
    "OffsetCommit",
    "RenewDelegationToken",
    "SyncGroup",
}
READ_WITH_SUCH_A_RIGHT = {"OffsetForLeaderEpoch"}  # followers ask with CLUSTER_ACTION


def test_an_api_reads_by_its_name_if_it_needs_no_right_to_change() -> None:
    reads, without_right = set(), set()
    for key in BY_KEY:
        api = declared(key)
        if api.schema.name.startswith(READS):
            reads.add(api.schema.name)
        if not CHANGING.intersection(need.operation for way in api.rights.ways for need in way):
            without_right.add(api.schema.name)
    assert reads - without_right == READ_WITH_SUCH_A_RIGHT
    assert without_right - reads == CHANGES_WITHOUT_SUCH_A_RIGHT
