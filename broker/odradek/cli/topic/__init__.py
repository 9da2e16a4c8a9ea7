"""`odradek topic`."""
