"""What the controller published about a partition; a slot contains two of these views. views.pxd reads and writes them."""

from libc.stdint cimport int32_t, uint32_t


cdef enum:
    MAX_IN_SYNC = 16


cdef struct PartitionView:        # what the controller published about a partition: clients are answered from it [R 10]
    uint32_t offline              # bit i: the replica replicas[i] is offline
    int32_t leader_id             # -1: no leader; -2: the topic is being deleted
    int32_t leader_epoch
    int32_t partition_epoch
    int32_t replica_count
    int32_t in_sync_count
    int32_t[MAX_IN_SYNC] replicas
    int32_t[MAX_IN_SYNC] in_sync
