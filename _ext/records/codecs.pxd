"""The codecs of record batches and messages. `broker/odradek/codecs.py` is the same table for Python; a test compares the two."""


cdef enum:
    CODEC_NONE = 0
    CODEC_GZIP = 1
    CODEC_SNAPPY = 2
    CODEC_LZ4 = 3
    CODEC_ZSTD = 4
    CODEC_MASK = 0x07                   # of the attributes of a batch or message
    CODEC_AS_SENT = 255                 # in settings of a topic (compression.type=producer): the broker keeps the codec of the producer


cdef inline bint is_codec(int codec) noexcept nogil:
    """Whether a batch can have it."""
    return codec <= CODEC_ZSTD


cdef inline bint is_codec_of_messages(int codec) noexcept nogil:
    """Whether a message of format v0 or v1 can have it."""
    return codec <= CODEC_LZ4


cdef inline int first_produce(int codec) noexcept nogil:
    """The first version of Produce that can send it."""
    return 7 if codec == CODEC_ZSTD else 0


cdef inline int first_fetch(int codec) noexcept nogil:
    """The first version of Fetch whose response can contain it."""
    return 10 if codec == CODEC_ZSTD else 0
