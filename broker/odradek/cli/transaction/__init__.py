"""`odradek transaction`."""
