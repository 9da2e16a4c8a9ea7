"""The questions of workers about transactions, and the coordinator's answers: the payloads of frames of kind ADD_PARTITIONS.

A question names partitions to which a producer writes in a transaction. The coordinator adds them to the transaction, or verifies
that they were added, and sets the producer's mark in each partition before it answers 0 for it. Pure functions; no state, no lock.

All numbers are big-endian, texts are UTF-8 with their length in bytes (u32) before them. Payload: number of questions u32; of each:
transactional id, producer id i64, producer epoch i16, flags u8 (bit 0: verify only), number of partitions u32; of each: topic,
partition i32. Answer: Kafka's error code of each partition as i16, in the order of the questions.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint8_t

from odradek._ext.net.forward_frames import MalformedFrame
from odradek._ext.protocol.cursor cimport (
    Cursor, WriteBuffer, buffer_free, buffer_init, cursor_init, cursor_left, read_bytes, read_int8, read_int16, read_int32, read_int64,
    read_uint32, write_bytes, write_int8, write_int16, write_int32, write_int64,
)


cdef enum:
    VERIFY_ONLY = 1
    LEAST_QUESTION_BYTES = 19           # without texts and partitions
    LEAST_PARTITION_BYTES = 8
    CODE_BYTES = 2


cdef int write_text(WriteBuffer* b, str text) except -1:
    cdef bytes data = text.encode()
    write_int32(b, len(data))
    write_bytes(b, <const char*>data, len(data))
    return 0


cdef bytes taken(WriteBuffer* b):
    if b.error:
        raise MemoryError("no memory for a question about a transaction")
    return PyBytes_FromStringAndSize(<const char*>b.data, b.size)


def encode_questions(questions not None) -> bytes:
    """Encode questions.

    :param questions: (transactional id, producer id, producer epoch, whether to verify only, [(topic, partition)]) for each.
    """
    cdef WriteBuffer buffer
    cdef int64_t producer_id
    cdef int16_t producer_epoch
    cdef int32_t partition
    buffer_init(&buffer)
    try:
        write_int32(&buffer, len(questions))
        for transactional_id, producer_id, producer_epoch, verify_only, places in questions:
            write_text(&buffer, transactional_id)
            write_int64(&buffer, producer_id)
            write_int16(&buffer, producer_epoch)
            write_int8(&buffer, VERIFY_ONLY if verify_only else 0)
            write_int32(&buffer, len(places))
            for topic, partition in places:
                write_text(&buffer, topic)
                write_int32(&buffer, partition)
        return taken(&buffer)
    finally:
        buffer_free(&buffer)


cdef str read_text(Cursor* c):
    cdef int64_t size = read_uint32(c)
    cdef const uint8_t* text = read_bytes(c, size)
    return "" if text == NULL else PyUnicode_DecodeUTF8(<const char*>text, size, "replace")


cdef uint32_t read_count(Cursor* c, int64_t least_bytes) except? 0xFFFFFFFF:
    """Read a number of elements. :param least_bytes: the size that each element has at least."""
    cdef uint32_t count = read_uint32(c)
    if count * least_bytes > cursor_left(c):
        raise MalformedFrame(f"{count} elements of a question about a transaction do not fit in {cursor_left(c)} bytes")
    return count


def decode_questions(bytes payload not None) -> list[tuple[str, int, int, bool, tuple[tuple[str, int], ...]]]:
    """Decode the result of `encode_questions` to a list of tuples; the partitions of each are a tuple. Raises MalformedFrame."""
    cdef Cursor c
    cdef uint32_t _i, _j, count, partitions
    cdef int flags
    cdef str name, topic
    cdef int64_t producer_id
    cdef int producer_epoch, partition
    cdef list questions = [], places
    cursor_init(&c, <const char*>payload, len(payload))
    count = read_count(&c, LEAST_QUESTION_BYTES)
    for _i in range(count):
        name = read_text(&c)
        producer_id = read_int64(&c)
        producer_epoch = read_int16(&c)
        flags = <uint8_t>read_int8(&c)
        if flags & ~VERIFY_ONLY:
            raise MalformedFrame(f"unknown flags {flags:#x} of a question about a transaction")
        places = []
        partitions = read_count(&c, LEAST_PARTITION_BYTES)
        for _j in range(partitions):
            topic = read_text(&c)
            partition = read_int32(&c)
            places.append((topic, partition))
        questions.append((name, producer_id, producer_epoch, flags == VERIFY_ONLY, tuple(places)))
    if c.error or cursor_left(&c):
        raise MalformedFrame(f"questions about transactions of {len(payload)} bytes are cut off or too long")
    return questions


def encode_codes(codes not None) -> bytes:
    """Encode an answer: the error codes of all partitions."""
    cdef WriteBuffer buffer
    cdef int16_t code
    buffer_init(&buffer)
    try:
        for code in codes:
            write_int16(&buffer, code)
        return taken(&buffer)
    finally:
        buffer_free(&buffer)


def decode_codes(bytes payload not None, int64_t count) -> tuple[int, ...]:
    """Decode the result of `encode_codes` for `count` partitions to a tuple. Raises MalformedFrame."""
    cdef Cursor c
    if len(payload) != CODE_BYTES * count:
        raise MalformedFrame(f"{len(payload)} bytes of error codes, expected {CODE_BYTES * count}")
    cursor_init(&c, <const char*>payload, len(payload))
    return tuple([read_int16(&c) for _ in range(count)])
