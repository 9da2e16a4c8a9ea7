"""StreamsGroupHeartbeat (88): a member of a streams group (KIP-1071) joins, reports its tasks, and gets its assignment."""

from odradek.protocol.schema import api

API_KEY = 88

SCHEMA = api(
    API_KEY,
    "StreamsGroupHeartbeat",
    "0",
    flexible="0+",
    request="""
    GroupId                        string              0+
    MemberId                       string              0+
    MemberEpoch                    int32               0+
    EndpointInformationEpoch       int32               0+
    InstanceId                     string              0+  null default=null
    RackId                         string              0+  null default=null
    RebalanceTimeoutMs             int32               0+  default=-1
    Topology                       Topology            0+  null default=null
      Epoch                        int32               0+
      Subtopologies                []Subtopology       0+
        SubtopologyId              string              0+
        SourceTopics               []string            0+
        SourceTopicRegex           []string            0+
        StateChangelogTopics       []TopicInfo         0+
        RepartitionSinkTopics      []string            0+
        RepartitionSourceTopics    []TopicInfo         0+
        CopartitionGroups          []CopartitionGroup  0+
          SourceTopics             []int16             0+
          SourceTopicRegex         []int16             0+
          RepartitionSourceTopics  []int16             0+
    ActiveTasks                    []TaskIds           0+  null default=null
    StandbyTasks                   []TaskIds           0+  null default=null
    WarmupTasks                    []TaskIds           0+  null default=null
    ProcessId                      string              0+  null default=null
    UserEndpoint                   Endpoint            0+  null default=null
    ClientTags                     []KeyValue          0+  null default=null
    TaskOffsets                    []TaskOffset        0+  null default=null
    TaskEndOffsets                 []TaskOffset        0+  null default=null
    ShutdownApplication            bool                0+
    struct KeyValue 0+
      Key                          string              0+
      Value                        string              0+
    struct TopicInfo 0+
      Name                         string              0+
      Partitions                   int32               0+
      ReplicationFactor            int16               0+
      TopicConfigs                 []KeyValue          0+
    struct Endpoint 0+
      Host                         string              0+
      Port                         uint16              0+
    struct TaskOffset 0+
      SubtopologyId                string              0+
      Partition                    int32               0+
      Offset                       int64               0+
    struct TaskIds 0+
      SubtopologyId                string              0+
      Partitions                   []int32             0+
    """,
    response="""
    ThrottleTimeMs            int32                   0+
    ErrorCode                 int16                   0+
    ErrorMessage              string                  0+  null default=null
    MemberId                  string                  0+
    MemberEpoch               int32                   0+
    HeartbeatIntervalMs       int32                   0+
    AcceptableRecoveryLag     int32                   0+
    TaskOffsetIntervalMs      int32                   0+
    Status                    []Status                0+  null
    ActiveTasks               []TaskIds               0+  null default=null
    StandbyTasks              []TaskIds               0+  null default=null
    WarmupTasks               []TaskIds               0+  null default=null
    EndpointInformationEpoch  int32                   0+
    PartitionsByUserEndpoint  []EndpointToPartitions  0+  null default=null
      UserEndpoint            Endpoint                0+
      ActivePartitions        []TopicPartition        0+
      StandbyPartitions       []TopicPartition        0+
    struct Status 0+
      StatusCode              int8                    0+
      StatusDetail            string                  0+
    struct TopicPartition 0+
      Topic                   string                  0+
      Partitions              []int32                 0+
    struct TaskIds 0+
      SubtopologyId           string                  0+
      Partitions              []int32                 0+
    struct Endpoint 0+
      Host                    string                  0+
      Port                    uint16                  0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
