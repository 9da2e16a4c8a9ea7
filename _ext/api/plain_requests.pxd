"""Reading headers and strings of the requests that the coordinator parses natively. Used in the coordinator's event loop.

If a value is not as expected, the cursor's error is set, and the caller leaves the request to the schema.
"""

from libc.stdint cimport int16_t, int32_t

from odradek._ext.protocol.cursor cimport Cursor, WriteBuffer


# Initialises a cursor on a request and skips its header. Returns the version, -1 if the request is not parsed natively.
cdef int header(Cursor* c, bytes frame, int16_t api_key, int newest, int flexible, int32_t* correlation_id) except -2
# Reads a string. Raises UnicodeDecodeError; null that is not allowed sets the cursor's error.
cdef object text(Cursor* c, bint compact, bint nullable)
# Returns the written bytes. Raises MemoryError.
cdef bytes finished(WriteBuffer* out)
