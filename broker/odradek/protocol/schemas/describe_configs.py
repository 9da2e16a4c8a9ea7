"""DescribeConfigs (32): the configuration of topics, brokers, loggers, client metrics and groups.

0: whether a value is the default. 1: the source of a value instead, and its synonyms on request. 3: types and
documentation.
"""

from odradek.protocol.schema import api

API_KEY = 32

SCHEMA = api(
    API_KEY,
    "DescribeConfigs",
    "0-4",
    flexible="4+",
    request="""
    Resources             []DescribeConfigsResource  0+
      ResourceType        int8                       0+
      ResourceName        string                     0+
      ConfigurationKeys   []string                   0+  null
    IncludeSynonyms       bool                       1+
    IncludeDocumentation  bool                       3+
    """,
    response="""
    ThrottleTimeMs     int32                            0+
    Results            []DescribeConfigsResult          0+
      ErrorCode        int16                            0+
      ErrorMessage     string                           0+  null
      ResourceType     int8                             0+
      ResourceName     string                           0+
      Configs          []DescribeConfigsResourceResult  0+
        Name           string                           0+
        Value          string                           0+  null
        ReadOnly       bool                             0+
        IsDefault      bool                             0
        ConfigSource   int8                             1+  default=-1 ignorable
        IsSensitive    bool                             0+
        Synonyms       []DescribeConfigsSynonym         1+  ignorable
          Name         string                           1+
          Value        string                           1+  null
          Source       int8                             1+
        ConfigType     int8                             3+  ignorable
        Documentation  string                           3+  null ignorable
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
