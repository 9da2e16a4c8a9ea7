"""Producer snapshots of a slot: Kafka's format, version 1 (`odradek.storage.producer_snapshot`). With the slot's mutex held.

A snapshot is written under a temporary name. It gets its own one from the cleaner or the ordered stop once it is on the device
(`snapshot_publishing`), so that no crash leaves an empty file that looks like a snapshot.
"""

from libc.stdint cimport int64_t, uint32_t

from odradek._ext.shm.layout cimport Slot


# Write the snapshot as of `offset`, which is the log's end, under its temporary name, and note it as pending; 0, or -errno.
cdef int snapshot_producers(Slot* slot, int64_t offset) noexcept nogil

# The paths of the snapshot at `offset`, relative to the log directory; 384 and 400 bytes.
cdef void snapshot_paths(Slot* slot, int64_t offset, char* path, char* temporary_path) noexcept nogil

# Whether an open file is a whole snapshot: 0, 1 if it is not, or -errno.
cdef int check_snapshot(int fd) noexcept nogil

# Add the producers that a snapshot file tells of: 0, 1 if it is corrupt (none was added then), or -errno.
cdef int read_snapshot(uint32_t index, Slot* slot, int directory_fd, const char* path) noexcept nogil
