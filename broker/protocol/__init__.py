"""The wire protocol without I/O: declarative schemas of every API and version, compiled into plans when imported."""
