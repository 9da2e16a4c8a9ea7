"""Authentication and authorization, without sockets and processes: who a client is, and what it may do."""
