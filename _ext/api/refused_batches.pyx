"""The batches of idempotent producers that were refused on a connection, and whose retries have not arrived yet.

Used in a worker's event loop. A producer sends further batches before it knows that one was refused. A partition that does not know
the producer accepts any first sequence (KIP-360): it would append a later batch, for example because this broker has become the leader
in between. The producer would take this for a sign that the earlier batch was written, too, and that batch would be lost. So the
partition refuses such a batch as out of order, as it does if it knows the producer, until the earlier one is sent again.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from odradek._ext.api.produce_items cimport ProduceItem
from odradek._ext.protocol.byte_order cimport load16, load32, load64
from odradek._ext.records.record_batch cimport AT_BASE_SEQUENCE, AT_MAGIC, AT_PRODUCER_EPOCH, AT_PRODUCER_ID


cdef enum:
    HEADER_BYTES = 61
    MAX_NOTED = 1000                  # of a connection; the oldest are forgotten


cdef struct Producer:
    int64_t id                        # -1: the batch has no producer id
    int16_t epoch
    int32_t base_sequence


cdef Producer producer_of(ProduceItem* item) noexcept nogil:
    """The producer of a batch, which is perhaps not checked yet."""
    cdef Producer found
    cdef const uint8_t* data = item.append.data
    found.id = found.epoch = found.base_sequence = -1
    if data == NULL and item.appended:
        found.id = item.append.info.producer_id
        found.epoch = item.append.info.producer_epoch
        found.base_sequence = item.append.info.base_sequence
    elif data != NULL and item.append.info.size >= HEADER_BYTES and data[AT_MAGIC] == 2:
        found.id = <int64_t>load64(data + AT_PRODUCER_ID)
        found.epoch = <int16_t>load16(data + AT_PRODUCER_EPOCH)
        found.base_sequence = <int32_t>load32(data + AT_BASE_SEQUENCE)
    return found


cdef class RefusedBatches:
    def __init__(self):
        self.by_connection = {}

    cdef int note(self, int64_t connection_id, ProduceItem* item) except -1:
        """Note a refused batch. If an earlier one of its producer is noted, that one remains."""
        cdef Producer producer = producer_of(item)
        cdef dict noted
        if producer.id < 0 or producer.base_sequence < 0:
            return 0
        noted = self.by_connection.get(connection_id)
        if noted is None:
            noted = self.by_connection[connection_id] = {}
        key = ((<const char*>item.topic)[:item.topic_bytes], item.partition, producer.id)
        before = noted.get(key)
        if before is None or before[0] != producer.epoch or not follows(<int32_t>before[1], producer.base_sequence):
            noted[key] = (producer.epoch, producer.base_sequence)
            if len(noted) > MAX_NOTED:
                del noted[next(iter(noted))]
        return 0

    cdef int judge(self, int64_t connection_id, ProduceItem* item) except -1:
        """Mark a batch that follows a refused one. The retry of that one, or a new epoch of the producer, ends this."""
        cdef Producer producer
        cdef dict noted
        if not self.by_connection:
            return 0
        noted = self.by_connection.get(connection_id)
        if noted is None:
            return 0
        producer = producer_of(item)
        if producer.id < 0:
            return 0
        key = ((<const char*>item.topic)[:item.topic_bytes], item.partition, producer.id)
        before = noted.get(key)
        if before is None:
            return 0
        if before[0] == producer.epoch and follows(<int32_t>before[1], producer.base_sequence):
            item.append.after_refused = 1
            return 0
        del noted[key]
        if not noted:
            del self.by_connection[connection_id]
        return 0

    cdef int forget(self, int64_t connection_id) except -1:
        """The connection is closed."""
        if self.by_connection:
            self.by_connection.pop(connection_id, None)
        return 0


cdef inline bint follows(int32_t before, int32_t sequence) noexcept nogil:
    """Whether a sequence lies behind another one; sequences begin at 0 again after the largest."""
    return 0 < ((<int64_t>sequence - before) & 0x7FFFFFFF) < 0x40000000
