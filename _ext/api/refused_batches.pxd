"""The batches of idempotent producers that were refused on a connection, and whose retries have not arrived yet."""

from libc.stdint cimport int64_t

from odradek._ext.api.produce_items cimport ProduceItem


cdef class RefusedBatches:
    cdef dict by_connection           # connection id -> {(topic, partition, producer id): (producer epoch, base sequence)}

    cdef int note(self, int64_t connection_id, ProduceItem* item) except -1
    cdef int judge(self, int64_t connection_id, ProduceItem* item) except -1
    cdef int forget(self, int64_t connection_id) except -1
