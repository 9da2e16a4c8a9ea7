"""Producer snapshots of a slot: Kafka's format, version 1 (`odradek.storage.producer_snapshot`). The caller holds the slot's
mutex.

A snapshot is written under a temporary name. The cleaner or the ordered stop renames it once it is on the device
(`snapshot_publishing`), so that no crash leaves an empty file that looks like a snapshot.
"""

from libc.stdint cimport int64_t, uint32_t

from odradek._ext.shm.slot cimport Slot


# Write the snapshot for `offset`, which is the log's end, under its temporary name, and record it as pending. Returns 0, or -errno.
cdef int snapshot_producers(Slot* slot, int64_t offset) noexcept nogil

# Write the paths of the snapshot at `offset`, relative to the log directory; the buffers have 384 and 400 bytes.
cdef void snapshot_paths(Slot* slot, int64_t offset, char* path, char* temporary_path) noexcept nogil

# Check whether an open file is a complete snapshot. Returns 0, 1 if it is not, or -errno.
cdef int check_snapshot(int fd) noexcept nogil

# Add the producers in a snapshot file. Returns 0, 1 if the file is corrupt (no producer is added then), or -errno.
cdef int read_snapshot(uint32_t index, Slot* slot, int directory_fd, const char* path) noexcept nogil
