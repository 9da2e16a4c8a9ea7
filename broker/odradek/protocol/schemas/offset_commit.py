"""OffsetCommit (8): stores the offsets of a group.

0: offsets in the metadata tree. 1: offsets in the group coordinator; generation and member id, and a timestamp for each
offset. 2 to 4: one retention time for all offsets instead. 3: throttle time. 6: leader epochs. 7: group instance id. 9: member
epoch of the consumer protocol (KIP-848), and its errors. 10: topic ids instead of names.
"""

from odradek.protocol.schema import api

API_KEY = 8

SCHEMA = api(
    API_KEY,
    "OffsetCommit",
    "0-10",
    flexible="8+",
    request="""
    GroupId                    string                          0+
    GenerationIdOrMemberEpoch  int32                           1+   default=-1 ignorable
    MemberId                   string                          1+   ignorable
    GroupInstanceId            string                          7+   null default=null
    RetentionTimeMs            int64                           2-4  default=-1 ignorable
    Topics                     []OffsetCommitRequestTopic      0+
      Name                     string                          0-9  ignorable
      TopicId                  uuid                            10+  ignorable
      Partitions               []OffsetCommitRequestPartition  0+
        PartitionIndex         int32                           0+
        CommittedOffset        int64                           0+
        CommittedLeaderEpoch   int32                           6+   default=-1 ignorable
        CommitTimestamp        int64                           1    default=-1
        CommittedMetadata      string                          0+   null
    """,
    response="""
    ThrottleTimeMs      int32                            3+   ignorable
    Topics              []OffsetCommitResponseTopic      0+
      Name              string                           0-9  ignorable
      TopicId           uuid                             10+  ignorable
      Partitions        []OffsetCommitResponsePartition  0+
        PartitionIndex  int32                            0+
        ErrorCode       int16                            0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
