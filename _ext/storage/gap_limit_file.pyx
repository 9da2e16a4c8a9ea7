"""Reads and writes the file of a log's gap limit; see gap_limit_file.pxd.

The format is that of Kafka's checkpoints: the version 0, the number of entries (1), and the offset. Kafka ignores files that it
does not know.
"""

from libc.errno cimport errno
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport strtoll
from posix.fcntl cimport O_CREAT, O_RDONLY, O_TRUNC, O_WRONLY
from posix.unistd cimport close

from odradek._ext.storage.file_calls cimport file_open, file_rename, file_sync, file_unlink
from odradek._ext.storage.log_scan cimport read_at, write_at
from odradek._ext.storage.log_state cimport EVENT_CORRUPT_GAP_LIMIT, LogState, about_to_change, add_event


cdef enum:
    CONTENT_BYTES = 64

cdef const char* GAP_LIMIT_NAME = b"odradek-gaps-checkpoint"
cdef const char* TEMPORARY_NAME = b"odradek-gaps-checkpoint.tmp"            # written under the slot's lock
cdef const char* PREPARED_NAME = b"odradek-gaps-checkpoint.prepared"        # written by the cleaner without the lock


cdef int64_t parse(const char* content) noexcept nogil:
    """The offset in a file's content; -1 if the content has a wrong format."""
    cdef char* at
    cdef char* end
    cdef int64_t limit
    if content[0] != 48 or content[1] != 10 or content[2] != 49 or content[3] != 10:        # "0\n1\n"
        return -1
    at = <char*>content + 4
    limit = strtoll(at, &end, 10)
    return limit if end != at and end[0] == 10 and end[1] == 0 and limit >= 0 else -1


cdef int read_gap_limit_file(int directory, int64_t* limit) noexcept nogil:
    cdef char[CONTENT_BYTES] content
    cdef int64_t n
    cdef int descriptor = file_open(directory, GAP_LIMIT_NAME, O_RDONLY)
    if descriptor < 0:
        return -errno
    n = read_at(descriptor, content, CONTENT_BYTES - 1, 0)
    close(descriptor)
    if n < 0:
        return <int>n
    content[n] = 0
    limit[0] = parse(content)
    return 0


cdef int write_content(int directory, const char* name, int64_t limit, bint durable) noexcept nogil:
    cdef char[CONTENT_BYTES] content
    cdef int length = snprintf(content, CONTENT_BYTES, "0\n1\n%lld\n", <long long>limit), result
    cdef int descriptor = file_open(directory, name, O_WRONLY | O_CREAT | O_TRUNC)
    if descriptor < 0:
        return -errno
    result = write_at(descriptor, content, <size_t>length, 0)
    if result == 0 and durable and file_sync(descriptor) != 0:
        result = -errno
    close(descriptor)
    if result != 0:
        file_unlink(directory, name)
    return result


cdef int write_gap_limit_file(int directory, int64_t limit, bint durable) noexcept nogil:
    cdef int result = write_content(directory, TEMPORARY_NAME, limit, durable)
    if result == 0 and file_rename(directory, TEMPORARY_NAME, GAP_LIMIT_NAME) != 0:
        result = -errno
    if result == 0 and durable and file_sync(directory) != 0:
        result = -errno
    return result


cdef int prepare_gap_limit(int directory, int64_t limit) noexcept nogil:
    return write_content(directory, PREPARED_NAME, limit, True)


cdef int name_prepared_gap_limit(int directory) noexcept nogil:
    return 0 if file_rename(directory, PREPARED_NAME, GAP_LIMIT_NAME) == 0 else -errno


cdef int sync_gap_limit(int directory) noexcept nogil:
    cdef int descriptor = file_open(directory, GAP_LIMIT_NAME, O_RDONLY), result = 0
    if descriptor < 0:
        return -errno
    if file_sync(descriptor) != 0 or file_sync(directory) != 0:
        result = -errno
    close(descriptor)
    return result


cdef void drop_prepared_gap_limit(int directory) noexcept nogil:
    file_unlink(directory, PREPARED_NAME)       # a file that remains does no harm: the next preparation replaces it


cdef int read_gap_limit(LogState* state, int directory, int64_t cleaner_offset) noexcept nogil:
    cdef int64_t limit = -1
    cdef int error
    if not state.has_gap_limit:
        # This broker writes the file before it compacts a log. So another broker or an older version compacted the log, or it is
        # not known.
        state.gap_limit = INT64_MAX if cleaner_offset >= 0 else 0
        return 0
    error = read_gap_limit_file(directory, &limit)
    if error == 0 and limit < 0:
        state.gap_limit = INT64_MAX
        return add_event(state, EVENT_CORRUPT_GAP_LIMIT, 0, 0, 0, 0, 0)
    # The cleaner's checkpoint may be higher if Kafka compacted the log meanwhile.
    state.gap_limit = max(limit, cleaner_offset) if cleaner_offset != INT64_MAX else limit
    return error


cdef int fit_gap_limit(LogState* state, int directory) noexcept nogil:
    cdef int error
    if state.gap_limit == INT64_MAX or state.gap_limit <= state.log_end_offset:
        return 0
    state.gap_limit = state.log_end_offset
    error = about_to_change(state)
    if error == 0:
        error = write_gap_limit_file(directory, state.gap_limit, True)
    return error
