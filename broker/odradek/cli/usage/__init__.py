"""`odradek usage`."""
