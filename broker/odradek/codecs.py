"""The table of the codecs of record batches: the only place in Python that lists them. Pure values.

The configuration, the clients, the tools and `storage/compression.py` derive from `CODECS`. Native code has the numbers and the
version gates in `_ext/records/codecs.pxd`; a test compares the two. A new codec is a row here and there, and its functions in
`storage/compression.py`.
"""

from typing import NamedTuple

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
"""The numbers of the codecs, as in the attributes of a batch."""
AS_SENT = 255
"""In settings of a topic, instead of the number of a codec: the broker keeps the codec of the producer."""


class Codec(NamedTuple):
    """A codec.

    :ivar number: in the attributes of a batch or message
    :ivar name: in options and outputs of commands
    :ivar in_messages: whether messages of formats v0 and v1 can have it
    :ivar first_produce: the first version of Produce that can send it
    :ivar first_fetch: the first version of Fetch whose response can contain it
    """

    number: int
    name: str
    in_messages: bool = True
    first_produce: int = 0
    first_fetch: int = 0


CODECS = (
    Codec(NONE, "none"),
    Codec(GZIP, "gzip"),
    Codec(SNAPPY, "snappy"),
    Codec(LZ4, "lz4"),
    Codec(ZSTD, "zstd", in_messages=False, first_produce=7, first_fetch=10),
)
#: The names of the codecs, by number.
NAMES = tuple(codec.name for codec in CODECS)
#: The numbers of the codecs that messages of formats v0 and v1 can have.
IN_MESSAGES = frozenset(codec.number for codec in CODECS if codec.in_messages)
#: The values of ``compression.type`` and what they mean in settings of a topic, in Kafka's order.
COMPRESSION_TYPES = {
    "uncompressed": NONE,
    **{codec.name: codec.number for codec in reversed(CODECS) if codec.number != NONE},
    "producer": AS_SENT,
}
#: All numbers with their names, for descriptions of settings that are numbers.
NUMBERED = ", ".join(f"{codec.number} {codec.name}" for codec in CODECS)
