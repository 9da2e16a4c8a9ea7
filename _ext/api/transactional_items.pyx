"""The rules of a Produce request with transactional batches; see transactional_items.pxd. No GIL is needed."""

from libc.stdint cimport int16_t, uint64_t, uint8_t

from odradek._ext.api.produce_items cimport BatchProducer, ProduceItem, ProduceRequest, mark_behind, producer_of, refuse
from odradek._ext.protocol.kafka_errors cimport (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    NETWORK_EXCEPTION,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    PRODUCER_FENCED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    TRANSACTION_ABORTABLE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from odradek._ext.partition.producer_entry cimport hash_of_id
from odradek._ext.records.record_batch cimport AT_ATTRIBUTES, AT_MAGIC, ATTRIBUTE_TRANSACTIONAL, BATCH_HEADER_BYTES


cdef enum:
    FIRST_WITH_ABORTABLE = 11     # version of Produce whose clients know TRANSACTION_ABORTABLE

cdef const char* NO_ID = "the request contains a transactional batch but no transactional id"
cdef const char* SEVERAL_PRODUCERS = "the transactional batches of the request have different producer ids or epochs"
cdef const char* FENCED = "the producer is fenced: another producer has its transactional id, or its transaction timed out and was aborted"
cdef const char* NOT_ADDED = "the partition was not added to the transaction"
cdef const char* WRONG_ID = "the transactional id is not known, or it belongs to another producer id"
cdef const char* NO_COORDINATOR = "the coordinator of the transaction is not available yet; send the batch again"
cdef const char* CONCURRENT = "the commit or abort of the producer's previous transaction is not complete yet; send the batch again"
cdef const char* OTHER = "the coordinator of the transaction did not allow the partition"


cdef bint is_transactional(ProduceItem* item) noexcept nogil:
    cdef const uint8_t* data = item.append.data
    return data != NULL and item.append.info.size >= BATCH_HEADER_BYTES and data[AT_MAGIC] == 2 \
        and data[AT_ATTRIBUTES + 1] & ATTRIBUTE_TRANSACTIONAL != 0


cdef bint refuse_all(ProduceRequest* request, ProduceItem* items, int error, const char* message) noexcept nogil:
    cdef int i
    for i in range(request.first, request.first + request.count):
        refuse(&items[i], error, message)
    return True


cdef bint check_transactional(ProduceRequest* request, ProduceItem* items, bint verify) noexcept nogil:
    cdef BatchProducer producer, known
    cdef uint64_t id_hash
    cdef int i
    known.id = -1
    known.epoch = -1
    if request.transactional_id_bytes < 0:
        return refuse_all(request, items, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_ID)
    id_hash = hash_of_id(request.transactional_id, request.transactional_id_bytes)
    for i in range(request.first, request.first + request.count):
        if not is_transactional(&items[i]) or items[i].error == UNKNOWN_TOPIC_ID or items[i].error == UNKNOWN_TOPIC_OR_PARTITION:
            continue
        producer = producer_of(&items[i])
        if producer.id < 0:
            continue
        if known.id < 0:
            known = producer
        elif producer.id != known.id or producer.epoch != known.epoch:
            return refuse_all(request, items, INVALID_PRODUCER_ID_MAPPING, SEVERAL_PRODUCERS)
        items[i].append.id_hash = id_hash
        items[i].append.trusted = not verify and request.version < PRODUCE_ADDS_PARTITIONS
    return False


cdef void refuse_transaction(ProduceItem* items, int at, int error, const char* message) noexcept nogil:
    """Refuse items[at] and the later transactional items of its slot: a request has one producer for all of them."""
    cdef int i = at
    while i >= 0:
        if not items[i].error and not items[i].appended and is_transactional(&items[i]):
            refuse(&items[i], error, message)
        i = items[i].following
    mark_behind(items, at)


cdef void refuse_by_coordinator(ProduceItem* items, int at, int code, int16_t version) noexcept nogil:
    cdef const char* message = OTHER
    if code == PRODUCER_FENCED or code == INVALID_PRODUCER_EPOCH:
        code = INVALID_PRODUCER_EPOCH
        message = FENCED
    elif code == TRANSACTION_ABORTABLE or code == INVALID_TXN_STATE:
        if version < FIRST_WITH_ABORTABLE:
            code = INVALID_TXN_STATE
        message = NOT_ADDED
    elif code == INVALID_PRODUCER_ID_MAPPING:
        message = WRONG_ID
    elif code == COORDINATOR_LOAD_IN_PROGRESS or code == COORDINATOR_NOT_AVAILABLE or code == NOT_COORDINATOR \
            or code == NETWORK_EXCEPTION:
        code = NOT_ENOUGH_REPLICAS      # retriable also for old clients, which refresh no metadata for it
        message = NO_COORDINATOR
    elif code == CONCURRENT_TRANSACTIONS:
        if version < PRODUCE_ADDS_PARTITIONS:
            code = NOT_ENOUGH_REPLICAS
        message = CONCURRENT
    refuse_transaction(items, at, code, message)


cdef void refuse_unanswered(ProduceItem* items, int at, const char* message) noexcept nogil:
    refuse_transaction(items, at, NOT_ENOUGH_REPLICAS, message)
