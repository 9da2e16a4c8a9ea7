"""What requests that the coordinator reads natively begin with, and strings in them; used by the loop that serves them.

Where a value is not as it should be, the cursor's error is set, and the request is left to the schema.
"""

from libc.stdint cimport int16_t, int32_t

from odradek._ext.protocol.cursor cimport Cursor, WriteBuffer


# Begins a cursor on a request and steps over its header; the version, -1 if it is not to be served here.
cdef int header(Cursor* c, bytes frame, int16_t api_key, int newest, int flexible, int32_t* correlation_id) except -2
# A string. Raises UnicodeDecodeError; null where it may not be sets the cursor's error.
cdef object text(Cursor* c, bint compact, bint nullable)
# All that was written. Raises MemoryError.
cdef bytes finished(WriteBuffer* out)
