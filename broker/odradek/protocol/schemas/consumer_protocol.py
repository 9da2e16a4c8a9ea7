"""Subscriptions and assignments of consumers in classic groups (protocol type "consumer"), sent in JoinGroup and SyncGroup.

Each begins with its version as an int16. A reader decodes an unknown, newer version as the newest version that it knows.

1: the partitions that a member owns, for cooperative rebalancing. 2: the generation of the owned partitions. 3: the rack of
the member.
"""

from __future__ import annotations

from typing import Any

from odradek.protocol.schema import message

Subscription: Any = message(
    "ConsumerProtocolSubscription",
    """
    Topics           []string          0+
    UserData         bytes             0+  null default=null
    OwnedPartitions  []TopicPartition  1+  ignorable
      Topic          string            1+
      Partitions     []int32           1+
    GenerationId     int32             2+  default=-1 ignorable
    RackId           string            3+  null default=null ignorable
    """,
    versions="0-3",
    flexible="none",
    module=__name__,
)

Assignment: Any = message(
    "ConsumerProtocolAssignment",
    """
    AssignedPartitions  []TopicPartition  0+
      Topic             string            0+
      Partitions        []int32           0+
    UserData            bytes             0+  null default=null
    """,
    versions="0-3",
    flexible="none",
    module=__name__,
)
