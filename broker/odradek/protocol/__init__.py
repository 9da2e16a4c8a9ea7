"""The wire protocol without I/O: declarative schemas of every API and version, with an encoder and a decoder.

Every process uses it. It uses no sockets, files or clocks, and its only state are the plans, which are compiled on first use.

* `schemas` has one module per API (`metadata`, `create_topics`, ...), each with `Request`, `Response`, `API_KEY` and `SCHEMA`,
  imported on first use. `registry` finds them by key, `schemas.header` has the headers, `errors` Kafka's error codes.
* `decode(cls, version, buffer, offset=0) -> (message, end)` and `encode(message, version) -> bytes`;
  `encode_frame(header, header_version, message, version) -> bytes` encodes a whole frame into one buffer. They raise
  ProtocolError, which describes the error in the bytes or objects and its place. `decode_in_steps` and `encode_in_steps` do
  the same in steps, for messages that may be large.
* `schema` defines the schema language; `plans` compiles a schema into plans for `odradek._ext.protocol.decoder` and `encoder`.
"""

from odradek._ext.protocol.decoder import decode, decode_in_steps
from odradek._ext.protocol.encoder import encode, encode_frame, encode_in_steps
from odradek._ext.protocol.messages import Message, ProtocolError

__all__ = [
    "LARGE_BYTES",
    "Message",
    "ProtocolError",
    "decode",
    "decode_in_steps",
    "encode",
    "encode_frame",
    "encode_in_steps",
]

LARGE_BYTES = 65_536
"""The size of a request above which it is decoded in steps."""
