"""The batches of idempotent producers that were refused on a connection, and whose retries have not arrived yet.

Used in a worker's event loop. A producer sends further batches before it knows that one was refused. A partition that does not know
the producer accepts any first sequence (KIP-360): it would append a later batch, for example because this broker has become the leader
in between. The producer would take this for a sign that the earlier batch was written, too, and that batch would be lost. So the
partition refuses such a batch as out of order, as it does if it knows the producer, until the earlier one is sent again.
"""

from libc.stdint cimport int32_t, int64_t

from odradek._ext.api.produce_items cimport BatchProducer, ProduceItem, follows, producer_of


cdef enum:
    MAX_NOTED = 1000                  # of a connection; the oldest are forgotten


cdef class RefusedBatches:
    def __init__(self):
        self.by_connection = {}

    cdef int note(self, int64_t connection_id, ProduceItem* item) except -1:
        """Note a refused batch. If an earlier one of its producer is noted, that one remains."""
        cdef BatchProducer producer = producer_of(item)
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
        cdef BatchProducer producer
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
