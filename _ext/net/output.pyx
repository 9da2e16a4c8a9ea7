"""Sending spans and file slices in order with as few system calls as the kernel allows.

One sendmsg sends adjacent spans, with MSG_MORE if a slice follows, so that the response's header shares a packet with the
file's bytes; sendfile(2) sends slices. Nothing in this module blocks: the socket is non-blocking, and a slice's next chunk is
checked in the page cache first. Used by the event loop thread of a worker only.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint32_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from posix.uio cimport iovec

from odradek._ext.protocol.byte_order cimport store32
from odradek._ext.storage.page_cache cimport read_resident, read_some, resident


cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
    ssize_t sendmsg(int socket, const msghdr* message, int flags)
    int MSG_NOSIGNAL
    int MSG_DONTWAIT
    int MSG_MORE

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t sendfile(int socket, int fd, int64_t* offset, size_t count)


cdef enum:
    GATHERED_SPANS = 64           # maximum number of spans in one sendmsg
    COPIED_PART = 1024            # a bytes object up to this size is copied instead of held


cdef class FileSlice:
    """`length` bytes at `position` of a file.

    :param file: an object with `fileno()`, held until the slice is sent, so that its descriptor stays open.
    """

    def __init__(self, file, int64_t position, int64_t length):
        if position < 0 or length < 0:
            raise ValueError(f"file slice at position {position} of {length} bytes: neither may be negative")
        self.file = file
        self.fd = file.fileno()
        self.position = position
        self.length = length


cdef OutNode* new_node(int64_t room) except NULL:
    cdef OutNode* node = <OutNode*>malloc(sizeof(OutNode) + room)
    if node == NULL:
        raise MemoryError(f"no memory for {room} bytes of a response")
    memset(node, 0, sizeof(OutNode))
    node.fd = -1
    node.data = <uint8_t*>(node + 1)
    return node


cdef void append_node(OutQueue* queue, OutNode* node) noexcept:
    if queue.tail == NULL:
        queue.head = node
    else:
        queue.tail.next = node
    queue.tail = node
    queue.count += 1
    if node.fd < 0:
        queue.span_bytes += node.length
    else:
        queue.file_bytes += node.length


cdef void remove_head(OutQueue* queue) noexcept:
    cdef OutNode* node = queue.head
    queue.head = node.next
    if queue.head == NULL:
        queue.tail = NULL
    queue.count -= 1
    if node.fd < 0:
        queue.span_bytes -= node.length
    else:
        queue.file_bytes -= node.length
    if node.viewed:
        PyBuffer_Release(<Py_buffer*>(node + 1))
    if node.owner != NULL:
        Py_DECREF(<object>node.owner)
    free(node)


cdef int add_copy(OutQueue* queue, const uint8_t* data, int64_t length) except -1:
    cdef OutNode* node
    if length == 0:
        return 0
    node = new_node(length)
    memcpy(node.data, data, length)
    node.length = length
    append_node(queue, node)
    return 0


cdef int add_framed(OutQueue* queue, const uint8_t* data, int64_t length) except -1:
    cdef OutNode* node = new_node(4 + length)
    store32(node.data, <uint32_t>length)
    memcpy(node.data + 4, data, length)
    node.length = 4 + length
    append_node(queue, node)
    return 0


cdef int add_file(OutQueue* queue, object owner, int fd, int64_t position, int64_t length) except -1:
    cdef OutNode* node
    if length <= 0:
        return 0
    if length <= COPIED_SLICE:
        node = new_node(length)
        if read_resident(fd, node.data, length, position) == length:
            node.length = length
            append_node(queue, node)
            return 0
        free(node)
    node = new_node(0)
    Py_INCREF(owner)
    node.owner = <PyObject*>owner
    node.fd = fd
    node.position = node.warm_until = position
    node.length = length
    append_node(queue, node)
    return 0


cdef int add_part(OutQueue* queue, object part) except -1:
    cdef OutNode* node
    cdef Py_buffer* view
    cdef FileSlice file_slice
    if isinstance(part, FileSlice):
        file_slice = part
        return add_file(queue, file_slice.file, file_slice.fd, file_slice.position, file_slice.length)
    if isinstance(part, bytes) and len(<bytes>part) <= COPIED_PART:
        return add_copy(queue, <const uint8_t*><char*><bytes>part, len(<bytes>part))
    node = new_node(sizeof(Py_buffer))
    view = <Py_buffer*>(node + 1)
    try:
        PyObject_GetBuffer(part, view, PyBUF_SIMPLE)
    except BaseException:
        free(node)
        raise
    if view.len == 0:
        PyBuffer_Release(view)
        free(node)
        return 0
    node.viewed = True
    node.data = <uint8_t*>view.buf
    node.length = view.len
    append_node(queue, node)
    return 0


cdef void join_queues(OutQueue* queue, OutQueue* source) noexcept:
    if source.head == NULL:
        return
    if queue.tail == NULL:
        queue.head = source.head
    else:
        queue.tail.next = source.head
    queue.tail = source.tail
    queue.span_bytes += source.span_bytes
    queue.file_bytes += source.file_bytes
    queue.count += source.count
    memset(source, 0, sizeof(OutQueue))


cdef void drop_queue(OutQueue* queue) noexcept:
    while queue.head != NULL:
        remove_head(queue)


cdef void drop_sent(OutQueue* queue, int64_t n) noexcept:
    """Remove `n` sent bytes from the spans at the head of the queue."""
    cdef OutNode* node
    while n > 0:
        node = queue.head
        if n < node.length:
            node.data += n
            node.length -= n
            queue.span_bytes -= n
            return
        n -= node.length
        remove_head(queue)


cdef int64_t send_spans(OutQueue* queue, int socket, int64_t* requested) noexcept:
    cdef iovec[GATHERED_SPANS] parts
    cdef msghdr message
    cdef OutNode* node = queue.head
    cdef int count = 0
    cdef int flags = MSG_NOSIGNAL | MSG_DONTWAIT
    requested[0] = 0
    while node != NULL and node.fd < 0 and count < GATHERED_SPANS:
        parts[count].iov_base = node.data
        parts[count].iov_len = node.length
        requested[0] += node.length
        count += 1
        node = node.next
    if node != NULL:
        flags |= MSG_MORE
    memset(&message, 0, sizeof(msghdr))
    message.msg_iov = parts
    message.msg_iovlen = count
    return sendmsg(socket, &message, flags)


cdef SendState send_queue(OutQueue* queue, int socket, int64_t budget, bint look_up, int64_t* sent, int64_t* from_files,
                          int* error) noexcept:
    cdef OutNode* node
    cdef int64_t n, requested
    cdef bint is_slice
    while queue.head != NULL:
        if budget <= 0:
            return SENT_ENOUGH
        node = queue.head
        is_slice = node.fd >= 0
        if is_slice:
            requested = min(node.length, <int64_t>FILE_CHUNK)
            if look_up and node.position < node.warm_until:
                requested = min(requested, node.warm_until - node.position)
            elif look_up:
                if not resident(node.fd, node.position, requested):
                    return SENT_COLD
                node.warm_until = node.position + requested
            n = sendfile(socket, node.fd, &node.position, requested)
        else:
            n = send_spans(queue, socket, &requested)
        if n < 0:
            if errno == EINTR:
                continue
            if errno == EAGAIN:
                return SENT_BLOCKED
            error[0] = errno
            return SENT_ERROR
        sent[0] += n
        budget -= n
        if is_slice:
            if n == 0:
                return SENT_SHORT_FILE
            from_files[0] += n
            node.length -= n
            queue.file_bytes -= n
            if node.length == 0:
                remove_head(queue)
        else:
            drop_sent(queue, n)
        if n < requested:             # the socket is full, or the file ended: the next call finds out which
            return SENT_BLOCKED
    return SENT_ALL


cdef SendState gather_queue(OutQueue* queue, uint8_t* out, int64_t room, bint look_up, int64_t* got, int* error) noexcept:
    cdef OutNode* node
    cdef int64_t n, wanted
    got[0] = 0
    while queue.head != NULL:
        node = queue.head
        wanted = min(node.length, room - got[0])
        if wanted == 0:
            return SENT_ENOUGH
        if node.fd < 0:
            memcpy(out + got[0], node.data, wanted)
            got[0] += wanted
            drop_sent(queue, wanted)
            continue
        if not look_up or node.position < node.warm_until:
            if look_up:
                wanted = min(wanted, node.warm_until - node.position)
            n = read_some(node.fd, out + got[0], wanted, node.position)
            if n < 0:
                if errno == EINTR:
                    continue
                error[0] = errno
                return SENT_ERROR
        else:
            n = read_resident(node.fd, out + got[0], wanted, node.position)
            if n < 0:                 # the pages before it go first
                return SENT_ENOUGH if got[0] else SENT_COLD
        if n == 0:
            return SENT_SHORT_FILE
        got[0] += n
        node.position += n
        node.length -= n
        queue.file_bytes -= n
        if node.length == 0:
            remove_head(queue)
    return SENT_ALL
