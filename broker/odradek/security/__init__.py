"""Key stores, TLS contexts and principals. Pure: nothing here knows sockets of clients, processes or shared memory."""
