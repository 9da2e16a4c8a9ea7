"""ListPartitionReassignments (46): the reassignments in progress."""

from odradek.protocol.schema import api

API_KEY = 46

SCHEMA = api(
    API_KEY,
    "ListPartitionReassignments",
    "0",
    flexible="0+",
    request="""
    TimeoutMs           int32                               0+  default=60000
    Topics              []ListPartitionReassignmentsTopics  0+  null default=null
      Name              string                              0+
      PartitionIndexes  []int32                             0+
    """,
    response="""
    ThrottleTimeMs        int32                           0+
    ErrorCode             int16                           0+
    ErrorMessage          string                          0+  null
    Topics                []OngoingTopicReassignment      0+
      Name                string                          0+
      Partitions          []OngoingPartitionReassignment  0+
        PartitionIndex    int32                           0+
        Replicas          []int32                         0+
        AddingReplicas    []int32                         0+
        RemovingReplicas  []int32                         0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
