"""Cuts texts that clients choose, such as group ids, before they become labels of metrics or rows of the usage spool.

Pure functions. Kafka's strings have up to 32,767 bytes, and one id is in many series. Client ids and principals in the meter
pages are cut there (`_ext/shm/meter_layout.pxd`, CLIENT_ID_BYTES and PRINCIPAL_BYTES).
"""

from hashlib import blake2b

MOST_BYTES = 240
_HASH_BYTES = 8
_MARK = "~"

FROM_CLIENTS = frozenset(
    ("consumergroup", "principal", "client_id", "user", "clientsoftwarename", "clientsoftwareversion")
)
"""Labels whose values clients choose. `exposition.Labels` cuts them. Names of topics have at most 249 bytes."""


def cut(text: str) -> str:
    """Return a text of at most MOST_BYTES bytes: `text`, or its beginning and a hash of the whole.

    Different texts stay different, and a text that was cut is returned unchanged.
    """
    if len(text) * 4 <= MOST_BYTES:
        return text
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= MOST_BYTES:
        return text
    digest = blake2b(data, digest_size=_HASH_BYTES).hexdigest()
    room = MOST_BYTES - len(_MARK) - len(digest)
    return data[:room].decode("utf-8", "ignore") + _MARK + digest
