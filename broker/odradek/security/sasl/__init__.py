"""SASL: the exchange by which a client proves who it is; server and client, without I/O."""
