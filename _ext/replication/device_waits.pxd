"""The wait of a follower for its device: a partition with flush.messages is not fetched while its newest records are not on the device.

To fetch from an offset acknowledges everything before it. So a partition whose slot has flush.messages or more unsynced records is left
out of requests, and its log is synced. A request waits a short time for partitions whose records have just been appended, so that usually
no partition has to leave the leader's fetch session and the partitions of a response share their syncs.
"""

from libc.stdint cimport uint32_t

from odradek._ext.replication.fetched_partitions cimport FetchedPartitions


cdef struct DeviceLook:
    uint32_t waiting              # active partitions that wait for the device, without those that the throttle holds
    bint fresh                    # one of them is DEVICE_NEW

# Look again at the partitions that wait for the device, and let the end of a flush wake this process for those that still do [R 6.1]. The
# caller then requests the syncs.
cdef void look_at_device(FetchedPartitions partitions, DeviceLook* out) noexcept nogil

# A request is sent without the partitions that wait for the device.
cdef void go_on_without(FetchedPartitions partitions) noexcept nogil
