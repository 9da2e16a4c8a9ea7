"""`odradek partition`."""
