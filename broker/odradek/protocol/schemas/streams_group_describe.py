"""StreamsGroupDescribe (89): state, topology and members of streams groups."""

from odradek.protocol.schema import api

API_KEY = 89

SCHEMA = api(
    API_KEY,
    "StreamsGroupDescribe",
    "0",
    flexible="0+",
    request="""
    GroupIds                     []string  0+
    IncludeAuthorizedOperations  bool      0+
    """,
    response="""
    ThrottleTimeMs                 int32             0+
    Groups                         []DescribedGroup  0+
      ErrorCode                    int16             0+
      ErrorMessage                 string            0+  null default=null
      GroupId                      string            0+
      GroupState                   string            0+
      GroupEpoch                   int32             0+
      AssignmentEpoch              int32             0+
      Topology                     Topology          0+  null default=null
        Epoch                      int32             0+
        Subtopologies              []Subtopology     0+  null default=null
          SubtopologyId            string            0+
          SourceTopics             []string          0+
          RepartitionSinkTopics    []string          0+
          StateChangelogTopics     []TopicInfo       0+
          RepartitionSourceTopics  []TopicInfo       0+
      Members                      []Member          0+
        MemberId                   string            0+
        MemberEpoch                int32             0+
        InstanceId                 string            0+  null default=null
        RackId                     string            0+  null default=null
        ClientId                   string            0+
        ClientHost                 string            0+
        TopologyEpoch              int32             0+
        ProcessId                  string            0+
        UserEndpoint               Endpoint          0+  null default=null
        ClientTags                 []KeyValue        0+
        TaskOffsets                []TaskOffset      0+
        TaskEndOffsets             []TaskOffset      0+
        Assignment                 Assignment        0+
        TargetAssignment           Assignment        0+
        IsClassic                  bool              0+
      AuthorizedOperations         int32             0+  default=-2147483648
    struct Endpoint 0+
      Host                         string            0+
      Port                         uint16            0+
    struct TaskOffset 0+
      SubtopologyId                string            0+
      Partition                    int32             0+
      Offset                       int64             0+
    struct Assignment 0+
      ActiveTasks                  []TaskIds         0+
      StandbyTasks                 []TaskIds         0+
      WarmupTasks                  []TaskIds         0+
    struct TaskIds 0+
      SubtopologyId                string            0+
      Partitions                   []int32           0+
    struct KeyValue 0+
      Key                          string            0+
      Value                        string            0+
    struct TopicInfo 0+
      Name                         string            0+
      Partitions                   int32             0+
      ReplicationFactor            int16             0+
      TopicConfigs                 []KeyValue        0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
