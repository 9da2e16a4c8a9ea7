"""OffsetFetch (9): reads the committed offsets of a group.

0: offsets in the metadata tree. 1: offsets in the group coordinator. 2: null means all partitions; top-level error code. 3:
throttle time. 5: leader epochs. 7: require_stable, which refuses offsets that an open transaction may change. 8: several
groups. 9: member id and member epoch (KIP-848). 10: topic ids instead of names.
"""

from odradek.protocol.schema import api

API_KEY = 9

SCHEMA = api(
    API_KEY,
    "OffsetFetch",
    "0-10",
    flexible="6+",
    request="""
    GroupId               string                      0-7
    Topics                []OffsetFetchRequestTopic   0-7  null=2-7
      Name                string                      0-7
      PartitionIndexes    []int32                     0-7
    Groups                []OffsetFetchRequestGroup   8+
      GroupId             string                      8+
      MemberId            string                      9+   null default=null ignorable
      MemberEpoch         int32                       9+   default=-1 ignorable
      Topics              []OffsetFetchRequestTopics  8+   null
        Name              string                      8-9  ignorable
        TopicId           uuid                        10+  ignorable
        PartitionIndexes  []int32                     8+
    RequireStable         bool                        7+
    """,
    response="""
    ThrottleTimeMs              int32                            3+   ignorable
    Topics                      []OffsetFetchResponseTopic       0-7
      Name                      string                           0-7
      Partitions                []OffsetFetchResponsePartition   0-7
        PartitionIndex          int32                            0-7
        CommittedOffset         int64                            0-7
        CommittedLeaderEpoch    int32                            5-7  default=-1 ignorable
        Metadata                string                           0-7  null
        ErrorCode               int16                            0-7
    ErrorCode                   int16                            2-7  ignorable
    Groups                      []OffsetFetchResponseGroup       8+
      GroupId                   string                           8+
      Topics                    []OffsetFetchResponseTopics      8+
        Name                    string                           8-9  ignorable
        TopicId                 uuid                             10+  ignorable
        Partitions              []OffsetFetchResponsePartitions  8+
          PartitionIndex        int32                            8+
          CommittedOffset       int64                            8+
          CommittedLeaderEpoch  int32                            8+   default=-1 ignorable
          Metadata              string                           8+   null
          ErrorCode             int16                            8+
      ErrorCode                 int16                            8+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
