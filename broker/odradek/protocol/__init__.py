"""The wire protocol without I/O: declarative schemas of every API and version, and the codec that runs them both ways.

Every process uses it; it knows no socket, file or clock, and holds no state but the plans compiled on first use.

* One module per API (`metadata`, `create_topics`, ...), each with `Request`, `Response`, `API_KEY` and `SCHEMA`,
  imported when asked for; `registry` finds them by key, `header` has the headers, `errors` Kafka's error codes.
* `decode(cls, version, buffer, offset=0) -> (message, end)` and `encode(message, version) -> bytes`;
  `encode_frame(header, header_version, message, version) -> bytes` makes a whole frame in one buffer. ProtocolError
  says what is wrong with bytes or objects, and where.
* `schema` describes the language, `plans` turns a schema into what `odradek._ext.protocol.decoder` and `encoder` run.
"""

from odradek._ext.protocol.decoder import decode
from odradek._ext.protocol.encoder import encode, encode_frame
from odradek._ext.protocol.messages import Message, ProtocolError

__all__ = ["Message", "ProtocolError", "decode", "encode", "encode_frame"]
